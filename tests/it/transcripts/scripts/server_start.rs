//! `kafka-server-start`: refused settings, refused starts, and good ones ended by a signal.
//!
//! Kafka prints its whole log there, which no other program can equal: compared are the exit code and, of a start that
//! failed, the message of the exception that ended it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    sync::LazyLock,
};

use ::tests::{deviations::Deviations, ports::quiet_port};
use regex::Regex;

use super::super::{
    Report,
    compare::{Comparison, message},
    recording::{Recording, folder},
    stage::{Run, Stage},
};

pub(in super::super) fn run() {
    let stage = Stage::with_broker();
    let mut report = Report::new("kafka-server-start");
    meta_properties(&stage);
    for recording in report.cases() {
        write_properties(&stage, &recording);
        let run = match recording.ended_by {
            Some(_) => until_started(&stage, &recording),
            None => stage.run(&recording),
        };
        report.compared += 1;
        report.differences.extend(differences(&recording, &run));
    }
    report.finish();
}

fn differences(recording: &Recording, run: &Run) -> Vec<String> {
    let ours = format!("{}\n{}", run.stdout, run.stderr);
    let theirs = format!("{}\n{}", recording.stdout, recording.stderr);
    let mut differences = Vec::new();
    if run.exit != recording.exit {
        differences.push(format!(
            "{}: exit code {}, Kafka's is {}\n{ours}",
            recording.place, run.exit, recording.exit
        ));
    }
    let Some(fatal) = fatal_message(&theirs) else { return differences };
    if plain(&ours).contains(&plain(&fatal)) {
        return differences;
    }
    let place = format!("transcripts/{}", recording.place);
    let is_deliberate = deviation(&recording.case).is_some_and(|(name, text)| {
        plain(&ours).contains(text) && Deviations::load().accept(name, &place).is_some()
    });
    if !is_deliberate {
        differences.push(format!("{}: ours lacks\n{fatal}\n--- ours\n{ours}", recording.place));
    }
    differences
}

/// Without what differs from run to run.
fn plain(text: &str) -> String {
    static IDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Expected [\w-]{22}").unwrap());
    static PORT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r", port: \d+").unwrap());
    let text = Comparison::default().masked(text);
    let text = IDS.replace_all(&text, "Expected ID");
    PORT.replace_all(&text, ", port: PORT").into_owned()
}

/// Cases whose text differs on purpose: the deviation that says so, and the text.
fn deviation(case: &str) -> Option<(&'static str, &'static str)> {
    const BIND: &str = "Socket server failed to bind to 127.0.0.1:PORT: Address already in use";
    match case {
        "unknown-argument" => Some(("unknown-option", "nonsense is not a recognized option")),
        "port-in-use" | "port-in-use-bind" => Some(("ports-are-bound-first", BIND)),
        _ => None,
    }
}

/// The text of the exception that ended Kafka, or else of its last error; none after a good start.
fn fatal_message(output: &str) -> Option<String> {
    let lines: Vec<&str> = output.lines().collect();
    let is_error = |line: &&&str| line.contains("] ERROR ");
    let exit = lines.iter().rposition(|line| line.contains("ERROR Exiting Kafka due to"));
    match exit {
        Some(exit) => lines.get(exit + 1).map(|line| message(line)),
        None if output.contains("started (kafka.server.KafkaServer)") => None,
        None => lines.iter().rfind(is_error).map(|line| message(line)),
    }
}

/// The recorder's file, with our addresses; the broker's own port is one that is free.
fn write_properties(stage: &Stage, recording: &Recording) {
    let Some(name) = recording.args.first() else { return };
    let Ok(text) = fs::read_to_string(folder().join("files").join(name)) else { return };
    let mut text = stage.ours(&text);
    for theirs in ["127.0.0.1:31290", "127.0.0.1:31291", "127.0.0.1:31298"] {
        text = text.replace(theirs, &format!("127.0.0.1:{}", quiet_port()));
    }
    fs::write(stage.path().join(name), text).unwrap();
}

/// A good start, ended by a signal as soon as it says that it serves.
fn until_started(stage: &Stage, recording: &Recording) -> Run {
    let mut child = stage.command(&recording.tool, &recording.args).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    while !stdout.contains("started (kafka.server.KafkaServer)") {
        if out.read_line(&mut stdout).unwrap() == 0 {
            break;
        }
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    out.read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let exit = child.wait().unwrap().code().expect("it ends by itself");
    Run { exit, stdout, stderr }
}

/// Log directories that are refused.
fn meta_properties(stage: &Stage) {
    let cluster = format!("cluster.id={}", stage.cluster_id());
    let good = format!("version=0\n{cluster}\nbroker.id=8\n");
    let files = [
        ("m1", format!("version=0\n{cluster}\nbroker.id=9\n")),
        ("m2", "version=0\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nbroker.id=8\n".to_owned()),
        ("m3", format!("version=1\n{cluster}\nnode.id=8\n")),
        ("m4", format!("version=0\n{cluster}\nbroker.id=x\n")),
        ("m5", format!("version=7\n{cluster}\nbroker.id=8\n")),
        ("m6", good.clone()),
        ("m7", good.clone()),
        ("m8", format!("version=0\n{cluster}\nbroker.id=9\n")),
        // Left there by an earlier start.
        ("s8", good),
    ];
    for (folder, text) in files {
        fs::create_dir_all(stage.path().join(folder)).unwrap();
        fs::write(stage.path().join(folder).join("meta.properties"), text).unwrap();
    }
    fs::create_dir_all(stage.path().join("m6/nonsense")).unwrap();
}
