//! A server's and a client's side of TLS, for tests.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, ServerConfig, pki_types::PrivateKeyDer};
use security::tls::ClientTls;

/// A server with a certificate of its own for `name`, and a client that trusts it, or another one of that name.
pub(crate) fn sides(
    name: &str,
    is_trusted: bool,
    checks_names: bool,
) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let certificate = || {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().der().clone(), key)
    };
    let (own, key) = certificate();
    let client = ClientTls {
        trusted: vec![if is_trusted { own.clone() } else { certificate().0 }],
        identity: None,
        protocols: Vec::new(),
        cipher_suites: Vec::new(),
        checks_names,
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own], key)
        .unwrap();
    (Arc::new(server), client.config().unwrap())
}
