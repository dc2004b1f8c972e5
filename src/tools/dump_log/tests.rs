//! Every recorded dump of Kafka's, made again from the same files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Dump, OPTIONS, Stop};
use crate::options::Options;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/logs")
}

/// The recordings of one kind, with the options that made them.
fn compare(recording: &str, words: &[&str]) -> usize {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let options = Options::parse(OPTIONS, &words).unwrap();
    let mut compared = 0;
    for case in fs::read_dir(golden()).unwrap() {
        let case = case.unwrap().path();
        let Ok(recorded) = fs::read(case.join(recording)) else { continue };
        let recorded = String::from_utf8_lossy(&recorded).into_owned();
        let mut dump = Dump::new(&options, case.clone()).ok().unwrap();
        for section in sections(&recorded) {
            let name = section[0].strip_prefix("Dumping ").unwrap();
            let mut out = Vec::new();
            match dump.file(name, &mut out) {
                Ok(()) => {}
                Err(Stop::Output) => panic!("a vector takes what is written"),
                Err(Stop::Fault(text)) => panic!("{case:?} {name}: {text}"),
            }
            let text = String::from_utf8_lossy(&out).into_owned();
            let ours: Vec<String> =
                text.lines().map(|line| line.chars().take(3000).collect()).collect();
            for (line, (ours, theirs)) in ours.iter().zip(&section).enumerate() {
                assert_eq!(set_order(ours), set_order(theirs), "{case:?} {name} line {line}");
            }
            assert_eq!(ours.len(), section.len(), "{case:?} {name}");
            compared += section.len();
        }
    }
    compared
}

/// The lines of each file. A value may hold line breaks, so a section ends where the next one begins.
fn sections(recorded: &str) -> Vec<Vec<String>> {
    let mut sections: Vec<Vec<String>> = Vec::new();
    for line in recorded.lines() {
        if line.starts_with("Dumping ") {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.push(line.to_owned());
        }
    }
    sections
}

/// Java prints a transaction's partitions in the order of a hash set.
fn set_order(line: &str) -> String {
    let Some((before, rest)) = line.split_once(",partitions=[") else { return line.to_owned() };
    let Some((list, after)) = rest.split_once(']') else { return line.to_owned() };
    let sorted: BTreeSet<&str> = list.split(',').collect();
    format!("{before},partitions={sorted:?}{after}")
}

#[test]
fn logs_and_indexes_look_as_kafka_shows_them() {
    let compared = compare("dump.txt", &["--deep-iteration", "--print-data-log"]);
    assert!(compared > 10_000, "{compared} lines");
}

#[test]
fn offsets_look_as_kafka_shows_them() {
    let compared = compare("dump-offsets.txt", &["--offsets-decoder"]);
    assert!(compared > 300, "{compared} lines");
}

#[test]
fn transactions_look_as_kafka_shows_them() {
    let compared = compare("dump-transactions.txt", &["--transaction-log-decoder"]);
    assert!(compared > 1500, "{compared} lines");
}
