//! What the broker costs, beside a real Kafka and beside the machine's own limits, in one run.
//!
//! `cargo run --release -p tests --bin bench -- [--only NAME|NAME...] [--seconds N] [--kafka PEER] [--dir DIR]`
//! Workloads are in `tests/bench/workloads.toml`. With `--kafka tests/peer/peer` Kafka 3.9.1 runs beside ours.
//! With `--cluster [--partitions N]` three brokers of each are measured instead, by `tests/bench/cluster_works.rs`.

mod cluster;
mod cluster_works;
mod floors;
mod groups;
mod load;
mod process;
mod requests;
mod targets;
mod works;

use std::{path::PathBuf, process::ExitCode};

/// What the command line says.
pub(crate) struct Options {
    only: Option<String>,
    seconds: Option<u64>,
    kafka: Option<PathBuf>,
    directory: PathBuf,
    binary: PathBuf,
    is_cluster: bool,
    partitions: i32,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("floor-append") => floors::append().map_err(|error| error.to_string()),
        Some("floor-sendfile") => floors::sendfile().map_err(|error| error.to_string()),
        Some("floor-echo") => floors::echo().map_err(|error| error.to_string()),
        Some("floor-follow") => follow(&arguments[1..]),
        _ => options(&arguments).and_then(|options| match options.is_cluster {
            true => cluster_works::run(&options),
            false => works::run(&options),
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn follow(arguments: &[String]) -> Result<(), String> {
    let [leader, topic] = arguments else { return Err("floor-follow LEADER TOPIC".to_owned()) };
    let leader = leader.parse().map_err(|_| format!("no address: {leader}"))?;
    floors::follow(leader, topic).map_err(|error| error.to_string())
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        only: None,
        seconds: None,
        kafka: None,
        directory: std::env::temp_dir().join(format!("odradek-bench-{}", std::process::id())),
        binary: PathBuf::from(
            std::env::var("ODRADEK_BINARY").unwrap_or_else(|_| "target/release/odradek".into()),
        ),
        is_cluster: false,
        partitions: 1000,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--only" => options.only = Some(value()?),
            "--seconds" => {
                options.seconds = Some(value()?.parse().map_err(|_| "--seconds N".to_owned())?);
            }
            "--kafka" => options.kafka = Some(value()?.into()),
            "--cluster" => options.is_cluster = true,
            "--partitions" => {
                options.partitions = value()?.parse().map_err(|_| "--partitions N".to_owned())?;
            }
            "--dir" => options.directory = value()?.into(),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    options.binary = options.binary.canonicalize().map_err(|error| {
        format!("{}: {error}; build it with cargo build --release", options.binary.display())
    })?;
    if let Some(kafka) = &mut options.kafka {
        *kafka = kafka.canonicalize().map_err(|error| format!("{}: {error}", kafka.display()))?;
    }
    Ok(options)
}
