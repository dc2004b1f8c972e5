//! TLS to ZooKeeper: what the client library is given, or what goes before it where it cannot do what is asked for.
//!
//! The library takes certificates as text, and its cryptography from the process: which versions and suites there are is
//! one choice for all ZooKeeper clients of a process. Everything else in the process names its own.

use std::sync::Arc;

use rustls::{ClientConfig, crypto::CryptoProvider};
use security::{
    key_store::{certificates_to_pem, key_to_pem},
    tls::{ClientTls, ClientTlsError, TlsChoiceError, provider, versions},
};
use zookeeper_client::TlsOptions;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum ZkTlsError {
    /// The versions or the suites.
    #[error(transparent)]
    Choice(#[from] TlsChoiceError),
    /// Another client of the process has other versions or suites.
    #[error("another ZooKeeper client of this process uses other TLS versions or cipher suites")]
    Conflict,
    /// The certificates or the key, where names are not checked.
    #[error(transparent)]
    Own(#[from] ClientTlsError),
    /// The certificates or the key.
    #[error("use the keys and certificates")]
    Certificates(#[source] zookeeper_client::Error),
}

/// Who speaks TLS with the servers.
pub(crate) enum Speaker {
    /// The library, which checks names.
    Library(Box<TlsOptions>),
    /// A [`crate::tunnel::Tunnel`], which does not.
    Tunnel(Arc<ClientConfig>),
}

/// Reads keys and certificates for the one who is to use them.
pub(crate) fn speaker(tls: &ClientTls) -> Result<Speaker, ZkTlsError> {
    match tls.checks_names {
        true => tls_options(tls).map(Box::new).map(Speaker::Library),
        false => Ok(Speaker::Tunnel(tls.config()?)),
    }
}

fn tls_options(tls: &ClientTls) -> Result<TlsOptions, ZkTlsError> {
    choose(provider(&versions(&tls.protocols)?, &tls.cipher_suites)?)?;
    let trusted = certificates_to_pem(&tls.trusted);
    let mut options = TlsOptions::new().with_pem_ca(&trusted).map_err(ZkTlsError::Certificates)?;
    if let Some(identity) = &tls.identity {
        let (chain, key) = (certificates_to_pem(&identity.chain), key_to_pem(&identity.key));
        options = options.with_pem_identity(&chain, &key).map_err(ZkTlsError::Certificates)?;
    }
    Ok(options)
}

/// Makes it the process's choice, or finds that it is.
fn choose(provider: CryptoProvider) -> Result<(), ZkTlsError> {
    let suites = |provider: &CryptoProvider| -> Vec<_> {
        provider.cipher_suites.iter().map(|suite| suite.suite()).collect()
    };
    let wanted = suites(&provider);
    // It fails where there is a choice already, which is compared.
    let _ = provider.install_default();
    match CryptoProvider::get_default() {
        Some(chosen) if suites(chosen) == wanted => Ok(()),
        _ => Err(ZkTlsError::Conflict),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::real::{ConnectError, RealStore, ZkConfig};

    #[tokio::test]
    async fn certificates_are_taken_or_refused_before_anything_is_sent() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let mut tls = ClientTls {
            trusted: vec![certificate],
            identity: None,
            protocols: Vec::new(),
            cipher_suites: Vec::new(),
            checks_names: true,
        };
        let mut config = ZkConfig::new("127.0.0.1:1");
        config.connection_timeout = Duration::from_millis(50);
        config.tls = Some(tls.clone());
        let error = RealStore::connect(config.clone()).await.err().unwrap();
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");

        // One choice for all clients of a process.
        tls.protocols = vec!["TLSv1.2".to_owned()];
        config.tls = Some(tls.clone());
        let error = RealStore::connect(config.clone()).await.err().unwrap();
        assert!(matches!(error, ConnectError::Tls(ZkTlsError::Conflict)), "{error}");

        tls.protocols = vec!["SSLv3".to_owned()];
        config.tls = Some(tls.clone());
        let error = RealStore::connect(config.clone()).await.err().unwrap();
        assert!(matches!(error, ConnectError::Tls(ZkTlsError::Choice(_))), "{error}");

        // Where names do not count, the library has no part in it.
        tls.checks_names = false;
        config.tls = Some(tls.clone());
        let error = RealStore::connect(config.clone()).await.err().unwrap();
        assert!(matches!(error, ConnectError::Tls(ZkTlsError::Own(_))), "{error}");
        tls.protocols = vec!["TLSv1.2".to_owned()];
        config.tls = Some(tls.clone());
        let error = RealStore::connect(config.clone()).await.err().unwrap();
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");

        tls.protocols = Vec::new();
        tls.checks_names = true;
        tls.trusted = vec![vec![1, 2, 3].into()];
        config.tls = Some(tls);
        let error = RealStore::connect(config).await.err().unwrap();
        assert!(matches!(error, ConnectError::Tls(ZkTlsError::Certificates(_))), "{error}");
    }
}
