//! `kafka-dump-log`: shows what is in the files of a log. Source: `DumpLogSegments`.

use std::{
    fs,
    io::{self, BufWriter, Write, stdout},
    path::{Path, PathBuf},
};

use common::ids::Offset;
use storage::{producer_snapshot, transaction_index};

use crate::{
    clients::file_exception,
    console::{Halt, complain, halt},
    options::{OptionSpec, Options, flag, parse_or_refuse, read, value},
};

mod decoders;
mod indexes;
mod segment;

use self::{decoders::Decoder, indexes::IndexOptions, segment::LogOptions};

const STRING_DECODER: &str = "org.apache.kafka.tools.api.StringDecoder";

const OPTIONS: &[OptionSpec] = &[
    flag("print-data-log", "Print the records of logs. Implied by every decoder."),
    flag("verify-index-only", "Compare indexes with their logs without printing them."),
    flag("index-sanity-check", "Make the check of indexes that a broker makes when it starts, and nothing else."),
    value("files", "file1, file2, ...", "REQUIRED: The files to show, with commas."),
    value("max-message-size", "size", "Largest record that is read where an index points.").integer().default("5242880"),
    value("max-bytes", "size", "Bytes of each log that are read.").integer().default("2147483647"),
    flag("deep-iteration", "Show each record of a batch, not the batch alone. Implied by --print-data-log."),
    value("value-decoder-class", "", "Decoder of values: String, Integer, Long or Default of org.apache.kafka.tools.api, such as org.apache.kafka.tools.api.StringDecoder.").optional().default(STRING_DECODER),
    value("key-decoder-class", "", "Decoder of keys, as above.").optional().default(STRING_DECODER),
    flag("offsets-decoder", "Read the records as those of __consumer_offsets."),
    flag("transaction-log-decoder", "Read the records as those of __transaction_state."),
    flag("cluster-metadata-decoder", "Read the records as those of KRaft's __cluster_metadata."),
    flag("remote-log-metadata-decoder", "Read the records as those of __remote_log_metadata."),
    flag("skip-record-metadata", "Print keys and values alone."),
];

/// Options that imply `--print-data-log`.
const PRINTING: &[&str] = &[
    "print-data-log",
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "value-decoder-class",
    "key-decoder-class",
];

/// Why dumping ends early.
pub(crate) enum Stop {
    /// Nobody reads the output any more.
    Output,
    /// The text to end with.
    Fault(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Output
    }
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(
        "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly corrupt log segment.",
    )?;
    options.require(&["files"])?;
    let files = read(options.text("files"))?.unwrap_or_default();
    let mut dump = Dump::new(&options, PathBuf::new())?;
    let mut out = BufWriter::new(stdout());
    let mut end = Ok(());
    // Java's split drops empty parts at the end.
    for file in files.trim_end_matches(',').split(',') {
        end = dump.file(file, &mut out);
        if end.is_err() {
            break;
        }
    }
    // A reader that is gone is no fault of ours.
    let _ = out.flush();
    match end {
        Ok(()) => {
            dump.complaints().iter().for_each(|line| complain(line));
            Ok(())
        }
        Err(Stop::Output) => Ok(()),
        Err(Stop::Fault(text)) => halt(&text),
    }
}

/// How files are shown, and what was found wrong so far.
pub(crate) struct Dump {
    /// Files are named relative to this.
    base: PathBuf,
    log: LogOptions,
    index: IndexOptions,
    unknown: Vec<String>,
    index_mismatches: Vec<String>,
    time_index: indexes::TimeIndexFaults,
    gaps: Vec<String>,
}

impl Dump {
    /// Takes the options; the error has been told.
    pub(crate) fn new(options: &Options, base: PathBuf) -> Result<Dump, Halt> {
        let prints_data = PRINTING.iter().any(|option| options.has(option));
        let max_bytes = read(options.integer("max-bytes"))?.unwrap_or(i32::MAX);
        let message_bytes_max = read(options.integer("max-message-size"))?.unwrap_or_default();
        Ok(Dump {
            base,
            log: LogOptions {
                prints_data,
                is_deep: prints_data || options.has("deep-iteration"),
                skips_metadata: options.has("skip-record-metadata"),
                max_bytes: (max_bytes != i32::MAX).then_some(max_bytes),
                decoder: Decoder::new(options)?,
            },
            index: IndexOptions {
                checks_sanity_only: options.has("index-sanity-check"),
                verifies_only: options.has("verify-index-only"),
                message_bytes_max: usize::try_from(message_bytes_max).unwrap_or(0),
            },
            unknown: Vec::new(),
            index_mismatches: Vec::new(),
            time_index: indexes::TimeIndexFaults::default(),
            gaps: Vec::new(),
        })
    }

    /// Shows one file, by the end of its name.
    pub(crate) fn file(&mut self, name: &str, out: &mut impl Write) -> Result<(), Stop> {
        writeln!(out, "Dumping {name}")?;
        let path = self.base.join(name);
        let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match kind {
            "log" => {
                self.log.decoder.announce(out)?;
                let gaps = segment::dump(&path, &self.log, out)?;
                if !gaps.is_empty() {
                    self.gaps.push(format!("Non-consecutive offsets in {}", absolute(&path)));
                    // Kafka collects them from the last to the first.
                    self.gaps.extend(
                        gaps.iter()
                            .rev()
                            .map(|(first, second)| format!("  {first} is followed by {second}")),
                    );
                }
                Ok(())
            }
            "index" => {
                let mismatches = indexes::dump_index(name, &path, self.index, out)?;
                if !mismatches.is_empty() {
                    self.index_mismatches.push(format!("Mismatches in :{}", absolute(&path)));
                    self.index_mismatches.extend(
                        mismatches.iter().rev().map(|(index, log)| {
                            format!("  Index offset: {index}, log offset: {log}")
                        }),
                    );
                }
                Ok(())
            }
            "timeindex" => {
                indexes::dump_time_index(name, &path, self.index, &mut self.time_index, out)
            }
            "snapshot" => dump_snapshot(&path, &mut self.unknown, out),
            "txnindex" => dump_transaction_index(&path, out),
            _ => {
                self.unknown.push(format!("Ignoring unknown file {name}"));
                Ok(())
            }
        }
    }

    /// What was found wrong, in Kafka's order.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut lines = self.unknown.clone();
        lines.extend(self.index_mismatches.iter().cloned());
        lines.extend(self.time_index.lines());
        lines.extend(self.gaps.iter().cloned());
        lines
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Reads a small file whole.
fn contents(path: &Path) -> Result<Vec<u8>, Stop> {
    let read = fs::read(path);
    read.map_err(|error| Stop::Fault(file_exception(&path.display().to_string(), &error)))
}

/// The offset in a file's name.
fn offset_of(path: &Path) -> Result<Offset, Stop> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.split('.').next().unwrap_or_default();
    let parsed = digits.parse().map(Offset);
    parsed.map_err(|_| {
        Stop::Fault(format!("java.lang.NumberFormatException: For input string: \"{digits}\""))
    })
}

fn dump_snapshot(
    path: &Path,
    complaints: &mut Vec<String>,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let entries = match producer_snapshot::decode(&contents(path)?) {
        Ok(entries) => entries,
        Err(error) => {
            complaints.push(format!("{}: {error}", path.display()));
            return Ok(());
        }
    };
    for entry in entries {
        let first = match entry.current_transaction_first_offset {
            Offset(..0) => "OptionalLong.empty".to_owned(),
            offset => format!("OptionalLong[{offset}]"),
        };
        write!(
            out,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {first} lastTimestamp: {} ",
            entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.timestamp
        )?;
        // Without a batch that it remembers, a producer has only markers.
        if entry.last_offset >= Offset::ZERO {
            let first_sequence = sequence_before(entry.last_sequence, entry.offset_delta);
            write!(
                out,
                "firstSequence: {first_sequence} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Sequences begin again at 0 after 2^31 - 1. Source: `DefaultRecordBatch.decrementSequence`.
fn sequence_before(sequence: i32, decrement: i32) -> i32 {
    if sequence < decrement { i32::MAX - (decrement - sequence) + 1 } else { sequence - decrement }
}

fn dump_transaction_index(path: &Path, out: &mut impl Write) -> Result<(), Stop> {
    let decoded = transaction_index::decode(&contents(path)?, offset_of(path)?);
    let entries = decoded.ok_or_else(|| {
        Stop::Fault(format!("The transaction index {} is corrupt", path.display()))
    })?;
    for entry in entries {
        writeln!(
            out,
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
