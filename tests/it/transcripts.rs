//! Our scripts against recorded runs of Kafka's, `golden/transcripts`: one test a script.
//!
//! A case is run with the recorded arguments and input, in the recorded order, against brokers in the state that
//! the recorder had made. Standard output and the exit code must be equal but for what changes from run to run; of
//! standard error the messages, of help the options; other differences only as `deviations.toml` says.

mod compare;
mod recording;
mod rules;
mod scripts;
mod settled;
mod stage;
mod transactional;

use self::{
    compare::Comparison,
    recording::{Recording, recordings, scripts as recorded_scripts},
    rules::{BUILT, skipped},
    stage::Run,
};

/// Compares what a run printed, and collects what differs.
struct Report {
    script: &'static str,
    compared: usize,
    skipped: usize,
    differences: Vec<String>,
}

impl Report {
    fn new(script: &'static str) -> Report {
        Report { script, compared: 0, skipped: 0, differences: Vec::new() }
    }

    /// Recordings of the script that are compared here; the others are counted.
    fn cases(&mut self) -> Vec<Recording> {
        let (skip, cases): (Vec<_>, Vec<_>) = recordings(self.script)
            .into_iter()
            .partition(|recording| skipped(self.script, &recording.case).is_some());
        self.skipped += skip.len();
        cases
    }

    fn compare(&mut self, recording: &Recording, run: &Run, comparison: &Comparison) {
        self.compared += 1;
        self.differences.extend(comparison.differences(recording, run));
    }

    /// Prints the counts, and fails where something differed.
    fn finish(self) {
        println!("{}: {} compared, {} skipped", self.script, self.compared, self.skipped);
        assert!(self.compared > 0, "{}: nothing was compared", self.script);
        let count = self.differences.len();
        assert!(count == 0, "{count} differences\n\n{}", self.differences.join("\n\n"));
    }
}

#[test]
fn topics() {
    scripts::topics();
}

#[test]
fn console_producer() {
    scripts::console_producer();
}

#[test]
fn console_consumer() {
    scripts::console_consumer();
}

#[test]
fn consumer_groups() {
    scripts::consumer_groups::run();
}

#[test]
fn consumer_perf_test() {
    scripts::consumer_perf_test();
}

#[test]
fn get_offsets() {
    scripts::get_offsets();
}

#[test]
fn broker_api_versions() {
    scripts::broker_api_versions();
}

#[test]
fn producer_perf_test() {
    scripts::producer_perf_test();
}

#[test]
fn dump_log() {
    scripts::dump_log();
}

#[test]
fn leader_election() {
    scripts::replicas::leader_election();
}

#[test]
fn reassign_partitions() {
    scripts::replicas::reassign_partitions();
}

#[test]
fn replica_verification() {
    scripts::replicas::replica_verification();
}

#[test]
fn server_start() {
    scripts::server_start::run();
}

#[test]
fn transactions() {
    scripts::transactions::run();
}

#[test]
fn verifiable_producer() {
    scripts::verifiable_producer();
}

#[test]
fn verifiable_consumer() {
    scripts::verifiable_consumer();
}

#[test]
fn every_recording_is_compared_or_skipped_for_a_reason() {
    let mut lines = Vec::new();
    let (mut all, mut left_out) = (0, 0);
    for script in recorded_scripts() {
        let cases = recordings(&script);
        let skips: Vec<&str> =
            cases.iter().filter_map(|recording| skipped(&script, &recording.case)).collect();
        let is_built = BUILT.contains(&script.as_str());
        assert_eq!(is_built, skips.len() < cases.len(), "{script}: {} skipped", skips.len());
        all += cases.len();
        left_out += skips.len();
        let mut reasons: Vec<String> = Vec::new();
        for reason in skips.iter().collect::<std::collections::BTreeSet<_>>() {
            let count = skips.iter().filter(|other| other == &reason).count();
            reasons.push(format!("{count} {reason}"));
        }
        lines.push(format!(
            "{script}: {} of {}; {}",
            cases.len() - skips.len(),
            cases.len(),
            reasons.join("; ")
        ));
    }
    println!("{}\n{} of {all} recordings are compared", lines.join("\n"), all - left_out);
    rules::check_that_every_rule_is_needed();
}
