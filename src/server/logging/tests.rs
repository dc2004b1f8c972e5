//! From an event to the files.

use std::path::Path;

use super::*;

const CONFIG: &str = "
log4j.rootLogger=INFO, main
log4j.appender.main=org.apache.log4j.DailyRollingFileAppender
log4j.appender.main.File=${kafka.logs.dir}/server.log
log4j.appender.state=org.apache.log4j.FileAppender
log4j.appender.state.File=${kafka.logs.dir}/state-change.log
log4j.logger.state.change.logger=TRACE, state
log4j.additivity.state.change.logger=false
";

/// Logs by `act` under a configuration, and gives the files without their times.
fn logged(config: &str, act: impl FnOnce()) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log4j.properties");
    std::fs::write(&file, config).unwrap();
    let logs_dir = folder.path().join("logs");
    let (logging, layer) = Logging::start(&Options { file, logs_dir: logs_dir.clone() });
    assert_eq!(logging.notes, Vec::<String>::new());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    drop(logging);
    let read = |name: &str| std::fs::read_to_string(logs_dir.join(name)).unwrap();
    let without_times = |text: String| -> String { text.split_inclusive('\n').map(mask).collect() };
    ["server.log", "state-change.log"]
        .into_iter()
        .map(|name| (name.to_owned(), without_times(read(name))))
        .collect()
}

/// Checks and cuts the time of a line's beginning.
fn mask(line: &str) -> String {
    let Some(rest) = line.strip_prefix('[') else { return line.to_owned() };
    let (time, rest) = rest.split_once("] ").expect("a time in brackets");
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00 00:00:00,000");
    rest.to_owned()
}

#[test]
fn events_become_kafkas_lines_in_kafkas_files() {
    let files = logged(CONFIG, || {
        tracing::info!(target: "kafka.server.KafkaServer", "starting");
        tracing::debug!(target: "kafka.server.KafkaServer", "not shown");
        tracing::warn!(partition = %"t-0", epoch = 3, reason = "disk is slow", "became leader");
        tracing::trace!(target: "state.change.logger", "[Controller id=1 epoch=1] Changed");
        tracing::info!(target: "kafka.server.KafkaConfig", "KafkaConfig values: \n\ta = 1\n");
        tracing::info!(target: "kafka.network.SocketServer", client_id = "evil\n[now] INFO x", "refused");
    });
    assert_eq!(
        files["server.log"],
        "INFO starting (kafka.server.KafkaServer)\n\
         WARN became leader partition=t-0 epoch=3 reason=\"disk is slow\" (kafka.server.KafkaServer)\n\
         INFO KafkaConfig values: \n\ta = 1\n (kafka.server.KafkaConfig)\n\
         INFO refused client_id=\"evil\\n[now] INFO x\" (kafka.network.SocketServer)\n"
    );
    assert_eq!(
        files["state-change.log"],
        "TRACE [Controller id=1 epoch=1] Changed (state.change.logger)\n"
    );
}

#[test]
fn an_error_is_logged_with_its_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("open log")]
    struct Outer(#[source] std::io::Error);
    let files = logged(CONFIG, || {
        let error = Outer(std::io::ErrorKind::PermissionDenied.into());
        tracing::error!(error = &error as &(dyn std::error::Error + 'static), "stopped");
    });
    assert_eq!(
        files["server.log"],
        "ERROR stopped error=\"open log: permission denied\" (kafka.server.KafkaServer)\n"
    );
}

#[test]
fn what_is_missing_is_noted_and_the_rest_logs() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("logs");
    std::fs::write(&blocked, "a file where the folder should be").unwrap();
    let options = Options { file: folder.path().join("missing"), logs_dir: blocked };
    let (logging, _layer) = Logging::start(&options);
    assert!(logging.notes[0].starts_with("cannot read "), "{:?}", logging.notes);
    assert!(logging.notes.iter().any(|note| note.contains("kafkaAppender does not log")));
    assert_eq!(logging.sinks.len(), 1, "standard output is left");
}

#[test]
fn the_environment_of_kafkas_scripts_is_heard() {
    let base = Path::new("/opt/kafka");
    let options = Options::from_environment(base, "log4j.properties", &|_| None);
    assert_eq!(options.file, base.join("config/log4j.properties"));
    assert_eq!(options.logs_dir, base.join("logs"));
    let options = Options::from_environment(base, "log4j.properties", &|name| match name {
        "LOG_DIR" => Some("/var/log/kafka".to_owned()),
        "KAFKA_LOG4J_OPTS" => {
            Some("-Dx=y -Dlog4j.configuration=file:/etc/log4j.properties".to_owned())
        }
        _ => None,
    });
    assert_eq!(options.file, Path::new("/etc/log4j.properties"));
    assert_eq!(options.logs_dir, Path::new("/var/log/kafka"));
}
