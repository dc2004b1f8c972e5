//! The same requests to a real Kafka 3.9.1 and to this broker: every API that is built, in every version, every field
//! with its default, its edges and wrong values, and conversations, in which an answer depends on what was asked before. The decoded answers must be equal field by field.
//!
//! `cargo run --release -p tests --bin differential -- [--short] [--api NAME]... [--version N] [--case TEXT] [--all | --show]
//! [--kafka HOST:PORT --ours HOST:PORT] [--peer SCRIPT] [--dir DIR] [--set KEY=VALUE]...`
//! Without addresses it starts both: Kafka by `tests/peer/peer`, ours from `target/release/odradek` (or ODRADEK_BINARY).

mod clusters;
mod conversations;
mod edges;
mod records;
mod rules;
mod run;
mod scenarios;
mod side;
mod tree;
mod value;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use crate::{clusters::Clusters, run::Run, side::Side};

/// What the command line says.
pub(crate) struct Options {
    /// A sample of the cases.
    pub(crate) short: bool,
    /// Shows every difference, not each kind twice.
    pub(crate) all: bool,
    /// Shows what Kafka answers to every case.
    pub(crate) show: bool,
    apis: Vec<String>,
    pub(crate) version: Option<i16>,
    pub(crate) case: Option<String>,
    kafka: Option<SocketAddr>,
    ours: Option<SocketAddr>,
    peer: PathBuf,
    directory: PathBuf,
    /// Lines for both brokers' `server.properties`.
    settings: Vec<String>,
}

impl Options {
    pub(crate) fn wants_api(&self, name: &str) -> bool {
        self.apis.is_empty() || self.apis.iter().any(|api| api == name)
    }

    /// Whether only some of the cases are wanted.
    pub(crate) fn is_partial(&self) -> bool {
        !self.apis.is_empty() || self.version.is_some() || self.case.is_some()
    }
}

fn main() -> ExitCode {
    match options().and_then(|options| compare(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("differential: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<bool, String> {
    let clusters = match (options.kafka, options.ours) {
        (Some(_), Some(_)) => None,
        (None, None) => {
            let binary = std::env::var("ODRADEK_BINARY");
            let binary = PathBuf::from(binary.unwrap_or_else(|_| "target/release/odradek".into()));
            let binary = binary.canonicalize().map_err(|error| {
                format!("{}: {error}; build it with cargo build --release", binary.display())
            })?;
            Some(Clusters::start(&options.peer, &binary, &options.directory, &options.settings)?)
        }
        _ => return Err("--kafka and --ours go together".to_owned()),
    };
    let address = |given: Option<SocketAddr>, started: fn(&Clusters) -> SocketAddr| {
        given.or(clusters.as_ref().map(started)).ok_or("no address")
    };
    let kafka = Side::new(address(options.kafka, |clusters| clusters.kafka)?);
    let ours = Side::new(address(options.ours, |clusters| clusters.ours)?);
    Ok(Run::new(options, kafka, ours).all())
}

fn options() -> Result<Options, String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut options = Options {
        short: false,
        all: false,
        show: false,
        apis: Vec::new(),
        version: None,
        case: None,
        kafka: None,
        ours: None,
        peer: root.join("peer/peer"),
        settings: Vec::new(),
        directory: std::env::temp_dir()
            .join(format!("odradek-differential-{}", std::process::id())),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let address = |text: String| text.parse().map_err(|_| format!("{text} is no address"));
        match word.as_str() {
            "--short" => options.short = true,
            "--all" => options.all = true,
            "--show" => options.show = true,
            "--api" => options.apis.push(value()?),
            "--version" => {
                options.version = Some(value()?.parse().map_err(|_| "--version N".to_owned())?);
            }
            "--case" => options.case = Some(value()?),
            "--kafka" => options.kafka = Some(address(value()?)?),
            "--ours" => options.ours = Some(address(value()?)?),
            "--peer" => options.peer = value()?.into(),
            "--set" => options.settings.push(value()?),
            "--dir" => options.directory = value()?.into(),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(options)
}
