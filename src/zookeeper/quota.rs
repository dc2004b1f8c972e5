//! Quotas: a node `/zookeeper/quota<path>/zookeeper_limits` limits what is below a path, and
//! `zookeeper_stats` beside it counts. Source: ZooKeeper's `Quotas`, `StatsTrack`, `checkQuota`.

use crate::code::Refusal;
use crate::tree::Tree;

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";

/// Counts or limits; -1 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    count: i64,
    bytes: i64,
    count_hard_limit: i64,
    bytes_hard_limit: i64,
}

impl Track {
    const NONE: Track = Track { count: -1, bytes: -1, count_hard_limit: -1, bytes_hard_limit: -1 };

    /// Reads `count=1,bytes=2=;countHardLimit=3`; what is not a number counts as none.
    fn parse(data: Option<&[u8]>) -> Track {
        let mut track = Track::NONE;
        let text = String::from_utf8_lossy(data.unwrap_or_default());
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
            track.set(key, value.parse().unwrap_or(-1));
        }
        track
    }

    /// Reads the same; `None` where Apache cannot read it.
    fn parse_strictly(data: Option<&[u8]>) -> Option<Track> {
        let mut track = Track::NONE;
        let text = String::from_utf8_lossy(data?);
        // As Java splits: several separators are one, and those at the end separate nothing.
        let text = text.trim_end_matches([',', ';']);
        if text.is_empty() {
            return Some(track);
        }
        for (position, pair) in text.split([',', ';']).enumerate() {
            if pair.is_empty() && position > 0 {
                continue;
            }
            let mut parts = pair.trim_end_matches('=').split('=');
            let (key, value) = (parts.next()?, parts.next()?);
            track.set(key, if value.is_empty() { -1 } else { value.parse().ok()? });
        }
        Some(track)
    }

    fn set(&mut self, key: &str, value: i64) {
        match key {
            "count" => self.count = value,
            "bytes" => self.bytes = value,
            "countHardLimit" => self.count_hard_limit = value,
            "byteHardLimit" => self.bytes_hard_limit = value,
            _ => {}
        }
    }
}

/// The path that a limit node limits.
pub(crate) fn path_of_limit(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_suffix(LIMITS).filter(|path| !path.is_empty())
}

fn path_of_stats(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_suffix(STATS).filter(|path| !path.is_empty())
}

/// The nearest path at or above this one that has a quota.
fn limited_prefix(tree: &Tree, path: &str) -> Option<String> {
    if tree.quotas().is_empty() {
        return None;
    }
    let mut prefix = path;
    while !prefix.is_empty() {
        if tree.quotas().contains(prefix) {
            return Some(prefix.to_owned());
        }
        prefix = prefix.rsplit_once('/')?.0;
    }
    None
}

fn count(tree: &mut Tree, path: &str, bytes: i64, nodes: i64) {
    let Some(prefix) = limited_prefix(tree, path) else { return };
    let stats = format!("{ROOT}{prefix}{STATS}");
    let Some(node) = tree.get(&stats) else { return };
    let track = Track::parse(node.data.as_deref());
    let (nodes, bytes) = (track.count.wrapping_add(nodes), track.bytes.wrapping_add(bytes));
    let text = format!("count={nodes},bytes={bytes}");
    tree.replace_data(&stats, text.into_bytes());
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A node was created: it may be part of a quota, or count for one.
pub(crate) fn on_create(tree: &mut Tree, path: &str, bytes: usize) {
    if let Some(limited) = path_of_limit(path) {
        let limited = limited.to_owned();
        tree.add_quota(&limited);
    } else if let Some(limited) = path_of_stats(path) {
        let (nodes, bytes) = measure(tree, limited);
        tree.replace_data(path, format!("count={nodes},bytes={bytes}").into_bytes());
    }
    count(tree, path, signed(bytes), 1);
}

/// A node was deleted.
pub(crate) fn on_delete(tree: &mut Tree, path: &str, bytes: usize) {
    if let Some(limited) = path_of_limit(path) {
        let limited = limited.to_owned();
        tree.remove_quota(&limited);
    }
    count(tree, path, -signed(bytes), -1);
}

/// A node's data changed its length.
pub(crate) fn on_set(tree: &mut Tree, path: &str, before: usize, after: usize) {
    count(tree, path, signed(after) - signed(before), 0);
}

/// Nodes at and below a path, and the bytes of their data.
fn measure(tree: &Tree, path: &str) -> (usize, usize) {
    let (mut nodes, mut bytes) = (0, 0);
    let mut stack = vec![path.to_owned()];
    while let Some(path) = stack.pop() {
        let Some(node) = tree.get(&path) else { continue };
        nodes += 1;
        bytes += node.data.as_ref().map_or(0, |data| data.len());
        stack.extend(node.children.iter().map(|name| format!("{path}/{name}")));
    }
    (nodes, bytes)
}

/// Refuses what would exceed a hard limit, and everything that counts for limits which cannot be
/// read: a quota with a typing error in it must not be one that lets all pass.
pub(crate) fn check(tree: &Tree, path: &str, bytes: i64, nodes: i64) -> Result<(), Refusal> {
    let Some(prefix) = limited_prefix(tree, path) else { return Ok(()) };
    let read = |suffix: &str| {
        let node = tree.get(&format!("{ROOT}{prefix}{suffix}"))?;
        Some(Track::parse_strictly(node.data.as_deref()).ok_or(Refusal::MarshallingError))
    };
    let Some(limits) = read(LIMITS).transpose()? else { return Ok(()) };
    let counts = nodes != 0 && limits.count.max(limits.count_hard_limit) > -1;
    let weighs = bytes != 0 && limits.bytes.max(limits.bytes_hard_limit) > -1;
    if !counts && !weighs {
        return Ok(());
    }
    let Some(stats) = read(STATS).transpose()? else { return Ok(()) };
    let exceeds = |limit: i64, now: i64, more: i64| limit > -1 && now.wrapping_add(more) > limit;
    if counts && exceeds(limits.count_hard_limit, stats.count, nodes)
        || weighs && exceeds(limits.bytes_hard_limit, stats.bytes, bytes)
    {
        return Err(Refusal::QuotaExceeded);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_read_in_old_and_new_form() {
        let track = Track::parse(Some(b"count=5,bytes=-1=;byteHardLimit=9;countHardLimit=7"));
        assert_eq!(track, Track { count: 5, bytes: -1, count_hard_limit: 7, bytes_hard_limit: 9 });
        assert_eq!(Track::parse(Some(b"rubbish")).count, -1);
    }

    #[test]
    fn what_apache_cannot_read_is_no_track() {
        let bad = [
            "garbage",
            "count=x",
            "count=",
            "=",
            ",count=1",
            "count=1,x",
            " count= 1",
            "count=99999999999999999999",
        ];
        for bad in bad {
            assert_eq!(Track::parse_strictly(Some(bad.as_bytes())), None, "{bad}");
        }
        assert_eq!(Track::parse_strictly(None), None);
        for (text, count, bytes) in [
            ("", -1, -1),
            (",", -1, -1),
            ("count==1", -1, -1),
            (" count=1", -1, -1),
            ("count=1,;,bytes=+2=;;", 1, 2),
            ("count=1,count=3;other=4", 3, -1),
        ] {
            let expected = Track { count, bytes, ..Track::NONE };
            assert_eq!(Track::parse_strictly(Some(text.as_bytes())), Some(expected), "{text}");
        }
    }

    #[test]
    fn limit_nodes_name_what_they_limit() {
        assert_eq!(path_of_limit("/zookeeper/quota/a/b/zookeeper_limits"), Some("/a/b"));
        assert_eq!(path_of_limit("/zookeeper/quota/zookeeper_limits"), None);
        assert_eq!(path_of_limit("/a/zookeeper_limits"), None);
    }
}
