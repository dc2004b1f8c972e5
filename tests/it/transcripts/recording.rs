//! A recorded run of one of Kafka's scripts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// What was run, and what it did.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Recording {
    /// Script, number and name: `kafka-topics/006-create`.
    #[serde(skip)]
    pub(super) place: String,
    pub(super) tool: String,
    pub(super) case: String,
    pub(super) args: Vec<String>,
    pub(super) stdin: Option<String>,
    pub(super) exit: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// The signal that the recorder ended it with.
    pub(super) ended_by: Option<String>,
    /// Whether the table of options followed on standard error and was cut.
    #[serde(default)]
    pub(super) usage: bool,
}

/// The recordings' folder.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/transcripts")
}

/// Scripts with recordings.
pub(super) fn scripts() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && !path.ends_with("files"))
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A script's recordings, in the order they were made.
pub(super) fn recordings(script: &str) -> Vec<Recording> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder().join(script))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let read = |file: &PathBuf| {
        let mut recording: Recording = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        recording.place = format!("{script}/{}", file.file_stem().unwrap().to_string_lossy());
        recording
    };
    files.iter().map(read).collect()
}

/// The table of options that a script prints.
pub(super) fn usage(script: &str) -> String {
    fs::read_to_string(folder().join(script).join("usage.txt")).unwrap_or_default()
}
