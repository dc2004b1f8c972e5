//! Key and trust stores: PEM, PKCS#12 and JKS. Source: ZooKeeper's `KeyStoreFileType` and
//! `FileKeyStoreLoader`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::{KeyStore as Pkcs12, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum KeyStoreError {
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

impl Clone for Identity {
    fn clone(&self) -> Identity {
        Identity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// The first bytes of a JKS file.
const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

/// A store as it was read from its file.
pub struct KeyStore {
    path: PathBuf,
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

impl KeyStore {
    /// A store of a kind: `JKS`, `PEM` or `PKCS12`, by the file's name without it. The password is empty for a PEM file that
    /// is not encrypted.
    pub fn new(
        path: &Path,
        bytes: Vec<u8>,
        password: String,
        kind: Option<&str>,
    ) -> Result<KeyStore, KeyStoreError> {
        let extension = path.extension().and_then(OsStr::to_str);
        let kind = kind.or(extension).unwrap_or_default().to_lowercase();
        let path = path.to_owned();
        let format = match kind.as_str() {
            "pem" => Format::Pem,
            // Java reads either format under either name, and keytool writes PKCS#12 for years now.
            "jks" | "pkcs12" | "p12" if bytes.starts_with(&JKS_MAGIC) => Format::Jks,
            "jks" | "pkcs12" | "p12" => Format::Pkcs12,
            _ => return Err(KeyStoreError::Type { path }),
        };
        Ok(KeyStore { path, password, bytes, format })
    }

    /// A server's or a client's own key.
    pub fn identity(&self) -> Result<Identity, KeyStoreError> {
        match self.format {
            Format::Pem => self.identity_of_pem(),
            Format::Pkcs12 => self.identity_of_pkcs12(),
            Format::Jks => self.identity_of_jks(),
        }
    }

    /// The certificates that are trusted; at least one.
    pub fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, KeyStoreError> {
        let certificates = match self.format {
            Format::Pem => self.certificates_of_pem()?,
            Format::Pkcs12 => self.trusted_of_pkcs12()?,
            Format::Jks => self.trusted_of_jks()?,
        };
        match certificates.is_empty() {
            true => Err(self.missing("trusted certificate")),
            false => Ok(certificates),
        }
    }

    fn broken(&self, reason: impl ToString) -> KeyStoreError {
        KeyStoreError::Open { path: self.path.clone(), reason: reason.to_string() }
    }

    fn missing(&self, what: &'static str) -> KeyStoreError {
        KeyStoreError::Missing { path: self.path.clone(), what }
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

/// Certificates as PEM text.
pub fn certificates_to_pem(certificates: &[CertificateDer<'_>]) -> String {
    certificates.iter().map(|certificate| to_pem("CERTIFICATE", certificate)).collect()
}

/// A private key as PEM text.
pub fn key_to_pem(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    to_pem(label, key.secret_der())
}

fn to_pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::*;

    #[test]
    fn pem_that_was_written_is_read() {
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let key: PrivateKeyDer<'_> = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let text = key_to_pem(&key) + &certificates_to_pem(std::slice::from_ref(&certificate));
        let path = Path::new("/x/store.PEM");
        let store = KeyStore::new(path, text.into_bytes(), String::new(), None).unwrap();
        let identity = store.identity().unwrap();
        assert_eq!((identity.chain, identity.key), (vec![certificate.clone()], key));
        assert_eq!(store.trusted().unwrap(), [certificate]);
    }

    #[test]
    fn a_store_says_what_it_lacks() {
        let store = |path: &str, text: &str, kind| {
            KeyStore::new(Path::new(path), text.as_bytes().to_vec(), String::new(), kind)
        };
        let error = store("/x/y", "", None).err().unwrap();
        assert_eq!(error.to_string(), "/x/y is of no known type: it must be JKS, PEM or PKCS12");
        let empty = store("/x/y", "", Some("PEM")).unwrap();
        assert_eq!(empty.trusted().unwrap_err().to_string(), "/x/y has no trusted certificate");
        assert_eq!(empty.identity().unwrap_err().to_string(), "/x/y has no certificate");
        let error = store("/x/y.p12", "nonsense", None).unwrap().trusted().unwrap_err();
        assert!(error.to_string().starts_with("/x/y.p12 cannot be opened, or"), "{error}");
    }
}
