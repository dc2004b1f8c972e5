//! `kafka-transactions`, with transactional ids in each state that the recorder had.

use client::admin::{Admin, transactions::ProducerState};
use common::topic::TopicPartition;

use super::super::{
    Report,
    compare::Comparison,
    recording::Recording,
    stage::Stage,
    transactional::{End, Transactional},
};

/// The recorder's times begin here.
const FIRST_TIME: i64 = 1_700_000_000_000;

/// Leaves one transaction open; the others end, or never begin.
async fn transact(admin: &Admin) {
    let mut committed = Transactional::open(admin, "tx-commit").await;
    committed.write("txn", 0, FIRST_TIME).await;
    committed.write("txn", 1, FIRST_TIME + 1).await;
    committed.commit_offset("txn-group", "input", 5).await;
    committed.end(End::Commit).await;
    let mut aborted = Transactional::open(admin, "tx-abort").await;
    aborted.write("txn", 0, FIRST_TIME + 100).await;
    aborted.end(End::Abort).await;
    Transactional::open(admin, "tx-empty").await;
    let mut left_open = Transactional::open(admin, "tx-bumped").await;
    left_open.write("txn", 1, FIRST_TIME + 3000).await;
    let mut bumped = Transactional::open(admin, "tx-bumped").await;
    bumped.write("txn", 1, FIRST_TIME + 3001).await;
    bumped.end(End::Commit).await;
    let mut open = Transactional::open(admin, "tx-open").await;
    open.write("txn", 0, FIRST_TIME + 4000).await;
    open.write("txn-open", 0, FIRST_TIME + 4001).await;
    open.commit_offset("txn-group", "input", 9).await;
    committed.write("txn", 0, FIRST_TIME + 5000).await;
    committed.end(End::Commit).await;
}

/// The producer whose transaction is open in the partition.
async fn open_producer(admin: &Admin, topic: &str) -> ProducerState {
    let partition = TopicPartition::new(topic, 0);
    let mut described = admin.describe_producers(&[partition.clone()].into(), None).await.unwrap();
    let producers = described.remove(&partition).unwrap().unwrap();
    producers.into_iter().find(|producer| producer.transaction_start.is_some()).unwrap()
}

/// Replaces what follows an option.
fn set(arguments: &mut [String], option: &str, value: &str) {
    let at = arguments.iter().position(|argument| argument == option);
    if let Some(at) = at {
        arguments[at + 1] = value.to_owned();
    }
}

pub(in super::super) fn run() {
    let mut stage = Stage::with_broker();
    stage.create_topics(&[("idem", 2), ("txn", 2), ("txn-open", 1), ("input", 4), ("hang", 1)]);
    let mut report = Report::new("kafka-transactions");
    let mut start = String::new();
    for mut recording in report.cases() {
        let mut arguments = recording.args.clone();
        match recording.case.as_str() {
            "abort-start-offset" => {
                let producer = stage.with_admin(async |admin| open_producer(admin, "txn").await);
                start = producer.transaction_start.unwrap_or_default().to_string();
            }
            "abort-producer" => {
                let producer =
                    stage.with_admin(async |admin| open_producer(admin, "txn-open").await);
                set(&mut arguments, "--producer-id", &producer.producer_id.to_string());
            }
            "describe-producers-wrong-broker" => stage.add_broker(),
            // It waits as long as a call may take.
            "describe-producers-unknown" => {
                arguments
                    .splice(0..0, ["--command-config".to_owned(), "short.properties".to_owned()]);
            }
            _ => {}
        }
        if recording.case.starts_with("abort-start-offset") {
            with_start(&mut recording, &mut arguments, &start);
        }
        let run = stage.run_with(&recording, &arguments);
        report.compare(&recording, &run, &Comparison::default().in_any_order().tables());
        if recording.case == "list-none" {
            stage.with_admin(async |admin| transact(admin).await);
        }
    }
    report.finish();
}

/// The open transaction begins elsewhere in our log.
fn with_start(recording: &mut Recording, arguments: &mut [String], start: &str) {
    recording.stderr = recording.stderr.replace("132", start);
    set(arguments, "--start-offset", start);
}
