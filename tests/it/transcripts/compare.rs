//! What must be equal, and what may change from run to run.

use std::{
    collections::{BTreeSet, HashSet},
    sync::LazyLock,
};

use ::tests::deviations::Deviations;
use regex::Regex;

use super::{
    recording::{Recording, usage},
    stage::Run,
};

/// Text that a pattern finds becomes another.
type Masks = LazyLock<Vec<(Regex, &'static str)>>;

const fn masks(list: fn() -> Vec<(Regex, &'static str)>) -> Masks {
    LazyLock::new(list)
}

fn read(masks: &[(&str, &'static str)]) -> Vec<(Regex, &'static str)> {
    masks.iter().map(|(pattern, with)| (Regex::new(pattern).unwrap(), *with)).collect()
}

/// What is volatile in every output.
static VOLATILE: Masks = masks(|| {
    read(&[
        // The recorder's folder, and ours.
        (r"(/tmp/golden/tr|/[^ ]*/\.tmp[^/ ]*)", "FOLDER"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"TopicId: [\w-]{22}", "TopicId: ID"),
        (r"(CreateTime|LogAppendTime):\d{13}", "$1:TIME"),
        (r"correlation id \d+", "correlation id N"),
        (r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ", "TIME: "),
        (r"groupId=console-consumer-\d+", "groupId=console-consumer-N"),
        // Kafka numbers its admin clients, and has two sorts of them.
        (r"\[\w*AdminClient clientId=[\w-]+\]", "[AdminClient]"),
        (r"\d+ ms has passed since batch creation", "N ms has passed since batch creation"),
        (r"\[B@[0-9a-f]+", "[B@N"),
        // Members; coordinators, of which one broker has no choice; calls that took too long; what was built.
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"127\.0\.0\.1:PORT  \(\d+\)", "127.0.0.1:PORT  (N)"),
        (
            r"deadlineMs=\d+, tries=\d+, nextAllowedTryMs=\d+\) timed out at \d+ after \d+",
            "deadlineMs=N, tries=N, nextAllowedTryMs=N) timed out at N after N",
        ),
        (r"\(Commit:\w+\)", "(Commit:C)"),
    ])
});

/// Where the brokers chose to put topics whose creator named no brokers.
static CHANCE: Masks = masks(|| {
    read(&[(
        r"(Topic: (?:defaults|three)\tPartition: \d+\t)Leader: \d+\tReplicas: [\d,]+\tIsr: [\d,]+",
        "${1}Leader: L\tReplicas: R\tIsr: I",
    )])
});

/// A stack trace on standard output, which is all that follows.
static TRACES: Masks = masks(|| read(&[(r"(?ms)^([a-z]\w*\.)+[A-Z]\w*(Exception|Error)\b.*", "")]));

/// Rates and times: how many digits stand after the point is kept.
static MEASURED: Masks = masks(|| {
    read(&[
        // Kafka's consumer shows when it began and ended.
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", "TIME"),
        (r"(?m)^\d\d:\d\d, \d\d:\d\d,", "TIME, TIME,"),
        (r"(\d+\.\d{4}\b|NaN|Infinity)", "N.4"),
        (r"(?m), \d+, \d+, N.4, N.4$", ", N, N, N.4, N.4"),
        (r"\d+\.(\d{6})\b", "N.6"),
        (r"\d+\.(\d{2})\b", "N.2"),
        (r"\d+\.(\d)\b", "N.1"),
        (r"\d+ ms", "N ms"),
        (r"(?m)^\d+ records sent, (.*) max latency\.$", "N records sent, $1 max latency."),
    ])
});

/// Cells that are numbers, of tables with tabs between them.
static CELLS: Masks = masks(|| read(&[(r"-?\d+ *\t", "N\t")]));

/// When events were, and how fast they came.
static EVENTS: Masks = masks(|| {
    read(&[
        (r#""timestamp":\d+"#, r#""timestamp":TIME"#),
        (r#""avg_throughput":[\d.E]+"#, r#""avg_throughput":RATE"#),
    ])
});

/// How a case is compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    chance: bool,
    traces: bool,
    measured: bool,
    cells: bool,
    events: bool,
    blocks: bool,
    /// Only these lines of standard output.
    lines: Option<&'static str>,
    /// Instead of equal output: what ours must hold, and the deviation that says so.
    deviation: Option<(&'static str, &'static str)>,
}

impl Comparison {
    /// Some topics are where the brokers chose to put them.
    pub(super) fn placed_by_chance(mut self) -> Comparison {
        self.chance = true;
        self
    }

    /// Kafka's script ends with a stack trace on standard output.
    pub(super) fn without_traces(mut self) -> Comparison {
        self.traces = true;
        self
    }

    /// Rates and latencies are those of the machine.
    pub(super) fn measured(mut self) -> Comparison {
        self.measured = true;
        self
    }

    /// Ids, epochs and times in tables are those of the cluster.
    pub(super) fn tables(mut self) -> Comparison {
        self.cells = true;
        self
    }

    /// The output is events with their times.
    pub(super) fn events(mut self) -> Comparison {
        self.events = true;
        self
    }

    /// Topics come in any order.
    pub(super) fn in_any_order(mut self) -> Comparison {
        self.blocks = true;
        self
    }

    /// Only lines that begin so: the recorder's cluster held topics of other scripts.
    pub(super) fn only_lines(mut self, start: &'static str) -> Comparison {
        self.lines = Some(start);
        self
    }

    /// A deliberate difference: the exit code must be Kafka's, and ours must say `text`.
    pub(super) fn deviates(mut self, name: &'static str, text: &'static str) -> Comparison {
        self.deviation = Some((name, text));
        self
    }

    /// What differs, each with what was expected and what came.
    pub(super) fn differences(&self, recording: &Recording, run: &Run) -> Vec<String> {
        let mut differences = Vec::new();
        let mut expect = |what: &str, theirs: String, ours: String| {
            if theirs != ours {
                differences.push(format!(
                    "{} {:?}: {what}\n{}",
                    recording.place,
                    recording.args,
                    changed_lines(&theirs, &ours)
                ));
            }
        };
        if let Some((name, text)) = self.deviation {
            let place = format!("transcripts/{}", recording.place);
            let covered = Deviations::load().accept(name, &place).is_some();
            expect("deviations.toml", format!("{name} covers it"), said(covered, name));
            let holds = format!("{}\n{}", run.stdout, run.stderr).contains(text);
            expect("text", text.to_owned(), if holds { text.to_owned() } else { both(run) });
            return differences;
        }
        expect("exit code", recording.exit.to_string(), run.exit.to_string());
        let (their_out, their_options) = split_help(&recording.stdout);
        let (our_out, our_options) = split_help(&run.stdout);
        let (their_err, mut their_err_options) = split_help(&recording.stderr);
        let (our_err, our_err_options) = split_help(&run.stderr);
        if recording.usage {
            their_err_options = split_help(&usage(&recording.tool)).1;
        }
        expect("standard output", self.masked(&their_out), self.masked(&our_out));
        expect("options on standard output", list(&their_options), list(&our_options));
        expect("messages", self.messages(&their_err), self.messages(&our_err));
        // An unknown option is followed by the usage in every script of ours.
        let place = format!("transcripts/{}", recording.place);
        let has_usage = their_err_options.is_empty()
            && Deviations::load().accept("unknown-option", &place).is_some();
        if !has_usage {
            expect("options", list(&their_err_options), list(&our_err_options));
        }
        differences
    }

    pub(super) fn masked(&self, text: &str) -> String {
        let mut text = sort_sets(&mask(&VOLATILE, text));
        if self.chance {
            text = mask(&CHANCE, &text);
        }
        if self.traces {
            text = mask(&TRACES, &text);
        }
        if self.measured {
            text = mask(&MEASURED, &text);
        }
        if self.cells {
            text = mask(&CELLS, &text);
        }
        if self.events {
            text = mask(&EVENTS, &text);
        }
        if self.blocks {
            text = blocks(&text).into_iter().collect();
        }
        if let Some(start) = self.lines {
            text =
                text.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>().join("\n");
        }
        text
    }

    /// What standard error says, without log headers, stack traces and classes; each message once.
    fn messages(&self, text: &str) -> String {
        let mut seen = HashSet::new();
        let mut messages = Vec::new();
        for line in text.lines() {
            let line = self.masked(&message(line));
            // A stack trace begins with the message that stands above it.
            let is_repeated = messages.last().is_some_and(|last: &String| last.ends_with(&line));
            if !is_repeated && seen.insert(line.clone()) {
                messages.push(line);
            }
        }
        messages.join("\n")
    }
}

/// What differs of two texts, from the first line that does.
fn changed_lines(theirs: &str, ours: &str) -> String {
    const LINES_MAX: usize = 12;
    let equal = theirs.lines().zip(ours.lines()).take_while(|(one, other)| one == other).count();
    let rest = |text: &str| text.lines().skip(equal).take(LINES_MAX).collect::<Vec<_>>().join("\n");
    format!("--- Kafka, from line {equal}\n{}\n--- ours\n{}", rest(theirs), rest(ours))
}

/// Java prints a transaction's partitions in the order of a hash set.
fn sort_sets(text: &str) -> String {
    static SETS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r",partitions=\[([^\]]*)\]").unwrap());
    let sorted = |found: &regex::Captures<'_>| {
        let items: BTreeSet<&str> = found[1].split(',').collect();
        format!(",partitions={items:?}")
    };
    SETS.replace_all(text, sorted).into_owned()
}

fn said(covered: bool, name: &str) -> String {
    if covered { format!("{name} covers it") } else { format!("{name} does not cover it") }
}

fn both(run: &Run) -> String {
    format!("{}\n{}", run.stdout, run.stderr)
}

fn mask(masks: &Masks, text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, with) in masks.iter() {
        text = pattern.replace_all(&text, *with).into_owned();
    }
    text
}

/// The message of a line: nothing of a stack trace but its first line, without the class.
pub(super) fn message(line: &str) -> String {
    static TRACE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(\tat |\t\.\.\. |Caused by: |\tSuppressed: | \([\w.$]+\)$)").unwrap()
    });
    static HEAD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] [A-Z]+ ").unwrap());
    static TAIL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\s*\([\w.$]+\)$").unwrap());
    static CLASS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"^(Exception in thread "main" )?([a-z]\w*\.)+[A-Z][\w$]*(Exception|Error): "#)
            .unwrap()
    });
    if TRACE.is_match(line) {
        return String::new();
    }
    let mut text = line.to_owned();
    if HEAD.is_match(&text) {
        text = HEAD.replace(&text, "").into_owned();
        text = TAIL.replace(&text, "").into_owned();
    }
    // An exception may be wrapped in another, and have its text.
    while CLASS.is_match(&text) {
        text = CLASS.replace(&text, "").into_owned();
    }
    // Some tools put a word before it.
    let wrapped = text.strip_prefix("Error occurred: ").filter(|rest| CLASS.is_match(rest));
    if let Some(rest) = wrapped {
        text = format!("Error occurred: {}", CLASS.replace(rest, ""));
    }
    text.trim_end().to_owned()
}

/// A topic with its partitions each; partitions without their topic each alone.
fn blocks(text: &str) -> BTreeSet<String> {
    let mut blocks: Vec<String> = Vec::new();
    let has_heads = text.lines().any(|line| line.starts_with("Topic: "));
    for line in text.lines() {
        match blocks.last_mut() {
            Some(block) if has_heads && line.starts_with('\t') => {
                block.push_str(line);
                block.push('\n');
            }
            _ => blocks.push(format!("{line}\n")),
        }
    }
    blocks.into_iter().collect()
}

/// What stands before a table of options or a usage, and the options in it, with whether they take a value.
fn split_help(text: &str) -> (String, BTreeSet<String>) {
    static JOPT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^(--[\w.-]+)( <| \[|[^\n]*\n  <)?").unwrap());
    static ARGPARSE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(--[\w.-]+)( [A-Z])?").unwrap());
    let table =
        text.find("\nOption  ").map(|at| at + 1).or(text.starts_with("Option  ").then_some(0));
    if let Some(table) = table {
        let options = JOPT.captures_iter(&text[table..]).map(|found| {
            let takes = if found.get(2).is_some() { " VALUE" } else { "" };
            format!("{}{takes}", &found[1])
        });
        return (text[..table].to_owned(), options.collect());
    }
    if text.starts_with("usage: ") {
        let (head, error) = match text.find("error:") {
            // The text is wrapped, words and all, where a line ends.
            Some(at) => (&text[..at], text[at..].split_whitespace().collect::<String>()),
            None => (text, String::new()),
        };
        let end = head.find("\n\n").unwrap_or(head.len());
        let options = ARGPARSE.captures_iter(&head[..end]).map(|found| {
            let takes = if found.get(2).is_some() { " VALUE" } else { "" };
            format!("{}{takes}", &found[1])
        });
        return (error, options.collect());
    }
    (text.to_owned(), BTreeSet::new())
}

fn list(options: &BTreeSet<String>) -> String {
    options.iter().cloned().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{message, split_help};

    #[test]
    fn lines_are_reduced_to_their_message() {
        assert_eq!(
            message(
                "[2026-11-29 16:04:59,664] ERROR org.apache.kafka.common.errors.XException: no"
            ),
            "no"
        );
        assert_eq!(message("[2026-11-29 16:04:59,664] WARN text (org.apache.X)"), "text");
        assert_eq!(message("Exception in thread \"main\" java.lang.RuntimeException: no"), "no");
        for trace in
            ["\tSuppressed: x", "\tat a.b(C.java:1)", "\t... 6 more", "Caused by: x", " (a.B$)"]
        {
            assert_eq!(message(trace), "");
        }
    }

    #[test]
    fn options_are_taken_from_help() {
        let (before, options) =
            split_help("no\nOption  Description\n--a <String>  x\n--b  y --c\n--d  z\n  <Long>\n");
        assert_eq!(before, "no\n");
        assert_eq!(options.into_iter().collect::<Vec<_>>(), ["--a VALUE", "--b", "--d VALUE"]);
    }
}
