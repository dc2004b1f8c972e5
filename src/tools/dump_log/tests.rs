//! Every recorded dump of Kafka's, made again from the same files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use common::ids::{Offset, Timestamp};
use record::{build::BatchBuilder, compression::Compression};

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

/// What is shown of a log of one batch after something was done to its bytes, and the fault at the end.
fn shown(words: &[&str], damage: impl Fn(&mut Vec<u8>)) -> (Vec<String>, Option<String>) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let options = Options::parse(OPTIONS, &words).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut builder = BatchBuilder::new(Compression::None).base_offset(Offset(0));
    builder.append(Timestamp(7), Some(b"key"), Some(b"value"), &[]).unwrap();
    let mut bytes = builder.finish().to_vec();
    damage(&mut bytes);
    fs::write(folder.path().join("00000000000000000000.log"), bytes).unwrap();
    let mut dump = Dump::new(&options, folder.path().to_owned()).ok().unwrap();
    let mut out = Vec::new();
    let fault = match dump.file("00000000000000000000.log", &mut out) {
        Ok(()) => None,
        Err(Stop::Fault(text)) => Some(text),
        Err(Stop::Output) => panic!("a vector takes what is written"),
    };
    let lines = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
    (lines, fault)
}

#[test]
fn a_batch_of_an_unknown_format_is_shown_as_one_of_the_newest() {
    let (whole, fault) = shown(&["--deep-iteration"], |_| ());
    assert_eq!((whole.len(), fault), (4, None));
    let (lines, fault) = shown(&["--deep-iteration"], |bytes| bytes[16] = 9);
    assert_eq!(fault, None);
    let expected: Vec<String> =
        whole.iter().map(|line| line.replace("magic: 2", "magic: 9")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn what_is_no_entry_is_counted_whatever_its_format_were() {
    let (lines, fault) = shown(&[], |bytes| {
        bytes.truncate(40);
        bytes[8..12].copy_from_slice(&1000_i32.to_be_bytes());
        bytes[16] = 97;
    });
    assert_eq!(fault, None);
    let last = lines.last().unwrap();
    assert_eq!(last, "Found 40 invalid bytes at the end of 00000000000000000000.log");
}

#[test]
fn a_negative_size_is_refused() {
    let (lines, fault) = shown(&["--max-bytes", "-5"], |_| ());
    assert_eq!(lines.last().unwrap(), "Log starting offset: 0");
    assert_eq!(fault.unwrap(), "java.lang.IllegalArgumentException: Invalid size: -5");
}
