//! The state that each script's cases need, and how their output is compared.

pub(super) mod consumer_groups;
pub(super) mod replicas;
pub(super) mod server_start;
pub(super) mod transactions;

use std::fs;

use super::{
    Report,
    compare::Comparison,
    recording::{Recording, folder, recordings},
    rules::skipped,
    stage::{Run, Stage},
};

pub(super) fn topics() {
    let mut stage = Stage::with_brokers(3);
    let mut report = Report::new("kafka-topics");
    let mut is_degraded = false;
    for recording in report.cases() {
        let case = recording.case.as_str();
        if case.starts_with("down-") && !is_degraded {
            replicas::degrade(&mut stage);
            is_degraded = true;
        }
        if case == "describe-all" {
            stage.wait_for_replicas("assigned");
            stage.wait_for_replicas("three");
        }
        let mut arguments = recording.args.clone();
        if case == "describe-topic-id" {
            let id = stage.topic_ids()["configured"].clone();
            *arguments.last_mut().unwrap() = id;
        }
        let comparison = Comparison::default().placed_by_chance().in_any_order();
        let comparison = match case {
            "describe-unknown" | "alter-unknown" | "alter-internal" | "delete-unknown" => {
                comparison.deviates("topic-name-in-optional", "' does not exist as expected")
            }
            "create-assignment-unknown-broker" | "down-create-on-dead-broker" => comparison
                .deviates(
                    "assignment-to-an-unknown-broker",
                    "Error while executing topic command : ",
                ),
            _ => comparison,
        };
        let run = stage.run_with(&recording, &arguments);
        report.compare(&recording, &run, &comparison);
    }
    report.finish();
}

/// Topics of the console scripts.
const CONSOLE_TOPICS: &[(&str, i32)] =
    &[("plain", 1), ("keyed", 1), ("headered", 1), ("compressed", 1), ("nulls", 1), ("limits", 1)];

pub(super) fn console_producer() {
    let mut stage = Stage::with_brokers(3);
    stage.create_topics(CONSOLE_TOPICS);
    let mut report = Report::new("kafka-console-producer");
    for recording in report.cases() {
        if recording.case.starts_with("down-") {
            replicas::degrade(&mut stage);
        }
        let run = stage.run(&recording);
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}

pub(super) fn console_consumer() {
    let stage = Stage::with_broker();
    stage.create_topics(CONSOLE_TOPICS);
    let mut report = Report::new("kafka-console-consumer");
    let (interrupted, cases): (Vec<_>, Vec<_>) =
        report.cases().into_iter().partition(|recording| recording.case == "sigint");
    // This one was recorded while the topic had nothing.
    for recording in &interrupted {
        let run = until_told(&stage, recording);
        report.compare(recording, &run, &Comparison::default());
    }
    let writes = |recording: &Recording| {
        let case = recording.case.as_str();
        skipped("kafka-console-producer", case).is_none()
            && recording.stdin.is_some()
            && !recording.args.iter().any(|argument| argument.ends_with(":31299"))
            && !matches!(case, "unknown-topic" | "bad-topic-name")
    };
    for recording in recordings("kafka-console-producer").iter().filter(|case| writes(case)) {
        stage.run(recording);
    }
    for recording in cases {
        let mut run = match recording.ended_by {
            Some(_) => until_told(&stage, &recording),
            None => stage.run(&recording),
        };
        if recording.case == "include" && is_some_of_two_topics(&run.stdout) {
            run.stdout.clone_from(&recording.stdout);
        }
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}

/// Two topics have no order between them, and eight of their nine records are asked for: whichever come first.
fn is_some_of_two_topics(stdout: &str) -> bool {
    let mut plain = vec!["hello", "world", "", "last without newline", "x"];
    let mut nulls = vec!["null", "v", "null", "v4"];
    let count = stdout.lines().count();
    for line in stdout.lines() {
        // Each topic keeps its own order.
        let topic = [&mut plain, &mut nulls].into_iter().find(|rest| rest.first() == Some(&line));
        match topic {
            Some(rest) => drop(rest.remove(0)),
            None => return false,
        }
    }
    count == 8
}

/// Runs a consumer that the recorder ended by a signal, which comes when it has printed as much as Kafka's had.
fn until_told(stage: &Stage, recording: &Recording) -> Run {
    use std::{
        io::{BufRead, BufReader, Read},
        os::unix::process::ExitStatusExt,
    };

    let ended_by = recording.ended_by.as_deref().unwrap_or_default();
    let signal = if ended_by.starts_with("SIGINT") {
        rustix::process::Signal::INT
    } else {
        rustix::process::Signal::TERM
    };
    let mut arguments = recording.args.clone();
    let is_goodbye =
        |line: &str| line.contains("partitions_revoked") || line.contains("shutdown_complete");
    let expected = recording.stdout.lines().filter(|line| !is_goodbye(line)).count();
    if expected == 0 {
        // A warning tells that it runs: one of a topic that is not there.
        arguments.iter_mut().filter(|word| *word == "plain").for_each(|word| {
            *word = "nothing".to_owned();
        });
    }
    let mut child = stage.command(&recording.tool, &arguments).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    for _ in 0..expected {
        out.read_line(&mut stdout).unwrap();
    }
    if expected == 0 {
        err.read_line(&mut stderr).unwrap();
        // The warning is not in the recording.
        stderr.clear();
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, signal).unwrap();
    out.read_to_string(&mut stdout).unwrap();
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    let kept = rest.lines().filter(|line| expected > 0 || !line.contains(" WARN "));
    stderr.extend(kept.map(|line| format!("{line}\n")));
    let status = child.wait().unwrap();
    // As a shell has it of one that the signal ended.
    let exit = status.code().unwrap_or_else(|| 128 + status.signal().expect("or by a signal"));
    Run { exit, stdout, stderr }
}

pub(super) fn get_offsets() {
    let mut stage = Stage::with_brokers(3);
    stage.create_topics(&[("o-topic", 3), ("o-empty", 1), ("o-del", 2)]);
    // The recorder's times.
    let first = 1_700_000_000_000;
    stage.produce("o-topic", 3, first..first + 10);
    stage.produce("o-del", 2, first..first + 5);
    assert_eq!(
        offsets_by_the_old_name(&stage),
        "o-topic:0:10\no-topic:1:10\no-topic:2:10\n",
        "each broker of a list, and the class of before 3.7"
    );
    let mut report = Report::new("kafka-get-offsets");
    for recording in report.cases() {
        if recording.case.starts_with("down-") {
            replicas::degrade(&mut stage);
        }
        let comparison = match recording.case.as_str() {
            "topic-partitions-open" => Comparison::default().only_lines("o-"),
            _ => Comparison::default(),
        };
        let run = stage.run(&recording);
        report.compare(&recording, &run, &comparison);
    }
    report.finish();
}

fn offsets_by_the_old_name(stage: &Stage) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bin/kafka-run-class.sh");
    let list = stage.ours("127.0.0.1:31201,127.0.0.1:31202,127.0.0.1:31203");
    let output = std::process::Command::new(script)
        .args(["kafka.tools.GetOffsetShell", "--broker-list", &list, "--topic", "o-topic"])
        .env("ODRADEK_BINARY", env!("CARGO_BIN_EXE_odradek-commands"))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn broker_api_versions() {
    let stage = Stage::with_broker();
    let mut report = Report::new("kafka-broker-api-versions");
    for mut recording in report.cases() {
        let mut run = stage.run(&recording);
        if recording.case == "run" {
            // Each of the recorder's brokers printed the same; ours is one.
            let end = recording.stdout.find("\n)\n").unwrap() + 3;
            recording.stdout.truncate(end);
            recording.stdout = recording.stdout.replace("(id: 3 rack", "(id: 1 rack");
            run.stdout = with_apis_to_come(&recording, &run.stdout);
        }
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}

/// Puts Kafka's line in the place of ours for an API that is not built yet, as `deviations.toml` says.
fn with_apis_to_come(recording: &Recording, ours: &str) -> String {
    let place = format!("transcripts/{}", recording.place);
    let deviations = ::tests::deviations::Deviations::load();
    let lines = ours.lines().map(|line| {
        let Some(name) = line.strip_suffix(": UNSUPPORTED,") else { return line.to_owned() };
        let theirs = recording
            .stdout
            .lines()
            .find(|theirs| theirs.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')));
        match theirs.filter(|_| deviations.accept("apis-not-built", &place).is_some()) {
            Some(theirs) => theirs.to_owned(),
            None => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

pub(super) fn producer_perf_test() {
    let stage = Stage::with_broker();
    stage.create_topics(&[("perf", 1)]);
    let mut report = Report::new("kafka-producer-perf-test");
    for recording in report.cases() {
        let comparison = Comparison::default().measured();
        let comparison = match recording.case.as_str() {
            "print-metrics" => comparison.deviates("no-java-client-metrics", "\nMetric Name"),
            _ => comparison,
        };
        let run = stage.run(&recording);
        report.compare(&recording, &run, &comparison);
    }
    report.finish();
}

pub(super) fn consumer_perf_test() {
    let stage = Stage::with_broker();
    stage.create_topics(&[("perf", 1), ("e2e", 1)]);
    stage.produce_many("perf", 2000);
    let mut report = Report::new("kafka-consumer-perf-test");
    for recording in report.cases() {
        let comparison = Comparison::default().measured();
        let comparison = match recording.case.as_str() {
            "print-metrics" => comparison.deviates("no-java-client-metrics", "\nMetric Name"),
            // Lines of progress come by time.
            "detailed" => comparison.only_lines("time, "),
            _ => comparison,
        };
        let run = stage.run(&recording);
        report.compare(&recording, &run, &comparison);
    }
    report.finish();
}

pub(super) fn verifiable_producer() {
    let stage = Stage::with_broker();
    stage.create_topics(&[("verif", 1)]);
    let mut report = Report::new("kafka-verifiable-producer");
    for recording in report.cases() {
        let run = stage.run(&recording);
        report.compare(&recording, &run, &Comparison::default().events());
    }
    report.finish();
}

pub(super) fn verifiable_consumer() {
    let stage = Stage::with_broker();
    stage.create_topics(&[("verif", 1)]);
    // What the recorder's verifiable producer had left: three numbers, four with a prefix and keys, six more.
    let tails = [
        "--max-messages 3",
        "--max-messages 4 --value-prefix 7 --repeating-keys 2",
        "--max-messages 6",
    ];
    for tail in tails {
        let line = format!("--bootstrap-server 127.0.0.1:31201 --topic verif {tail}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert!(stage.command("kafka-verifiable-producer", &words).status().unwrap().success());
    }
    let mut report = Report::new("kafka-verifiable-consumer");
    for recording in report.cases() {
        let run = match recording.ended_by {
            Some(_) => until_told(&stage, &recording),
            None => stage.run(&recording),
        };
        report.compare(&recording, &run, &Comparison::default().events());
    }
    report.finish();
}

pub(super) fn dump_log() {
    let stage = Stage::empty();
    let logs = folder().join("../logs/clean/data");
    std::os::unix::fs::symlink(logs.canonicalize().unwrap(), stage.path().join("data")).unwrap();
    let mut report = Report::new("kafka-dump-log");
    for recording in report.cases() {
        let comparison = match recording.case.as_str() {
            "checkpoint-file" => {
                Comparison::default().deviates("dump-of-an-unknown-file", "Ignoring unknown file")
            }
            _ => Comparison::default(),
        };
        break_files(&stage, &recording.case);
        let run = stage.run(&recording);
        report.compare(&recording, &run, &comparison);
    }
    report.finish();
}

/// The altered copies of the first segment of `seg-0` that the last cases look at.
fn break_files(stage: &Stage, case: &str) {
    let read = |kind: &str| {
        let name = format!("data/seg-0/00000000000000000000.{kind}");
        fs::read(stage.path().join(name)).unwrap()
    };
    let write = |kind: &str, bytes: &[u8]| {
        fs::create_dir_all(stage.path().join("broken/x-0")).unwrap();
        let name = format!("broken/x-0/00000000000000000000.{kind}");
        fs::write(stage.path().join(name), bytes).unwrap();
    };
    match case {
        "corrupt-record" => {
            let mut log = read("log");
            log[700] ^= 0xff;
            write("log", &log);
        }
        "truncated" => write("log", &read("log")[..1000]),
        "index-mismatch" => {
            write("log", &read("log"));
            let mut index = read("index");
            index[3] ^= 1;
            write("index", &index);
        }
        "timeindex-mismatch" => {
            let mut index = read("timeindex");
            index[11] ^= 1;
            index[6] ^= 1;
            write("timeindex", &index);
        }
        _ => {}
    }
}
