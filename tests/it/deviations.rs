//! The list of deliberate differences is well-formed, and its places exist.

use std::collections::BTreeSet;
use std::path::Path;

use tests::deviations::{Deviations, matches};

const KINDS: &[&str] =
    &["transcripts", "znodes", "server-logs", "logs", "differential", "config", "behaviour"];

#[test]
fn every_entry_says_what_why_and_where() {
    let deviations = Deviations::load();
    let names: BTreeSet<_> = deviations.all().iter().map(|deviation| &deviation.name).collect();
    assert_eq!(names.len(), deviations.all().len(), "a name stands twice");
    for deviation in deviations.all() {
        assert!(deviation.what.ends_with('.') && deviation.why.ends_with('.'), "{deviation:?}");
        assert!(!deviation.places.is_empty(), "{deviation:?}");
        for place in &deviation.places {
            let kind = place.split('/').next().unwrap_or_default();
            assert!(KINDS.contains(&kind), "{place}");
        }
    }
}

#[test]
fn places_among_the_recordings_exist() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut cases = Vec::new();
    for folder in std::fs::read_dir(golden.join("transcripts")).unwrap() {
        let folder = folder.unwrap().path();
        let script = folder.file_name().unwrap().to_string_lossy().into_owned();
        for case in std::fs::read_dir(&folder).into_iter().flatten() {
            let case = case.unwrap().path();
            let name = case.file_stem().unwrap().to_string_lossy().into_owned();
            cases.push(format!("transcripts/{script}/{name}"));
        }
    }
    for deviation in Deviations::load().all() {
        for place in deviation.places.iter().filter(|place| place.starts_with("transcripts/")) {
            let covers = cases.iter().any(|case| matches(place, case));
            assert!(covers, "{}: no recording is {place}", deviation.name);
        }
    }
}

#[test]
fn keys_among_the_places_exist() {
    for deviation in Deviations::load().all() {
        for place in &deviation.places {
            let Some(key) = place.strip_prefix("config/") else {
                continue;
            };
            let mut keys = common::config::table::broker_keys();
            assert!(keys.any(|known| matches(key, known.name)), "{place}");
        }
    }
}

#[test]
fn a_comparison_accepts_only_what_it_names() {
    let deviations = Deviations::load();
    let place = "transcripts/kafka-topics/004-unknown-option";
    assert!(deviations.used().is_empty());
    assert!(deviations.accept("unknown-option", place).is_some());
    assert!(deviations.accept("ghost-znode", place).is_none());
    assert!(deviations.accept("nonsense", place).is_none());
    assert_eq!(deviations.used().len(), 1);
    assert_eq!(deviations.covering(place).map(|found| found.name.as_str()), Some("unknown-option"));
    assert!(deviations.covering("transcripts/kafka-topics/010-create-assignment").is_none());
}

#[test]
fn stars_stand_for_anything() {
    for (pattern, text, expected) in [
        ("a/*", "a/b/c", true),
        ("a/*/c", "a/b/c", true),
        ("a/*c*", "a/bcd", true),
        ("a/*/c", "a/b/d", false),
        ("a", "ab", false),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}
