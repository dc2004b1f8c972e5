//! `kafka-consumer-groups`, with the groups that the recorder had: two without members, two with one each.

use std::process::{Child, Stdio};

use super::super::{Report, compare::Comparison, stage::Stage};

/// The recorder's times begin here.
const FIRST_TIME: i64 = 1_700_000_000_000;

/// Members that read until they are ended; whatever becomes of the test, they end with it.
struct Members {
    active: Child,
    fixed: Child,
}

impl Members {
    /// Starts them, and waits until they have committed what there is.
    fn join(stage: &Stage) -> Members {
        let start = |line: &str| {
            // Commits come soon, since the test waits for them.
            let line =
                format!("{line} --from-beginning --consumer-property auto.commit.interval.ms=50");
            let mut command = consumer(stage, &line);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let members = Members {
            active: start(
                "--topic g-topic --group g-active --consumer-property client.id=active-client",
            ),
            fixed: start(
                "--topic g-other --group g-static --consumer-property client.id=static-client --consumer-property group.instance.id=instance-1",
            ),
        };
        stage.wait_for_offsets(
            "g-active",
            &[("g-topic", 0, 12), ("g-topic", 1, 12), ("g-topic", 2, 12)],
        );
        stage.wait_for_offsets("g-static", &[("g-other", 0, 4)]);
        members
    }

    /// One says goodbye, the other is killed.
    fn end(&mut self) {
        self.fixed.kill().unwrap();
        self.fixed.wait().unwrap();
        let active = rustix::process::Pid::from_child(&self.active);
        rustix::process::kill_process(active, rustix::process::Signal::TERM).unwrap();
        self.active.wait().unwrap();
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in [&mut self.active, &mut self.fixed] {
            // They may have ended.
            let _ = child.kill();
            let _ = child.wait(); // As above.
        }
    }
}

/// A console consumer of the broker.
fn consumer(stage: &Stage, line: &str) -> std::process::Command {
    let line = format!("--bootstrap-server 127.0.0.1:31201 {line}");
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    stage.command("kafka-console-consumer", &arguments)
}

/// Reads so many records, commits, and leaves.
fn read(stage: &Stage, line: &str) {
    let output = consumer(stage, line).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {text}");
}

pub(in super::super) fn run() {
    let stage = Stage::with_broker();
    stage.create_topics(&[("g-topic", 3), ("g-other", 1)]);
    stage.produce("g-topic", 3, FIRST_TIME..FIRST_TIME + 10);
    stage.produce("g-other", 1, FIRST_TIME..FIRST_TIME + 4);
    read(&stage, "--topic g-topic --group g-empty --from-beginning --max-messages 30");
    read(&stage, "--include g-topic|g-other --group g-two --from-beginning --max-messages 34");
    stage.produce("g-topic", 3, FIRST_TIME..FIRST_TIME + 2);
    let mut members = Members::join(&stage);
    let mut report = Report::new("kafka-consumer-groups");
    for recording in report.cases() {
        if recording.case == "describe-static-dead-member" {
            members.end();
        }
        let run = stage.run(&recording);
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}
