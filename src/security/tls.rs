//! What Java's names of TLS versions and cipher suites mean to rustls, and a client's side of TLS made of them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ProtocolVersion, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};
use thiserror::Error;

use crate::key_store::Identity;

/// How a client makes sure of a server, and shows who it is.
#[derive(Clone)]
pub struct ClientTls {
    /// Certificates that are trusted: authorities' or servers' own.
    pub trusted: Vec<CertificateDer<'static>>,
    /// Our key, where servers ask for it.
    pub identity: Option<Identity>,
    /// Java's names of the TLS versions; all there are where it is empty.
    pub protocols: Vec<String>,
    /// Java's names of the cipher suites; all there are where it is empty.
    pub cipher_suites: Vec<String>,
    /// Whether a server's name must be in its certificate.
    pub checks_names: bool,
}

/// Why there is no client's side of TLS.
#[derive(Debug, Error)]
pub enum ClientTlsError {
    /// The versions or the suites.
    #[error(transparent)]
    Choice(#[from] TlsChoiceError),
    /// The keys or certificates are readable, and not what TLS can use.
    #[error("use keys and certificates for TLS")]
    Rustls(#[from] rustls::Error),
    /// The trusted certificates cannot check anybody.
    #[error("use the trusted certificates")]
    Verifier(#[from] VerifierBuilderError),
}

impl ClientTls {
    /// What rustls needs for it.
    pub fn config(&self) -> Result<Arc<ClientConfig>, ClientTlsError> {
        let versions = versions(&self.protocols)?;
        let provider = Arc::new(provider(&versions, &self.cipher_suites)?);
        let mut roots = RootCertStore::empty();
        for certificate in &self.trusted {
            roots.add(certificate.clone())?;
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()?;
        let verifier = Verifier { webpki, checks_names: self.checks_names };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match self.identity.clone() {
            Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}

/// Checks a server's certificate, and its name, which is looked at last, where it counts.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    checks_names: bool,
}

/// In words for the one who made it.
const OLD_CERTIFICATE: &str = "the server's certificate is of X.509 version 1, and only version 3 can be used: openssl makes \
                               version 1 where it is given no extensions";

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        revocation: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.webpki.verify_server_cert(own, others, name, revocation, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_names => Ok(ServerCertVerified::assertion()),
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
                if other.to_string().contains("UnsupportedCertVersion") =>
            {
                Err(rustls::Error::General(OLD_CERTIFICATE.to_owned()))
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Why a choice of versions or suites leaves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsChoiceError {
    /// A version that is too old, or unknown.
    #[error("{0} is no TLS version here: only TLSv1.2 and TLSv1.3 are")]
    Protocol(String),
    /// None of the cipher suites is known, or none is of the versions.
    #[error("none of the cipher suites can be used")]
    CipherSuites,
}

/// Versions by name; both that there are where none is named.
pub fn versions(
    names: &[String],
) -> Result<Vec<&'static SupportedProtocolVersion>, TlsChoiceError> {
    if names.is_empty() {
        return Ok(vec![&TLS13, &TLS12]);
    }
    let version = |name: &String| match name.as_str() {
        "TLSv1.3" => Ok(&TLS13),
        "TLSv1.2" => Ok(&TLS12),
        other => Err(TlsChoiceError::Protocol(other.to_owned())),
    };
    names.iter().map(version).collect()
}

/// Cryptography with the suites of these versions; of them the named ones alone, where some are named.
pub fn provider(
    versions: &[&'static SupportedProtocolVersion],
    cipher_suites: &[String],
) -> Result<CryptoProvider, TlsChoiceError> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| {
        let version = match suite.tls13() {
            Some(_) => ProtocolVersion::TLSv1_3,
            None => ProtocolVersion::TLSv1_2,
        };
        // Java has one prefix for all versions.
        let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
        versions.iter().any(|allowed| allowed.version == version)
            && (cipher_suites.is_empty() || cipher_suites.contains(&name))
    });
    match provider.cipher_suites.is_empty() {
        true => Err(TlsChoiceError::CipherSuites),
        false => Ok(provider),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(protocols: &[&str], suites: &[&str]) -> Result<Vec<String>, TlsChoiceError> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (protocols, suites): (Vec<String>, Vec<String>) = (owned(protocols), owned(suites));
        let provider = provider(&versions(&protocols)?, &suites)?;
        Ok(provider.cipher_suites.iter().map(|suite| format!("{:?}", suite.suite())).collect())
    }

    #[test]
    fn suites_are_those_of_the_versions_and_of_the_list() {
        assert_eq!(chosen(&[], &[]).unwrap().len(), 9);
        assert_eq!(chosen(&["TLSv1.3"], &[]).unwrap().len(), 3);
        assert_eq!(chosen(&["TLSv1.2"], &[]).unwrap().len(), 6);
        let both = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
        assert_eq!(chosen(&["TLSv1.3"], &both).unwrap(), ["TLS13_AES_128_GCM_SHA256"]);
        assert_eq!(chosen(&["TLSv1.2"], &both).unwrap(), [both[1]]);
    }

    #[test]
    fn what_leaves_nothing_is_refused() {
        let old = TlsChoiceError::Protocol("TLSv1.1".to_owned());
        assert_eq!(chosen(&["TLSv1.2", "TLSv1.1"], &[]), Err(old));
        let of_another_version = ["TLS_AES_128_GCM_SHA256"];
        for suites in [&of_another_version[..], &["TLS_RSA_WITH_RC4_128_MD5"]] {
            assert_eq!(chosen(&["TLSv1.2"], suites), Err(TlsChoiceError::CipherSuites));
        }
    }
}
