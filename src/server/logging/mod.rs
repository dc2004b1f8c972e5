//! What the broker logs, and where: Kafka's `log4j.properties` over `tracing`.
//!
//! `log4j` reads the file, `names` maps tracing's targets to Kafka's loggers, `line` writes a line as Kafka does,
//! `sink` takes lines to a file or a stream on a thread of its own, `rotating_file` keeps files bounded. A sink that
//! cannot keep up or whose disk is full loses lines, counts them and says so; it never holds up the broker.

mod line;
mod log4j;
mod names;
mod rotating_file;
mod sink;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing::metadata::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use self::line::Clock;
use self::log4j::{Appender, Destination, Log4j};
use self::rotating_file::RotatingFile;
use self::sink::{Console, Sink};

/// Which file configures logging, and where `${kafka.logs.dir}` is.
#[derive(Clone, Debug)]
pub struct Options {
    /// `log4j.properties`; where it cannot be read, Kafka's shipped one holds.
    pub file: PathBuf,
    /// Value of `${kafka.logs.dir}`.
    pub logs_dir: PathBuf,
}

impl Options {
    /// What Kafka's scripts hand over: the file of `-Dlog4j.configuration=file:...` in `KAFKA_LOG4J_OPTS`, else
    /// `config/<name>` under `base`; the folder of `LOG_DIR`, else `logs` under `base`.
    pub fn from_environment(
        base: &Path,
        name: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Options {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let configured = set("KAFKA_LOG4J_OPTS").and_then(|options| {
            let option = options.split_whitespace().find_map(|option| {
                option.strip_prefix("-Dlog4j.configuration=").map(str::to_owned)
            })?;
            Some(PathBuf::from(option.strip_prefix("file:").unwrap_or(&option)))
        });
        Options {
            file: configured.unwrap_or_else(|| base.join("config").join(name)),
            logs_dir: set("LOG_DIR").map_or_else(|| base.join("logs"), PathBuf::from),
        }
    }
}

/// The running sinks. Dropping it flushes them.
#[derive(Debug)]
pub struct Logging {
    sinks: Vec<Arc<Sink>>,
    /// What could not be done as configured, a line each; for the caller to log.
    pub notes: Vec<String>,
}

/// How long an exit waits for a slow disk to take the last lines.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

impl Logging {
    /// Reads the file, opens the sinks, and makes this process's `tracing` events go there. What goes wrong is
    /// noted, and the rest works.
    pub fn install(options: &Options) -> Logging {
        let (mut logging, layer) = Logging::start(options);
        let subscriber = tracing_subscriber::registry().with(layer);
        if tracing::subscriber::set_global_default(subscriber).is_err() {
            logging.notes.push("logging was set up already; the first set-up holds".to_owned());
        }
        logging
    }

    fn start(options: &Options) -> (Logging, KafkaLayer) {
        let mut notes = Vec::new();
        let text = std::fs::read(&options.file).unwrap_or_else(|error| {
            notes.push(format!("cannot read {}: {error}", options.file.display()));
            SHIPPED.to_vec()
        });
        let log4j = Log4j::parse(&common::properties::parse(&text), &options.logs_dir);
        if !log4j.ignored.is_empty() {
            notes.push(format!(
                "{} lines of {} are not followed: {}",
                log4j.ignored.len(),
                options.file.display(),
                log4j.ignored.join(", ")
            ));
        }
        let mut sinks = BTreeMap::new();
        for (name, appender) in log4j.used_appenders() {
            match open(appender) {
                Ok(sink) => drop(sinks.insert(name.clone(), Arc::new(sink))),
                Err(error) => notes.push(format!("appender {name} does not log: {error}")),
            }
        }
        let logging = Logging { sinks: sinks.values().cloned().collect(), notes };
        (logging, KafkaLayer { log4j, sinks, clock: Clock::local() })
    }

    /// Waits until all that was logged so far is handed to the system, for a second at most.
    pub fn flush(&self) {
        for sink in &self.sinks {
            sink.flush(FLUSH_WAIT);
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What holds where there is no file.
const SHIPPED: &[u8] = include_bytes!("../../../config/log4j.properties");

fn open(appender: &Appender) -> std::io::Result<Sink> {
    match &appender.destination {
        Destination::Stdout => Sink::spawn("log-stdout", Console::Stdout),
        Destination::Stderr => Sink::spawn("log-stderr", Console::Stderr),
        Destination::File { path, size_max, backups_max } => {
            let file = RotatingFile::open(path, *size_max, *backups_max)?;
            Sink::spawn("log-file", file)
        }
    }
}

/// Sends events to the appenders of Kafka's loggers.
#[derive(Debug)]
struct KafkaLayer {
    log4j: Log4j,
    sinks: BTreeMap<String, Arc<Sink>>,
    clock: Clock,
}

impl<S: Subscriber> Layer<S> for KafkaLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Levels stand for the life of the process, so that a call that is off costs one load.
        if metadata.is_event()
            && self.log4j.is_on(&names::logger(metadata.target()), metadata.level())
        {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        metadata.is_event() && self.log4j.is_on(&names::logger(metadata.target()), metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.log4j.most_detailed())
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let logger = names::logger(metadata.target());
        let line: Arc<str> = line::format(event, &logger, &self.clock).into();
        for name in self.log4j.appenders_of(&logger, metadata.level()) {
            if let Some(sink) = self.sinks.get(name) {
                sink.send(line.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
