//! Key and trust stores: PEM, PKCS#12 and JKS. Source: ZooKeeper's `KeyStoreFileType` and
//! `FileKeyStoreLoader`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use p12_keystore::{KeyStore as Pkcs12, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
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
pub enum KeyStoreError {
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither the type nor the file's name says what it is.
    #[error("{path} is of no known type: it must be JKS, PEM or PKCS12")]
    Type {
        /// The file.
        path: PathBuf,
    },
    /// It is not what it should be, or the password is wrong.
    #[error("{path} cannot be opened, or its password is wrong: {reason}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        reason: String,
    },
    /// It lacks what it is for.
    #[error("{path} has no {what}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is looked for.
        what: &'static str,
    },
}

/// A private key with its certificates, its own first.
#[derive(Debug)]
pub struct Identity {
    /// The certificates.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

/// The first bytes of a JKS file.
const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

/// A store that was read.
struct Opened<'a> {
    path: &'a Path,
    password: String,
    bytes: Vec<u8>,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Pem,
    Pkcs12,
    Jks,
}

impl StoreConfig {
    /// Reads a server's or a client's own key.
    pub fn identity(&self) -> Result<Identity, KeyStoreError> {
        let opened = self.open()?;
        match opened.format {
            Format::Pem => opened.identity_of_pem(),
            Format::Pkcs12 => opened.identity_of_pkcs12(),
            Format::Jks => opened.identity_of_jks(),
        }
    }

    /// Reads the certificates that are trusted.
    pub fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, KeyStoreError> {
        let opened = self.open()?;
        let certificates = match opened.format {
            Format::Pem => opened.certificates_of_pem()?,
            Format::Pkcs12 => opened.trusted_of_pkcs12()?,
            Format::Jks => opened.trusted_of_jks()?,
        };
        match certificates.is_empty() {
            true => Err(opened.missing("trusted certificate")),
            false => Ok(certificates),
        }
    }

    fn open(&self) -> Result<Opened<'_>, KeyStoreError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|source| KeyStoreError::Read { path: path.to_owned(), source })
        };
        let password = match &self.password_path {
            Some(path) => String::from_utf8_lossy(&read(path)?).trim_end().to_owned(),
            None => self.password.clone(),
        };
        let extension = self.path.extension().and_then(OsStr::to_str);
        let kind = self.kind.as_deref().or(extension).unwrap_or_default().to_lowercase();
        let bytes = read(&self.path)?;
        let format = match kind.as_str() {
            "pem" => Format::Pem,
            // Java reads either format under either name, and keytool writes PKCS#12 for years now.
            "jks" | "pkcs12" | "p12" if bytes.starts_with(&JKS_MAGIC) => Format::Jks,
            "jks" | "pkcs12" | "p12" => Format::Pkcs12,
            _ => return Err(KeyStoreError::Type { path: self.path.clone() }),
        };
        Ok(Opened { path: &self.path, password, bytes, format })
    }
}

impl Opened<'_> {
    fn broken(&self, reason: impl ToString) -> KeyStoreError {
        KeyStoreError::Open { path: self.path.to_owned(), reason: reason.to_string() }
    }

    fn missing(&self, what: &'static str) -> KeyStoreError {
        KeyStoreError::Missing { path: self.path.to_owned(), what }
    }

    fn certificates_of_pem(&self) -> Result<Vec<CertificateDer<'static>>, KeyStoreError> {
        CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<_, pem::Error>>()
            .map_err(|error| self.broken(error))
    }

    fn identity_of_pem(&self) -> Result<Identity, KeyStoreError> {
        let chain = self.certificates_of_pem()?;
        if chain.is_empty() {
            return Err(self.missing("certificate"));
        }
        if let Some(text) = encrypted_key(&self.bytes) {
            return Ok(Identity { chain, key: self.decrypt(text)? });
        }
        match PrivateKeyDer::from_pem_slice(&self.bytes) {
            Ok(key) => Ok(Identity { chain, key }),
            Err(pem::Error::NoItemsFound) => Err(self.missing("private key")),
            Err(error) => Err(self.broken(error)),
        }
    }

    fn decrypt(&self, text: &str) -> Result<PrivateKeyDer<'static>, KeyStoreError> {
        let (_, document) = SecretDocument::from_pem(text).map_err(|error| self.broken(error))?;
        let key: EncryptedPrivateKeyInfoRef<'_> =
            document.decode_msg().map_err(|error| self.broken(error))?;
        let key = key.decrypt(&self.password).map_err(|error| self.broken(error))?;
        Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
    }

    fn identity_of_pkcs12(&self) -> Result<Identity, KeyStoreError> {
        let store = Pkcs12::from_pkcs12(&self.bytes, &self.password, Pkcs12ImportPolicy::Strict)
            .map_err(|error| self.broken(error))?;
        let (_, found) = store.private_key_chain().ok_or_else(|| self.missing("private key"))?;
        let chain = found.certs().iter().map(|certificate| certificate.as_der().to_vec().into());
        let key = PrivatePkcs8KeyDer::from(found.key().as_der().to_vec()).into();
        Ok(Identity { chain: chain.collect(), key })
    }

    /// As Java, which takes only those that keytool has marked.
    fn trusted_of_pkcs12(&self) -> Result<Vec<CertificateDer<'static>>, KeyStoreError> {
        let archive = Pkcs12Archive::from_pkcs12(&self.bytes, &self.password)
            .map_err(|error| self.broken(error))?;
        let trusted = archive.certs.iter().filter(|certificate| certificate.trusted);
        Ok(trusted.map(|certificate| certificate.cert.as_der().to_vec().into()).collect())
    }

    fn load_jks(&self) -> Result<jks::KeyStore, KeyStoreError> {
        let mut store = jks::KeyStore::new();
        store
            .load(&self.bytes[..], self.password.as_bytes())
            .map_err(|error| self.broken(error))?;
        Ok(store)
    }

    fn identity_of_jks(&self) -> Result<Identity, KeyStoreError> {
        let store = self.load_jks()?;
        let mut aliases = store.aliases();
        aliases.sort();
        let alias = aliases.iter().find(|alias| store.is_private_key_entry(alias));
        let alias = alias.ok_or_else(|| self.missing("private key"))?;
        let entry = store
            .get_private_key_entry(alias, self.password.as_bytes())
            .map_err(|error| self.broken(error))?;
        let chain = entry.certificate_chain.iter().map(|found| found.content.clone().into());
        let key = PrivatePkcs8KeyDer::from(entry.private_key.clone()).into();
        Ok(Identity { chain: chain.collect(), key })
    }

    fn trusted_of_jks(&self) -> Result<Vec<CertificateDer<'static>>, KeyStoreError> {
        let store = self.load_jks()?;
        let aliases = store.aliases();
        let entries =
            aliases.iter().filter_map(|alias| store.get_trusted_certificate_entry(alias).ok());
        Ok(entries.map(|entry| entry.certificate.content.into()).collect())
    }
}

/// The part of a PEM file with an encrypted key, which rustls does not read.
fn encrypted_key(bytes: &[u8]) -> Option<&str> {
    const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    let text = str::from_utf8(bytes).ok()?;
    let from = text.find(BEGIN)?;
    let to = text[from..].find(END)? + from + END.len();
    Some(&text[from..to])
}
