//! Scripts about where replicas are: elections, moves, comparisons; and a cluster that lacks a broker.

use std::time::Duration;

use client::admin::configs::{AlterOperation, ConfigResource};

use super::{super::stage::AssignedTopic, Comparison, Report, Run, Stage, until_told};

/// Longest time of a move.
const MOVE_LIMIT: Duration = Duration::from_secs(60);

/// Makes the recorder's last topics, and stops broker 3.
pub(super) fn degrade(stage: &mut Stage) {
    let topics: [AssignedTopic<'_>; 4] = [
        ("d-rf3", "3:1:2", &[("min.insync.replicas", "3")]),
        ("d-rf1", "3", &[]),
        ("d-unclean", "3:2", &[]),
        ("d-min2", "1:2:3", &[("min.insync.replicas", "2")]),
    ];
    stage.assign_topics(&topics);
    for (topic, ..) in topics {
        stage.wait_for_replicas(topic);
    }
    stage.produce("d-rf3", 1, 0..3);
    stage.stop_broker(3);
    for (topic, ..) in topics {
        stage.wait_without(topic, 3);
    }
}

/// The topics that the recorder moved.
fn make_topics(stage: &Stage) {
    stage.assign_topics(&[("r-topic", "1:2,2:3", &[]), ("r-big", "1:2", &[])]);
    stage.wait_for_replicas("r-topic");
    stage.produce("r-topic", 2, 0..5);
    // More than one fetch brings, which is as much as a throttle lets through at once.
    stage.produce_many("r-big", 30_000);
}

pub(in super::super) fn leader_election() {
    let mut stage = Stage::with_brokers(3);
    make_topics(&stage);
    let mut report = Report::new("kafka-leader-election");
    let mut is_degraded = false;
    for recording in report.cases() {
        if recording.case.starts_with("down-") && !is_degraded {
            degrade(&mut stage);
            is_degraded = true;
        }
        let run = stage.run(&recording);
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}

pub(in super::super) fn reassign_partitions() {
    let stage = Stage::with_brokers(3);
    make_topics(&stage);
    let mut report = Report::new("kafka-reassign-partitions");
    for recording in report.cases() {
        let comparison = Comparison::default().without_traces();
        let comparison = match recording.case.as_str() {
            "execute-move-bad" | "verify-move-bad" => {
                comparison.deviates("json-faults-in-own-words", "Error: key must be a string")
            }
            _ => comparison,
        };
        let mut run = match recording.ended_by {
            Some(_) => until_told(&stage, &recording),
            None => stage.run(&recording),
        };
        if recording.case == "generate" && is_proposal(&run.stdout) {
            run.stdout.clone_from(&recording.stdout);
        }
        report.compare(&recording, &run, &comparison);
        match recording.case.as_str() {
            // The throttle holds this move up.
            "execute-throttled" | "verify-in-progress" | "verify-preserve-throttles" => {}
            "list-in-progress" => {
                lift_throttle(&stage);
                wait_for_moves(&stage);
            }
            _ => wait_for_moves(&stage),
        }
    }
    report.finish();
}

/// Takes the rates of all brokers away. The recorder's move was over by then.
fn lift_throttle(stage: &Stage) {
    let rates = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"];
    let changes = rates.map(|rate| (rate.to_owned(), AlterOperation::Delete)).into();
    stage.with_admin(async |admin| {
        for broker in 1..=3 {
            let resource = ConfigResource::Broker(Some(broker));
            admin.alter_configs(&resource, &changes).await.unwrap();
        }
    });
}

/// Waits until no move is under way, as the recorder did.
fn wait_for_moves(stage: &Stage) {
    stage.with_admin(async |admin| {
        let waiting = async {
            while !admin.list_reassignments(None).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(MOVE_LIMIT, waiting).await.expect("moves end");
    });
}

/// What is proposed begins with any broker: brokers 2 and 3 take turns.
fn is_proposal(stdout: &str) -> bool {
    let line = |partition: i32, replicas: &str| {
        format!(
            r#"{{"topic":"r-topic","partition":{partition},"replicas":[{replicas}],"log_dirs":["any","any"]}}"#
        )
    };
    let text = |first: &str, second: &str| {
        format!(r#"{{"version":1,"partitions":[{},{}]}}"#, line(0, first), line(1, second))
    };
    [("2,3", "3,2"), ("3,2", "2,3")].iter().any(|(first, second)| {
        let proposed = text(first, second);
        *stdout
            == format!(
                "Current partition replica assignment\n{}\n\nProposed partition reassignment configuration\n{proposed}\n",
                text("1,2", "2,3")
            )
    })
}

pub(in super::super) fn replica_verification() {
    let stage = Stage::with_brokers(3);
    make_topics(&stage);
    let mut report = Report::new("kafka-replica-verification");
    for recording in report.cases() {
        let run: Run = match recording.ended_by {
            Some(_) => until_told(&stage, &recording),
            None => stage.run(&recording),
        };
        report.compare(&recording, &run, &Comparison::default());
    }
    report.finish();
}
