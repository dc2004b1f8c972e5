//! `zookeeper-server-start.sh`: the standalone ZooKeeper in the foreground. The script to stop it sends SIGTERM.

use std::path::Path;

use security::jaas::JaasError;
use security::java_options::JavaOptions;
use server::logging::{Logging, Options};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use zookeeper::config::Config;

use zookeeper::server::Server;

use crate::console::{Halt, chain, complain, halt};

/// Operators look for its lines under the name of Apache's class.
const LOGGER: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// What Apache ends with when its configuration is wrong.
const INVALID_INVOCATION: u8 = 2;

/// Runs the server that the file describes until it is told to stop.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    let [file] = words else {
        complain("USAGE: zookeeper-server-start.sh [-daemon] zookeeper.properties");
        return Err(Halt(INVALID_INVOCATION));
    };
    let variable = |name: &str| std::env::var(name).ok();
    let logging =
        Logging::install(&Options::from_environment(Path::new("."), "log4j.properties", &variable));
    for note in &logging.notes {
        warn!(target: LOGGER, "{note}");
    }
    let result = serve(file);
    logging.flush();
    result
}

fn serve(file: &str) -> Result<(), Halt> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) => return invalid(&format!("{file} cannot be read: {error}")),
    };
    let java = JavaOptions::new(std::env::var("KAFKA_OPTS").unwrap_or_default());
    let config = match Config::parse_with(&text, &java) {
        Ok(config) => config,
        Err(error) => return invalid(&format!("{file} is not valid:\n{error}")),
    };
    let config = match with_users(config, &java) {
        Ok(config) => config,
        Err(text) => return invalid(&text),
    };
    for warning in &config.warnings {
        warn!(target: LOGGER, "{file}: {warning}");
    }
    info!(target: LOGGER, data_dir = %config.data_dir.display(),
        "starting a standalone ZooKeeper: one node, no ensemble; for more than one box run Apache ZooKeeper"
    );
    // Made before the server, so that a signal meanwhile is not lost.
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return halt(&format!("the system gives no runtime: {error}")),
    };
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
                (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
                (Err(error), _) | (_, Err(error)) => {
                    return halt(&format!("signals cannot be waited for: {error}"));
                }
            };
        let server = match Server::start(config) {
            Ok(server) => server,
            Err(error) => {
                error!(target: LOGGER, "{}", chain(&error));
                return halt(&format!("the server does not start: {}", chain(&error)));
            }
        };
        tokio::select! {
            _ = terminate.recv() => info!(target: LOGGER, "stopping, told by SIGTERM"),
            _ = interrupt.recv() => info!(target: LOGGER, "stopping, told by SIGINT"),
            () = server.stopped() => {}
        }
        let failed = server.has_failed();
        server.stop();
        if failed {
            return halt("the server has stopped because its log cannot be written");
        }
        info!(target: LOGGER, "stopped");
        Ok(())
    })
}

/// Adds the users of the JAAS file that `KAFKA_OPTS` names, as Kafka's scripts hand it to Java.
fn with_users(mut config: Config, java: &JavaOptions) -> Result<Config, String> {
    let Some(file) = java.property("java.security.auth.login.config") else {
        return Ok(config);
    };
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
    let section = java.property("zookeeper.sasl.serverconfig").unwrap_or("Server");
    match security::jaas::users(&text, section) {
        Ok(users) => config.sasl_users = users,
        // The file may be the broker's alone.
        Err(JaasError::NoSection(_)) if !config.sasl_required => {}
        Err(error) => return Err(format!("{file}: {error}")),
    }
    Ok(config)
}

fn invalid(text: &str) -> Result<(), Halt> {
    error!(target: LOGGER, "{text}");
    complain(text);
    Err(Halt(INVALID_INVOCATION))
}
