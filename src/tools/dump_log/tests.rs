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
        let mut out = Vec::new();
        for line in recorded.lines() {
            let Some(name) = line.strip_prefix("Dumping ") else { continue };
            match dump.file(name, &mut out) {
                Ok(()) => {}
                Err(Stop::Output) => panic!("a vector takes what is written"),
                Err(Stop::Fault(text)) => panic!("{case:?} {name}: {text}"),
            }
        }
        let text = String::from_utf8_lossy(&out).into_owned();
        let ours: Vec<String> = text.lines().map(cut).collect();
        let theirs: Vec<&str> = recorded.lines().collect();
        let mut file = "";
        for (line, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            file = theirs.strip_prefix("Dumping ").unwrap_or(file);
            assert_eq!(set_order(ours), set_order(theirs), "{case:?} {file} line {line}");
        }
        assert!(theirs.len() >= ours.len(), "{case:?}: too many lines");
        // What Kafka wrote to standard error follows, files in the order of a hash map.
        let sorted = |lines: &mut dyn Iterator<Item = String>| {
            let lines = lines.filter(|line| !line.is_empty());
            let mut lines: Vec<String> = lines.map(|line| relative(&line)).collect();
            lines.sort();
            lines
        };
        let rest = sorted(&mut theirs[ours.len()..].iter().map(|line| (*line).to_owned()));
        assert_eq!(sorted(&mut dump.complaints().into_iter()), rest, "{case:?}");
        compared += theirs.len();
    }
    compared
}

/// Without the folder that the files were in.
fn relative(line: &str) -> String {
    match (line.find('/'), line.find("/data/")) {
        (Some(root), Some(data)) => format!("{}{}", &line[..root], &line[data..]),
        _ => line.to_owned(),
    }
}

/// Long lines were cut by the recorder.
fn cut(line: &str) -> String {
    if line.chars().count() < 3000 {
        return line.to_owned();
    }
    format!("{}...cut", line.chars().take(3000).collect::<String>())
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
