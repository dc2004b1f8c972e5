//! TLS for clients: what `ssl.` keys ask for, as rustls wants it. Source: ZooKeeper's `X509Util`,
//! `X509AuthenticationProvider` and `NettyServerCnxnFactory`.

use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use security::tls::{TlsChoiceError, provider, versions};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::asn1_rs::ToDer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name, X509Version};

use crate::key_store::{StoreConfig, StoreFileError};

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    None,
    /// They are asked, and served without one too.
    Want,
    /// Who shows none is sent away.
    Need,
}

/// The `ssl.` keys.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// The server's own key.
    pub key_store: StoreConfig,
    /// Who may sign clients' certificates.
    pub trust_store: Option<StoreConfig>,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
    /// `TLSv1.2` and `TLSv1.3`; both where it is empty.
    pub protocols: Vec<String>,
    /// Java's names of cipher suites; all of them where it is empty.
    pub cipher_suites: Vec<String>,
}

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The key store.
    #[error("use ssl.keyStore.location")]
    KeyStore(#[source] StoreFileError),
    /// The trust store.
    #[error("use ssl.trustStore.location")]
    TrustStore(#[source] StoreFileError),
    /// The versions or the suites.
    #[error("use ssl.enabledProtocols and ssl.ciphersuites")]
    Choice(#[from] TlsChoiceError),
    /// The keys and certificates are readable, and not what TLS can use.
    #[error("use keys and certificates for TLS")]
    Rustls(#[from] rustls::Error),
    /// The trusted certificates cannot check anybody.
    #[error("use the trusted certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Makes what takes connections under TLS.
pub(crate) fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, TlsError> {
    let identity = config.key_store.identity().map_err(TlsError::KeyStore)?;
    let versions = versions(&config.protocols)?;
    let provider = Arc::new(provider(&versions, &config.cipher_suites)?);
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions)?;
    let builder = match (config.client_auth, &config.trust_store) {
        (ClientAuth::None, _) | (_, None) => builder.with_no_client_auth(),
        (client_auth, Some(trust_store)) => {
            let mut roots = RootCertStore::empty();
            for certificate in trust_store.trusted().map_err(TlsError::TrustStore)? {
                roots.add(certificate)?;
            }
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if client_auth == ClientAuth::Want {
                verifier = verifier.allow_unauthenticated();
            }
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let own = identity.chain.first().and_then(|own| X509Certificate::from_der(own).ok());
    let config = match own.is_some_and(|(_, own)| own.version() != X509Version::V3) {
        false => builder.with_single_cert(identity.chain, identity.key)?,
        // rustls cannot read it to compare the keys, and need not read it to show it.
        true => {
            let key = builder.crypto_provider().key_provider.load_private_key(identity.key)?;
            let shown = CertifiedKey::new(identity.chain, key);
            builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
        }
    };
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Shakes hands; gives the subject of the client's certificate, if it has shown one.
pub(crate) async fn accept(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<(TlsStream<TcpStream>, Option<String>)> {
    let stream = acceptor.accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(<[CertificateDer<'_>]>::first);
    let subject = match certificate {
        Some(certificate) => Some(subject(certificate).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a certificate without a readable subject")
        })?),
        None => None,
    };
    Ok((stream, subject))
}

/// The subject of a certificate, as Java's `X500Principal.getName` writes it (RFC 2253).
fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    distinguished_name(certificate.subject())
}

fn distinguished_name(name: &X509Name<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.iter_rdn() {
        let attributes: Option<Vec<String>> = part.iter().map(attribute).collect();
        parts.push(attributes?.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

/// The types that RFC 2253 has names for.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let kind = attribute.attr_type().to_id_string();
    let keyword = KEYWORDS.iter().find(|(id, _)| *id == kind);
    match (keyword, attribute.as_str()) {
        (Some((_, keyword)), Ok(value)) => Some(format!("{keyword}={}", escape(value))),
        _ => {
            let der = attribute.attr_value().to_der_vec().ok()?;
            let hex: String = der.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(format!("{kind}=#{hex}"))
        }
    }
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let trimmed = value.trim_matches(' ');
    let inner = value.len() - value.trim_start_matches(' ').len();
    for (position, character) in value.char_indices() {
        let is_outside = position < inner || position >= inner + trimmed.len();
        if ",=+<>#;\"\\".contains(character) || is_outside {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
