//! Names of replica directories: `<topic>-<partition>`, and the suffixes of those on their way in or out.
//! Source: `LocalLog.parseTopicPartitionName`.

use common::topic::{TopicPartition, Uuid};

/// Longest name of a directory, in characters.
const NAME_LENGTH_MAX: usize = 255;

/// What a replica directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryKind {
    /// A replica that is served.
    Live,
    /// `-future`: a replica being moved in from another log directory; replaces the live one when it has caught up.
    Future,
    /// `-delete`: waits for its removal.
    Delete,
    /// `-stray`: not in the cluster's assignment; kept, never served.
    Stray,
}

impl DirectoryKind {
    fn suffix(self) -> &'static str {
        match self {
            DirectoryKind::Live => "",
            DirectoryKind::Future => "-future",
            DirectoryKind::Delete => "-delete",
            DirectoryKind::Stray => "-stray",
        }
    }
}

/// Reads a directory's name; `None` where it is not a replica's, which Kafka does not start with.
pub fn parse(name: &str) -> Option<(TopicPartition, DirectoryKind)> {
    let kind = [DirectoryKind::Future, DirectoryKind::Delete, DirectoryKind::Stray]
        .into_iter()
        .find(|kind| name.ends_with(kind.suffix()))
        .unwrap_or(DirectoryKind::Live);
    let name = match kind {
        DirectoryKind::Live => name,
        _ => {
            let (name, unique) = name.rsplit_once('.')?;
            if unique.len() <= kind.suffix().len() || name.contains(char::is_whitespace) {
                return None;
            }
            name
        }
    };
    let (topic, partition) = name.rsplit_once('-')?;
    if topic.is_empty() || !partition.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((TopicPartition::new(topic, partition.parse().ok()?), kind))
}

/// A new name for the partition's directory. For `Delete` and `Stray` the topic is cut to make the name fit;
/// `None` where no directory of ours can have it: one that is no single name, that would be read back as another
/// partition's, or that is too long.
pub fn new_name(partition: &TopicPartition, kind: DirectoryKind, unique: Uuid) -> Option<String> {
    let TopicPartition { topic, partition } = partition;
    // Requests of a controller name topics, and nobody has checked those.
    if topic.is_empty() || topic.contains(['/', '\0']) || *partition < 0 {
        return None;
    }
    let suffix = match kind {
        DirectoryKind::Live => format!("-{partition}"),
        _ => format!("-{partition}.{:032x}{}", unique.0, kind.suffix()),
    };
    let room = NAME_LENGTH_MAX - suffix.len();
    if matches!(kind, DirectoryKind::Live | DirectoryKind::Future) && topic.len() > room {
        return None;
    }
    // Topic names are ASCII; anything else came from a directory's name and is cut at a character.
    let mut end = topic.len().min(room);
    while !topic.is_char_boundary(end) {
        end -= 1;
    }
    Some(format!("{}{suffix}", &topic[..end]))
}

#[cfg(test)]
mod tests {
    use super::{DirectoryKind, TopicPartition, Uuid, new_name, parse};

    #[test]
    fn names_are_read_as_kafka_does() {
        let read = |name: &str| parse(name).map(|(partition, kind)| (partition.to_string(), kind));
        assert_eq!(read("orders.eu-1-7"), Some(("orders.eu-1-7".into(), DirectoryKind::Live)));
        assert_eq!(parse("a--5").unwrap().0, TopicPartition::new("a-", 5));
        let unique = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            read(&format!("t-0.{unique}-delete")),
            Some(("t-0".into(), DirectoryKind::Delete))
        );
        assert_eq!(
            read(&format!("t.x-0.{unique}-future")),
            Some(("t.x-0".into(), DirectoryKind::Future))
        );
        assert_eq!(
            read(&format!("t-0.{unique}-stray")),
            Some(("t-0".into(), DirectoryKind::Stray))
        );
        for wrong in
            ["nonsense", "-0", "t-", "t-x", "t-0-delete", "t-0.-delete", "", "t-99999999999"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_new_name_fits_and_reads_back() {
        let long = TopicPartition::new("x".repeat(249), 12);
        let name = new_name(&long, DirectoryKind::Delete, Uuid(7)).unwrap();
        assert_eq!(name.len(), 255);
        assert_eq!(parse(&name).unwrap().1, DirectoryKind::Delete);
        assert_eq!(new_name(&long, DirectoryKind::Future, Uuid(7)), None);
        let short = TopicPartition::new("t", 3);
        assert_eq!(
            new_name(&short, DirectoryKind::Future, Uuid(0xab)).unwrap(),
            "t-3.000000000000000000000000000000ab-future"
        );
        assert_eq!(new_name(&short, DirectoryKind::Live, Uuid(0)).unwrap(), "t-3");
    }

    #[test]
    fn nothing_is_named_outside_a_log_directory_or_like_another_partition() {
        let live = |topic: &str, partition| {
            new_name(&TopicPartition::new(topic, partition), DirectoryKind::Live, Uuid(0))
        };
        for wrong in ["a/b", "/etc", "../up", "", "nul\0", &"x".repeat(254)] {
            assert_eq!(live(wrong, 0), None, "{wrong:?}");
        }
        assert_eq!(live("t", -1), None);
        assert!(live(&"x".repeat(253), 0).is_some());
    }
}
