//! Deliberate differences from Kafka, `deviations.toml`: what comparisons may accept.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde::Deserialize;

/// One deliberate difference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// Short and unique.
    pub name: String,
    /// What is different.
    pub what: String,
    /// Why it is better, or cannot be the same.
    pub why: String,
    /// The places it covers; `*` stands for anything.
    #[serde(rename = "where")]
    pub places: Vec<String>,
}

impl Deviation {
    /// Whether it covers a place such as `transcripts/kafka-topics/049-describe-unknown`.
    pub fn covers(&self, place: &str) -> bool {
        self.places.iter().any(|pattern| matches(pattern, place))
    }
}

/// All of them, and which of them a comparison has needed.
#[derive(Debug)]
pub struct Deviations {
    all: Vec<Deviation>,
    used: Mutex<BTreeSet<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    deviation: Vec<Deviation>,
}

impl Deviations {
    /// The file beside this one.
    ///
    /// # Panics
    /// Where the file is not what its head says.
    pub fn load() -> Deviations {
        Deviations::parse(include_str!("deviations.toml"))
            .unwrap_or_else(|error| panic!("deviations.toml: {error}"))
    }

    fn parse(text: &str) -> Result<Deviations, toml::de::Error> {
        let document: Document = toml::from_str(text)?;
        Ok(Deviations { all: document.deviation, used: Mutex::default() })
    }

    /// Every entry.
    pub fn all(&self) -> &[Deviation] {
        &self.all
    }

    /// The entry of a name, if it covers the place; notes that it was needed. A comparison asks for the very
    /// difference it knows how to accept, and accepts no other.
    pub fn accept(&self, name: &str, place: &str) -> Option<&Deviation> {
        let found = self.all.iter().find(|deviation| deviation.name == name);
        let covering = found.filter(|deviation| deviation.covers(place))?;
        self.used.lock().expect("no panic while it is held").insert(name.to_owned());
        Some(covering)
    }

    /// The first entry that covers a place, for comparisons that cannot tell one difference from another; notes
    /// that it was needed. Entries for everything (`transcripts/*`) do not count here.
    pub fn covering(&self, place: &str) -> Option<&Deviation> {
        let is_narrow = |deviation: &&Deviation| {
            let own =
                |pattern: &&String| !pattern.ends_with("/*") || pattern.matches('/').count() > 1;
            deviation.places.iter().filter(own).any(|pattern| matches(pattern, place))
        };
        let found = self.all.iter().find(is_narrow)?;
        self.accept(&found.name, place)
    }

    /// Names that were accepted so far.
    pub fn used(&self) -> BTreeSet<String> {
        self.used.lock().expect("no panic while it is held").clone()
    }
}

/// Whether a text is what a pattern with `*` says.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    let ends = rest.char_indices().map(|(index, _)| index).chain([rest.len()]);
    ends.into_iter().any(|index| matches(tail, &rest[index..]))
}
