//! Every command of `bin/`.
//!
//! The first word is the Java class that the script names, as `bin/kafka-run-class.sh` passes it.

mod argparse;
mod broker_api_versions;
mod clients;
mod console;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod consumer_performance;
mod coordinator_records;
mod date_format;
mod dump_log;
mod formatter;
mod get_offsets;
mod java_order;
mod json;
mod kafka_server;
mod leader_election;
mod line_reader;
mod logging;
mod options;
mod producer_performance;
mod reassign_partitions;
mod replica_verification;
mod signals;
mod topics;
mod transactions;
mod verifiable;
mod verifiable_consumer;
mod verifiable_producer;
mod zookeeper_server;
mod zookeeper_shell;

use console::{Halt, complain};

/// The version of Kafka whose place the tools take.
pub const VERSION: &str = "3.9.1";

/// A command: takes its words, ends with an exit code.
type Command = fn(&[String]) -> Result<(), Halt>;

/// Runs the command of that class. The result is the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Some((class, words)) = arguments.split_first() else {
        complain("USAGE: odradek CLASS [argument...], as bin/kafka-run-class.sh runs it");
        return 1;
    };
    let Some(command) = command(class) else {
        complain(&format!(
            "Error: Could not find or load main class {class}\nCaused by: java.lang.ClassNotFoundException: {class}"
        ));
        return 1;
    };
    match command(words) {
        Ok(()) => 0,
        Err(Halt(code)) => code,
    }
}

/// Classes of Kafka 3.9, and the names that some had before.
fn command(class: &str) -> Option<Command> {
    Some(match class {
        "org.apache.kafka.tools.TopicCommand" | "kafka.admin.TopicCommand" => topics::run,
        "org.apache.kafka.tools.GetOffsetShell" | "kafka.tools.GetOffsetShell" => get_offsets::run,
        "org.apache.kafka.tools.consumer.ConsoleConsumer" | "kafka.tools.ConsoleConsumer" => {
            console_consumer::run
        }
        "kafka.tools.ConsoleProducer" | "org.apache.kafka.tools.ConsoleProducer" => {
            console_producer::run
        }
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        | "kafka.admin.ConsumerGroupCommand" => consumer_groups::run,
        "org.apache.kafka.tools.LeaderElectionCommand" | "kafka.admin.LeaderElectionCommand" => {
            leader_election::run
        }
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        | "kafka.admin.ReassignPartitionsCommand" => reassign_partitions::run,
        "org.apache.kafka.tools.ReplicaVerificationTool"
        | "kafka.tools.ReplicaVerificationTool" => replica_verification::run,
        "org.apache.kafka.tools.TransactionsCommand" => transactions::run,
        "org.apache.kafka.tools.ConsumerPerformance" | "kafka.tools.ConsumerPerformance" => {
            consumer_performance::run
        }
        "kafka.Kafka" => kafka_server::run,
        "kafka.tools.DumpLogSegments" => dump_log::run,
        "org.apache.kafka.tools.ProducerPerformance" => producer_performance::run,
        "org.apache.kafka.tools.VerifiableProducer" => verifiable_producer::run,
        "org.apache.kafka.tools.VerifiableConsumer" => verifiable_consumer::run,
        "kafka.admin.BrokerApiVersionsCommand" => broker_api_versions::run,
        "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka" => zookeeper_shell::run,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain" => zookeeper_server::run,
        _ => return None,
    })
}
