//! Versions of the inter-broker protocol, `inter.broker.protocol.version`.
//! Source: `org.apache.kafka.server.common.MetadataVersion`.

use std::fmt;

/// A version of the inter-broker protocol; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataVersion(usize);

/// Short name and full name, oldest first; a short name alone means its last line.
const VERSIONS: &[(&str, &str)] = &[
    ("0.8.0", "0.8.0"),
    ("0.8.1", "0.8.1"),
    ("0.8.2", "0.8.2"),
    ("0.9.0", "0.9.0"),
    ("0.10.0", "0.10.0-IV0"),
    ("0.10.0", "0.10.0-IV1"),
    ("0.10.1", "0.10.1-IV0"),
    ("0.10.1", "0.10.1-IV1"),
    ("0.10.1", "0.10.1-IV2"),
    ("0.10.2", "0.10.2-IV0"),
    ("0.11.0", "0.11.0-IV0"),
    ("0.11.0", "0.11.0-IV1"),
    ("0.11.0", "0.11.0-IV2"),
    ("1.0", "1.0-IV0"),
    ("1.1", "1.1-IV0"),
    ("2.0", "2.0-IV0"),
    ("2.0", "2.0-IV1"),
    ("2.1", "2.1-IV0"),
    ("2.1", "2.1-IV1"),
    ("2.1", "2.1-IV2"),
    ("2.2", "2.2-IV0"),
    ("2.2", "2.2-IV1"),
    ("2.3", "2.3-IV0"),
    ("2.3", "2.3-IV1"),
    ("2.4", "2.4-IV0"),
    ("2.4", "2.4-IV1"),
    ("2.5", "2.5-IV0"),
    ("2.6", "2.6-IV0"),
    ("2.7", "2.7-IV0"),
    ("2.7", "2.7-IV1"),
    ("2.7", "2.7-IV2"),
    ("2.8", "2.8-IV0"),
    ("2.8", "2.8-IV1"),
    ("3.0", "3.0-IV0"),
    ("3.0", "3.0-IV1"),
    ("3.1", "3.1-IV0"),
    ("3.2", "3.2-IV0"),
    ("3.3", "3.3-IV0"),
    ("3.3", "3.3-IV1"),
    ("3.3", "3.3-IV2"),
    ("3.3", "3.3-IV3"),
    ("3.4", "3.4-IV0"),
    ("3.5", "3.5-IV0"),
    ("3.5", "3.5-IV1"),
    ("3.5", "3.5-IV2"),
    ("3.6", "3.6-IV0"),
    ("3.6", "3.6-IV1"),
    ("3.6", "3.6-IV2"),
    ("3.7", "3.7-IV0"),
    ("3.7", "3.7-IV1"),
    ("3.7", "3.7-IV2"),
    ("3.7", "3.7-IV3"),
    ("3.7", "3.7-IV4"),
    ("3.8", "3.8-IV0"),
    ("3.9", "3.9-IV0"),
    ("4.0", "4.0-IV0"),
    ("4.0", "4.0-IV1"),
];

impl MetadataVersion {
    /// Record format with magic 1.
    pub const V0_10_0_IV0: MetadataVersion = MetadataVersion::of("0.10.0-IV0");
    /// Record format with magic 2.
    pub const V0_11_0_IV0: MetadataVersion = MetadataVersion::of("0.11.0-IV0");
    /// Topic ids; the oldest version that this broker speaks.
    pub const V2_8_IV0: MetadataVersion = MetadataVersion::of("2.8-IV0");
    /// Producer ids come from the controller.
    pub const V3_0_IV0: MetadataVersion = MetadataVersion::of("3.0-IV0");
    /// `log.message.format.version` is ignored.
    pub const V3_0_IV1: MetadataVersion = MetadataVersion::of("3.0-IV1");
    /// The newest version that this broker speaks, and the default.
    pub const V3_9_IV0: MetadataVersion = MetadataVersion::of("3.9-IV0");

    const fn of(full: &str) -> MetadataVersion {
        let mut index = 0;
        while index < VERSIONS.len() {
            if same(VERSIONS[index].1, full) {
                return MetadataVersion(index);
            }
            index += 1;
        }
        panic!("not in the list of versions")
    }

    /// Reads a version as Kafka does: `2.8`, `2.8-IV1`, and `2.8.2` for its first two numbers (three after `0.`).
    pub fn parse(text: &str) -> Option<MetadataVersion> {
        let kept = if text.starts_with("0.") { 3 } else { 2 };
        let segments: Vec<&str> = text.split('.').collect();
        let key = if kept >= segments.len() { text.to_owned() } else { segments[..kept].join(".") };
        let last = |part: fn(&(&'static str, &'static str)) -> &'static str| {
            VERSIONS.iter().rposition(|version| part(version) == key)
        };
        last(|version| version.1).or_else(|| last(|version| version.0)).map(MetadataVersion)
    }

    /// Such as `2.8`.
    pub fn short(self) -> &'static str {
        VERSIONS[self.0].0
    }

    /// Such as `2.8-IV1`.
    pub fn full(self) -> &'static str {
        VERSIONS[self.0].1
    }

    /// The newest record format (magic) that brokers of this version write: 0, 1 or 2.
    pub fn record_version(self) -> i8 {
        if self < MetadataVersion::V0_10_0_IV0 {
            0
        } else if self < MetadataVersion::V0_11_0_IV0 {
            1
        } else {
            2
        }
    }

    /// The short name of the oldest version that writes a record format.
    pub(super) fn oldest_with_record_version(magic: i8) -> &'static str {
        match magic {
            0 => "0.8.0",
            1 => "0.10.0",
            _ => "0.11.0",
        }
    }
}

/// `==` for texts in constants.
const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.full())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_kafka_reads_them() {
        let full = |text| MetadataVersion::parse(text).map(MetadataVersion::full);
        assert_eq!(full("2.8"), Some("2.8-IV1"));
        assert_eq!(full("2.8-IV0"), Some("2.8-IV0"));
        assert_eq!(full("2.8.1"), Some("2.8-IV1"));
        assert_eq!(full("3.9"), Some("3.9-IV0"));
        assert_eq!(full("0.10.1.1"), Some("0.10.1-IV2"));
        assert_eq!(full("0.9.0"), Some("0.9.0"));
        for wrong in ["9.9", "0.9", "3", "", "3.9-IV7", "nonsense"] {
            assert_eq!(full(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn versions_are_ordered() {
        assert!(MetadataVersion::V2_8_IV0 < MetadataVersion::V3_0_IV1);
        assert!(MetadataVersion::parse("0.11.0") < MetadataVersion::parse("1.0"));
        assert_eq!(MetadataVersion::parse("0.10.2").map(MetadataVersion::record_version), Some(1));
        assert_eq!(MetadataVersion::parse("0.9.0").map(MetadataVersion::record_version), Some(0));
        assert_eq!(MetadataVersion::V3_9_IV0.record_version(), 2);
    }
}
