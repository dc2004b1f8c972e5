//! Reads `log4j.properties` (log4j 1.2, as Kafka ships it): loggers, levels, appenders and their files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::properties::Properties;
use tracing::Level;
use tracing::metadata::LevelFilter;

/// A file's size at which it is rotated, where the appender does not say.
const SIZE_MAX: u64 = 100 * 1024 * 1024;
/// How many rotated files are kept, where the appender does not say.
const BACKUPS_MAX: u32 = 10;
/// The pattern that every line has.
const PATTERN: &str = "[%d] %p %m (%c)%n";

/// Where an appender's lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// `ConsoleAppender`.
    Stdout,
    /// `ConsoleAppender` with `Target=System.err`.
    Stderr,
    /// Any appender with a `File`.
    File {
        /// The file.
        path: PathBuf,
        /// `MaxFileSize`.
        size_max: u64,
        /// `MaxBackupIndex`.
        backups_max: u32,
    },
}

/// One appender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Appender {
    pub(super) destination: Destination,
    /// `Threshold`: what is less severe is left out.
    threshold: LevelFilter,
}

#[derive(Clone, Debug)]
struct Logger {
    /// `None` takes the parent's.
    level: Option<LevelFilter>,
    appenders: Vec<String>,
    /// Whether the parents' appenders get its lines as well.
    is_additive: bool,
}

impl Default for Logger {
    fn default() -> Logger {
        Logger { level: None, appenders: Vec::new(), is_additive: true }
    }
}

/// The whole file, read.
#[derive(Debug)]
pub(super) struct Log4j {
    root: Logger,
    loggers: BTreeMap<String, Logger>,
    appenders: BTreeMap<String, Appender>,
    /// Keys that were passed over.
    pub(super) ignored: Vec<String>,
}

impl Log4j {
    /// Reads the file. What is not understood is listed in `ignored`.
    pub(super) fn parse(properties: &Properties, logs_dir: &Path) -> Log4j {
        let mut log4j = Log4j {
            root: Logger { level: Some(LevelFilter::DEBUG), ..Logger::default() },
            loggers: BTreeMap::new(),
            appenders: BTreeMap::new(),
            ignored: Vec::new(),
        };
        let mut settings: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for (key, value) in properties {
            let value = resolve(value, properties, logs_dir, 0);
            match key.strip_prefix("log4j.").and_then(|rest| split_kind(rest)) {
                Some(("rootLogger" | "rootCategory", "")) => log4j.set(key, None, &value),
                Some(("logger" | "category", name)) => log4j.set(key, Some(name), &value),
                Some(("additivity", name)) => {
                    let logger = log4j.loggers.entry(name.to_owned()).or_default();
                    logger.is_additive = !value.trim().eq_ignore_ascii_case("false");
                }
                Some(("appender", rest)) => {
                    let (name, setting) = rest.split_once('.').unwrap_or((rest, ""));
                    settings.entry(name).or_default().insert(setting.to_owned(), value);
                }
                _ => log4j.ignored.push(key.clone()),
            }
        }
        for (name, settings) in settings {
            log4j.add_appender(name, &settings);
        }
        log4j
    }

    /// `LEVEL, appender, ...` of the root or of a logger.
    fn set(&mut self, key: &str, name: Option<&str>, value: &str) {
        let mut parts = value.split(',').map(str::trim);
        let level = parts.next().unwrap_or_default();
        let parsed = parse_level(level);
        if parsed.is_none() && !matches!(level, "" | "INHERITED" | "NULL") {
            self.ignored.push(format!("{key}={level}"));
        }
        let logger = match name {
            None => &mut self.root,
            Some(name) => self.loggers.entry(name.to_owned()).or_default(),
        };
        logger.level = parsed.or(logger.level);
        logger.appenders = parts.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    }

    fn add_appender(&mut self, name: &str, settings: &BTreeMap<String, String>) {
        let get = |wanted: &str| {
            let found = settings.iter().find(|(key, _)| key.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim())
        };
        let class = get("").unwrap_or_default();
        let destination = match get("File") {
            Some(file) => Destination::File {
                path: PathBuf::from(file),
                size_max: get("MaxFileSize").and_then(parse_size).unwrap_or(SIZE_MAX),
                backups_max: get("MaxBackupIndex")
                    .and_then(|number| number.parse().ok())
                    .unwrap_or(BACKUPS_MAX),
            },
            None if class.ends_with("ConsoleAppender") => match get("Target") {
                Some("System.err") => Destination::Stderr,
                _ => Destination::Stdout,
            },
            None => {
                self.ignored.push(format!("log4j.appender.{name}={class}"));
                return;
            }
        };
        let threshold = get("Threshold").and_then(parse_level).unwrap_or(LevelFilter::TRACE);
        self.appenders.insert(name.to_owned(), Appender { destination, threshold });
        // The files are rotated by size, so a pattern of dates says nothing new.
        let known = ["", "file", "maxfilesize", "maxbackupindex", "target", "threshold", "layout"];
        for (setting, value) in settings {
            let lower = setting.to_ascii_lowercase();
            let is_shipped = match lower.as_str() {
                "layout.conversionpattern" => value == PATTERN,
                "datepattern" => value == "'.'yyyy-MM-dd-HH",
                other => known.contains(&other),
            };
            if !is_shipped {
                self.ignored.push(format!("log4j.appender.{name}.{setting}"));
            }
        }
    }

    /// The logger's own settings and those of its parents, nearest first, the root last.
    fn ancestry<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Logger> {
        let mut rest = Some(name);
        let names = std::iter::from_fn(move || {
            let current = rest?;
            rest = current.rfind('.').map(|dot| &current[..dot]);
            Some(current)
        });
        names.filter_map(|name| self.loggers.get(name)).chain(std::iter::once(&self.root))
    }

    /// Whether lines of a logger at a level go anywhere.
    pub(super) fn is_on(&self, logger: &str, level: &Level) -> bool {
        let effective = self.ancestry(logger).find_map(|logger| logger.level);
        effective.is_some_and(|filter| *level <= filter)
            && self.appenders_of(logger, level).next().is_some()
    }

    /// Names of the appenders that take a logger's lines of a level, each once.
    pub(super) fn appenders_of<'a>(
        &'a self,
        logger: &'a str,
        level: &Level,
    ) -> impl Iterator<Item = &'a String> {
        let mut names = Vec::new();
        for logger in self.ancestry(logger) {
            for name in &logger.appenders {
                let takes = self.appenders.get(name).is_some_and(|a| *level <= a.threshold);
                if takes && !names.contains(&name) {
                    names.push(name);
                }
            }
            if !logger.is_additive {
                break;
            }
        }
        names.into_iter()
    }

    /// Appenders that some logger names.
    pub(super) fn used_appenders(&self) -> impl Iterator<Item = (&String, &Appender)> {
        let loggers = self.loggers.values().chain(std::iter::once(&self.root));
        let used: BTreeSet<&String> = loggers.flat_map(|logger| &logger.appenders).collect();
        self.appenders.iter().filter(move |(name, _)| used.contains(name))
    }

    /// The most detailed level of any logger.
    pub(super) fn most_detailed(&self) -> LevelFilter {
        let loggers = self.loggers.values().chain(std::iter::once(&self.root));
        loggers.filter_map(|logger| logger.level).max().unwrap_or(LevelFilter::OFF)
    }
}

/// `logger.a.b` is `logger` and `a.b`.
fn split_kind(rest: &str) -> Option<(&str, &str)> {
    Some(rest.split_once('.').unwrap_or((rest, "")))
}

fn parse_level(text: &str) -> Option<LevelFilter> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" | "TRACE" => Some(LevelFilter::TRACE),
        "DEBUG" => Some(LevelFilter::DEBUG),
        "INFO" => Some(LevelFilter::INFO),
        "WARN" => Some(LevelFilter::WARN),
        "ERROR" | "FATAL" => Some(LevelFilter::ERROR),
        "OFF" => Some(LevelFilter::OFF),
        _ => None,
    }
}

/// `100MB`, `10KB`, `1GB` or bytes.
fn parse_size(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let (digits, unit) = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)]
        .into_iter()
        .find_map(|(suffix, unit)| Some((upper.strip_suffix(suffix)?, unit)))
        .unwrap_or((upper.as_str(), 1));
    digits.trim().parse::<u64>().ok()?.checked_mul(unit).filter(|size| *size > 0)
}

/// Puts in `${kafka.logs.dir}` and other keys of the file; what is unknown becomes empty, as in log4j.
fn resolve(value: &str, properties: &Properties, logs_dir: &Path, depth: usize) -> String {
    let Some((before, rest)) = value.split_once("${") else { return value.to_owned() };
    let Some((name, after)) = rest.split_once('}') else { return value.to_owned() };
    let inner = match properties.get(name) {
        _ if name == "kafka.logs.dir" => logs_dir.to_string_lossy().into_owned(),
        // A key that names itself would go on for ever.
        Some(other) if depth < 8 => resolve(other, properties, logs_dir, depth + 1),
        _ => String::new(),
    };
    format!("{before}{inner}{}", resolve(after, properties, logs_dir, depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Log4j {
        Log4j::parse(&common::properties::parse(text.as_bytes()), Path::new("/logs"))
    }

    fn appenders(log4j: &Log4j, logger: &str, level: Level) -> String {
        let names: Vec<_> = log4j.appenders_of(logger, &level).map(String::as_str).collect();
        if log4j.is_on(logger, &level) { names.join(" ") } else { "off".to_owned() }
    }

    #[test]
    fn the_shipped_file_is_understood_whole() {
        let log4j = parse(include_str!("../../../config/log4j.properties"));
        assert_eq!(log4j.ignored, Vec::<String>::new());
        assert_eq!(
            appenders(&log4j, "kafka.server.KafkaServer", Level::INFO),
            "stdout kafkaAppender"
        );
        assert_eq!(appenders(&log4j, "kafka.server.KafkaServer", Level::DEBUG), "off");
        assert_eq!(appenders(&log4j, "state.change.logger", Level::INFO), "stateChangeAppender");
        assert_eq!(
            appenders(&log4j, "kafka.controller.KafkaController", Level::TRACE),
            "controllerAppender"
        );
        assert_eq!(appenders(&log4j, "kafka.request.logger", Level::INFO), "off");
        assert_eq!(appenders(&log4j, "rustls", Level::INFO), "stdout kafkaAppender");
        assert_eq!(log4j.most_detailed(), LevelFilter::TRACE);
        let files: Vec<_> = log4j
            .used_appenders()
            .filter_map(|(_, appender)| match &appender.destination {
                Destination::File { path, .. } => Some(path.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        assert!(files.contains(&"/logs/server.log".to_owned()), "{files:?}");
        assert_eq!(files.len(), 6);
    }

    #[test]
    fn the_tools_file_is_understood_whole() {
        let log4j = parse(include_str!("../../../config/tools-log4j.properties"));
        assert_eq!(log4j.ignored, Vec::<String>::new());
        assert_eq!(appenders(&log4j, "kafka.tools", Level::WARN), "stderr");
        assert_eq!(appenders(&log4j, "kafka.tools", Level::INFO), "off");
    }

    #[test]
    fn sizes_thresholds_and_strangers() {
        let log4j = parse(
            "log4j.rootLogger=INFO, F, S\nlog4j.appender.F=org.apache.log4j.RollingFileAppender\n\
             log4j.appender.F.File=${dir}/x.log\ndir=${kafka.logs.dir}/sub\nlog4j.appender.F.MaxFileSize=2KB\n\
             log4j.appender.F.maxBackupIndex=3\nlog4j.appender.F.Threshold=WARN\nlog4j.appender.F.Encoding=UTF-8\n\
             log4j.appender.S=org.apache.log4j.net.SyslogAppender\nlog4j.logger.a=LOUD\nlog4j.threshold=ALL",
        );
        assert_eq!(
            log4j.ignored,
            [
                "dir",
                "log4j.logger.a=LOUD",
                "log4j.threshold",
                "log4j.appender.F.Encoding",
                "log4j.appender.S=org.apache.log4j.net.SyslogAppender"
            ]
        );
        assert_eq!(appenders(&log4j, "a.b", Level::INFO), "off");
        assert_eq!(appenders(&log4j, "a.b", Level::WARN), "F");
        let (_, appender) = log4j.used_appenders().next().expect("one appender");
        assert_eq!(
            appender.destination,
            Destination::File { path: "/logs/sub/x.log".into(), size_max: 2048, backups_max: 3 }
        );
    }

    #[test]
    fn additivity_stops_at_the_logger_that_says_so() {
        let log4j = parse(
            "log4j.rootLogger=INFO, A\nlog4j.logger.x=DEBUG, B\nlog4j.additivity.x=false\nlog4j.logger.x.y=, C\n\
             log4j.appender.A=ConsoleAppender\nlog4j.appender.B=ConsoleAppender\nlog4j.appender.C=ConsoleAppender",
        );
        assert_eq!(appenders(&log4j, "x.y.z", Level::DEBUG), "C B");
        assert_eq!(appenders(&log4j, "z", Level::INFO), "A");
    }

    #[test]
    fn a_key_that_names_itself_ends() {
        let log4j = parse("a=${a}${a}\nlog4j.rootLogger=INFO, A\nlog4j.appender.A.File=/x${a}");
        assert_eq!(log4j.used_appenders().count(), 1);
    }
}
