//! The files of key and trust stores.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use security::key_store::{Identity, KeyStore, KeyStoreError};
use thiserror::Error;

/// Where a store is, and how to open it.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The file.
    pub path: PathBuf,
    /// Opens it; empty for a PEM file that is not encrypted.
    pub password: String,
    /// A file with the password, which then counts instead.
    pub password_path: Option<PathBuf>,
    /// `JKS`, `PEM` or `PKCS12`; by the file's name without it.
    pub kind: Option<String>,
}

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum StoreFileError {
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is in it.
    #[error(transparent)]
    Store(#[from] KeyStoreError),
}

impl StoreConfig {
    /// Reads a server's or a client's own key.
    pub fn identity(&self) -> Result<Identity, StoreFileError> {
        Ok(self.open()?.identity()?)
    }

    /// Reads the certificates that are trusted.
    pub fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, StoreFileError> {
        Ok(self.open()?.trusted()?)
    }

    fn open(&self) -> Result<KeyStore, StoreFileError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|source| StoreFileError::Read { path: path.to_owned(), source })
        };
        let password = match &self.password_path {
            Some(path) => String::from_utf8_lossy(&read(path)?).trim_end().to_owned(),
            None => self.password.clone(),
        };
        Ok(KeyStore::new(&self.path, read(&self.path)?, password, self.kind.as_deref())?)
    }
}
