//! Clients of the tools: their property files, and their runtime.

use std::{fs, io, path::Path};

use client::{
    admin::Admin,
    config::ConnectionConfig,
    error::{ClientError, ErrorKind},
};
use common::properties::{self, Properties};

use crate::console::{Halt, halt};

/// Reads a property file; the error is Java's class and text.
pub(crate) fn load(path: &str) -> Result<Properties, String> {
    match fs::read(Path::new(path)) {
        Ok(bytes) => Ok(properties::parse(&bytes)),
        Err(error) => Err(file_exception(path, &error)),
    }
}

/// As Java names a file that cannot be opened.
pub(crate) fn file_exception(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("java.nio.file.NoSuchFileException: {path}"),
        io::ErrorKind::PermissionDenied => format!("java.nio.file.AccessDeniedException: {path}"),
        _ => format!("java.io.IOException: {path}: {error}"),
    }
}

/// A runtime for a tool's client.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Halt> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.or_else(|error| halt(&format!("Cannot start: {error}")))
}

/// Opens an admin client as Java does: whatever is wrong with its settings becomes a `KafkaException`.
pub(crate) async fn open_admin(properties: &Properties) -> Result<Admin, ClientError> {
    let config = ConnectionConfig::admin(properties)?;
    Admin::open(config).await
}

/// The two lines that Java shows for a client that could not be made: the exception, and its cause.
pub(crate) fn construction_failure(what: &str, error: &ClientError) -> String {
    match error.kind {
        ErrorKind::Config => format!(
            "{what}\norg.apache.kafka.common.KafkaException: {what}\nCaused by: {}",
            error.with_class()
        ),
        _ => error.with_class(),
    }
}
