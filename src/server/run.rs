//! The process of a broker: from its properties to its exit code. Source: `kafka.Kafka`, `KafkaServer.startup`.

use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

use common::{
    clock,
    config::broker::{BrokerConfig, ConfigErrors},
    properties::{self, Properties},
};
use security::java_options::JavaOptions;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};
use tracing::{error, info, warn};

use crate::{
    logging::{Logging, Options},
    panics,
    start::{Running, StartError},
};

/// Exit code of a broker that could not start, or that a fault ended.
const FAILED: u8 = 1;
/// A process that ends by a signal exits with this and the signal's number, as a shell shows it.
const BY_SIGNAL: u8 = 128;
/// What a fatal end may take before the process ends anyway.
const FATAL_END_AT_MOST: Duration = Duration::from_secs(5);

/// Why the properties do not make a broker.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFault {
    /// The file cannot be read.
    #[error("{path} ({reason})")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        reason: io::Error,
    },
    /// Values that are wrong, all of them.
    #[error(transparent)]
    Values(#[from] ConfigErrors),
}

/// Reads a properties file and puts the overrides over it.
pub fn read_config(
    file: &Path,
    overrides: &BTreeMap<String, String>,
) -> Result<BrokerConfig, ConfigFault> {
    let bytes = std::fs::read(file)
        .map_err(|reason| ConfigFault::Unreadable { path: file.display().to_string(), reason })?;
    let mut read: Properties = properties::parse(&bytes);
    read.extend(overrides.iter().map(|(key, value)| (key.clone(), value.clone())));
    Ok(BrokerConfig::parse(&read)?.checked_for_topics()?)
}

/// Runs a broker until a signal or a fault ends it; gives the exit code. Sets up logging for the whole process.
pub fn run(file: &Path, overrides: &BTreeMap<String, String>, options: &Options) -> u8 {
    let logging = Arc::new(Logging::install(options));
    panics::install(logging.clone());
    for note in &logging.notes {
        warn!(target: "kafka.Kafka", "{note}");
    }
    let java = JavaOptions::new(std::env::var("KAFKA_OPTS").unwrap_or_default());
    let code = match read_config(file, overrides) {
        Ok(config) => run_with(config, &java),
        Err(fault) => {
            for line in fault.to_string().lines() {
                error!(target: "kafka.Kafka$", "Exiting Kafka due to fatal exception: {line}");
            }
            FAILED
        }
    };
    logging.flush();
    code
}

fn run_with(config: BrokerConfig, java: &JavaOptions) -> u8 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(problem) => {
            error!(target: "kafka.Kafka$", %problem, "could not start the threads of the broker");
            return FAILED;
        }
    };
    let code = runtime.block_on(serve(config, java));
    runtime.shutdown_timeout(FATAL_END_AT_MOST);
    code
}

/// A runtime whose timers begin with our ticks. It keeps them in slots that are as long: a deadline at a tick wakes it once,
/// another one twice, at the slot's beginning and at its time. It counts whole milliseconds, and does not say since when: one
/// whose making took longer than that, since the machine did something else, is made anew.
fn runtime() -> io::Result<Runtime> {
    const TRIES: u32 = 10;
    let mut tries = 0;
    loop {
        let begin = clock::now();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        tries += 1;
        if tries == TRIES || clock::now() - begin < Duration::from_millis(1) {
            clock::begin_ticks(begin);
            return Ok(runtime);
        }
    }
}

async fn serve(config: BrokerConfig, java: &JavaOptions) -> u8 {
    info!(target: "kafka.server.KafkaServer", "starting");
    info!(target: "kafka.server.KafkaServer", "Odradek {} in the place of Kafka 3.9 in ZooKeeper mode", env!("CARGO_PKG_VERSION"));
    let (mut terminate, mut interrupt) =
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            (Err(problem), _) | (_, Err(problem)) => {
                error!(target: "kafka.Kafka$", %problem, "could not listen for signals");
                return FAILED;
            }
        };
    for warning in config.warnings() {
        warn!(target: "kafka.server.KafkaConfig", "{warning}");
    }
    let started = tokio::select! {
        started = Running::start(Arc::new(config), java) => started,
        _ = terminate.recv() => return BY_SIGNAL + 15,
        _ = interrupt.recv() => return BY_SIGNAL + 2,
    };
    let running = match started {
        Ok(running) => running,
        Err(problem) => {
            fatal(&problem);
            return FAILED;
        }
    };
    let code = tokio::select! {
        _ = terminate.recv() => BY_SIGNAL + 15,
        _ = interrupt.recv() => BY_SIGNAL + 2,
        reason = running.fault() => {
            error!(target: "kafka.server.KafkaServer", "Halting: {reason}");
            FAILED
        }
    };
    info!(target: "kafka.server.KafkaServer", "shutting down");
    running.stop().await;
    info!(target: "kafka.server.KafkaServer", "shut down completed");
    code
}

fn fatal(problem: &StartError) {
    let mut text = problem.to_string();
    let mut source = std::error::Error::source(problem);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    error!(target: "kafka.server.KafkaServer", "Fatal error during KafkaServer startup. Prepare to shutdown: {text}");
}
