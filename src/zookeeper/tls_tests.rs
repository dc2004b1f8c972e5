//! TLS as clients see it, with keys made in place, in every format.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use p12_keystore::{KeyStoreEntry, PrivateKeyChain};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use security::key_store::KeyStoreError;
use tempfile::TempDir;

use super::*;
use crate::config::{Config, SecureConfig};
use crate::jute::{Reader, Write as _};
use crate::server::Server;

const PASSWORD: &str = "secret";

/// A certificate with its key.
struct Made {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

/// Certificates of one authority: its own, the server's and a client's.
struct Authority {
    root: CertificateDer<'static>,
    server: Made,
    client: Made,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let make = |names: &[(DnType, &str)]| {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in names {
                params.distinguished_name.push(kind.clone(), *value);
            }
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
            Made { certificate, key: key.serialize_der() }
        };
        Authority {
            root,
            server: make(&[(DnType::CommonName, "server")]),
            client: make(&[
                (DnType::OrganizationName, "Sales, Inc"),
                (DnType::CommonName, "kafka"),
            ]),
        }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn write_pem(folder: &Path, authority: &Authority) -> (StoreConfig, StoreConfig) {
    let Made { certificate, key } = &authority.server;
    let text = pem("PRIVATE KEY", key) + &pem("CERTIFICATE", certificate);
    std::fs::write(folder.join("server.pem"), text).unwrap();
    std::fs::write(folder.join("trusted.pem"), pem("CERTIFICATE", &authority.root)).unwrap();
    (store(folder, "server.pem"), store(folder, "trusted.pem"))
}

fn write_pkcs12(folder: &Path, authority: &Authority) -> (StoreConfig, StoreConfig) {
    let certificate = |der: &CertificateDer<'_>| p12_keystore::Certificate::from_der(der).unwrap();
    let write = |name: &str, entry: KeyStoreEntry| {
        let mut keys = p12_keystore::KeyStore::new();
        keys.add_entry("one", entry);
        std::fs::write(folder.join(name), keys.writer(PASSWORD).write().unwrap()).unwrap();
    };
    let Made { certificate: own, key } = &authority.server;
    let key = p12_keystore::PrivateKey::from_der(key).unwrap();
    let chain = PrivateKeyChain::new("one", key, [certificate(own)]);
    write("server.p12", KeyStoreEntry::PrivateKeyChain(chain));
    write("trusted.p12", KeyStoreEntry::Certificate(certificate(&authority.root)));
    (store(folder, "server.p12"), store(folder, "trusted.p12"))
}

fn write_jks(folder: &Path, authority: &Authority) -> (StoreConfig, StoreConfig) {
    let certificate = |der: &CertificateDer<'_>| jks::Certificate {
        cert_type: "X509".to_owned(),
        content: der.to_vec(),
    };
    let creation_time = std::time::UNIX_EPOCH;
    let write = |name: &str, keys: &jks::KeyStore| {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        keys.store(file, PASSWORD.as_bytes()).unwrap();
    };
    let mut keys = jks::KeyStore::new();
    let entry = jks::PrivateKeyEntry {
        creation_time,
        private_key: authority.server.key.clone(),
        certificate_chain: vec![certificate(&authority.server.certificate)],
    };
    keys.set_private_key_entry("one", entry, PASSWORD.as_bytes()).unwrap();
    write("server.jks", &keys);
    let mut trusted = jks::KeyStore::new();
    let entry =
        jks::TrustedCertificateEntry { creation_time, certificate: certificate(&authority.root) };
    trusted.set_trusted_certificate_entry("root", entry).unwrap();
    write("trusted.jks", &trusted);
    (store(folder, "server.jks"), store(folder, "trusted.jks"))
}

fn store(folder: &Path, name: &str) -> StoreConfig {
    let password = PASSWORD.to_owned();
    StoreConfig { path: folder.join(name), password, password_path: None, kind: None }
}

fn config(stores: (StoreConfig, StoreConfig), client_auth: ClientAuth) -> TlsConfig {
    let (key_store, trust_store) = stores;
    TlsConfig {
        key_store,
        trust_store: Some(trust_store),
        client_auth,
        protocols: Vec::new(),
        cipher_suites: Vec::new(),
    }
}

fn start(folder: &TempDir, tls: TlsConfig, super_user: Option<&str>) -> Server {
    let mut config = Config::for_tests(folder.path().join("data"));
    config.client_address = None;
    config.secure = Some(SecureConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls,
        super_user: super_user.map(str::to_owned),
    });
    Server::start(config).unwrap()
}

/// Connects with a certificate or without one; gives what the server says who we are.
fn who_am_i(
    server: &Server,
    authority: &Authority,
    shown: Option<&Made>,
) -> io::Result<Vec<String>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root.clone()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
    let config = match shown {
        Some(made) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.key.clone()));
            builder.with_client_auth_cert(vec![made.certificate.clone()], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.secure_address().unwrap())?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    let mut stream = StreamOwned::new(connection, socket);
    let mut frames = Vec::new();
    let mut connect = Vec::new();
    connect.int(0);
    connect.long(0);
    connect.int(10_000);
    connect.long(0);
    connect.buffer(Some(&[0; 16]));
    connect.boolean(false);
    frames.buffer(Some(&connect));
    let mut who = Vec::new();
    who.int(1);
    who.int(crate::code::op::WHO_AM_I);
    frames.buffer(Some(&who));
    stream.write_all(&frames)?;
    let mut receive = || {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut frame)?;
        Ok::<_, io::Error>(frame)
    };
    receive()?;
    let answer = receive()?;
    let mut reader = Reader::new(&answer[16..]);
    let ids = reader.vector(crate::data::Id::read).unwrap().unwrap();
    Ok(ids.into_iter().map(|id| format!("{}:{}", id.scheme, id.id)).collect())
}

#[test]
fn clients_are_known_by_their_certificates_whatever_the_format_of_the_stores() {
    let authority = Authority::new();
    for write in [write_pem, write_pkcs12, write_jks] {
        let folder = TempDir::new().unwrap();
        let tls = config(write(folder.path(), &authority), ClientAuth::Need);
        let server = start(&folder, tls, None);
        let ids = who_am_i(&server, &authority, Some(&authority.client)).unwrap();
        assert_eq!(ids, ["ip:127.0.0.1", "x509:CN=kafka,O=Sales\\, Inc"]);
        assert!(who_am_i(&server, &authority, None).is_err());
        let stranger = Authority::new();
        assert!(who_am_i(&server, &authority, Some(&stranger.client)).is_err());
    }
}

#[test]
fn a_certificate_can_be_wanted_and_make_a_super_user() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let tls = config(write_pem(folder.path(), &authority), ClientAuth::Want);
    let server = start(&folder, tls, Some("CN=kafka,O=Sales\\, Inc"));
    assert_eq!(who_am_i(&server, &authority, None).unwrap(), ["ip:127.0.0.1"]);
    let ids = who_am_i(&server, &authority, Some(&authority.client)).unwrap();
    assert_eq!(ids[1..], ["super:CN=kafka,O=Sales\\, Inc", "x509:CN=kafka,O=Sales\\, Inc"]);
    // Noise and plain requests end their own connection.
    for bytes in [&b"ruok"[..], &[0, 0, 0, 45, 0, 0], &[0x16, 3, 1, 0xff, 0xff, 1]] {
        let mut stream = TcpStream::connect(server.secure_address().unwrap()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // A reset is as good an end.
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(who_am_i(&server, &authority, None).is_ok());
}

#[test]
fn an_encrypted_key_is_opened_with_its_password() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let (mut keys, trusted) = write_pem(folder.path(), &authority);
    let key = pkcs8::PrivateKeyInfoRef::try_from(&authority.server.key[..]).unwrap();
    let parameters =
        pkcs8::pkcs5::pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(1000, &[1; 16], [2; 16])
            .unwrap();
    let encrypted = key.encrypt_with_params(parameters, PASSWORD).unwrap();
    let text = pem("CERTIFICATE", &authority.server.certificate)
        + &pem("ENCRYPTED PRIVATE KEY", encrypted.as_bytes());
    std::fs::write(&keys.path, text).unwrap();
    assert_eq!(keys.identity().unwrap().key.secret_der(), &authority.server.key[..]);
    // The password may lie in a file.
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    keys.password = String::new();
    assert!(matches!(keys.identity(), Err(StoreFileError::Store(KeyStoreError::Open { .. }))));
    keys.password_path = Some(file);
    assert!(keys.identity().is_ok());
    assert!(matches!(
        trusted.identity(),
        Err(StoreFileError::Store(KeyStoreError::Missing { .. }))
    ));
}

#[test]
fn stores_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    for write in [write_pkcs12, write_jks] {
        let (mut keys, trusted) = write(folder.path(), &authority);
        assert!(matches!(
            keys.trusted(),
            Err(StoreFileError::Store(KeyStoreError::Missing { .. }))
        ));
        assert!(matches!(
            trusted.identity(),
            Err(StoreFileError::Store(KeyStoreError::Missing { .. }))
        ));
        keys.password = "guess".to_owned();
        let error = keys.identity().unwrap_err();
        assert!(matches!(&error, StoreFileError::Store(KeyStoreError::Open { .. })), "{error}");
        assert!(!error.to_string().contains("guess"));
        keys.path = folder.path().join("nowhere.jks");
        assert!(matches!(keys.identity(), Err(StoreFileError::Read { .. })));
    }
    let mut tls = config(write_pem(folder.path(), &authority), ClientAuth::Need);
    tls.protocols = vec!["TLSv1.1".to_owned()];
    assert!(matches!(acceptor(&tls).err(), Some(TlsError::Choice(_))));
    tls.protocols = vec!["TLSv1.2".to_owned()];
    tls.cipher_suites = vec!["TLS_RSA_WITH_NULL_MD5".to_owned()];
    assert!(matches!(acceptor(&tls).err(), Some(TlsError::Choice(TlsChoiceError::CipherSuites))));
    tls.cipher_suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    assert!(acceptor(&tls).is_ok());
}

#[test]
fn subjects_are_escaped_as_java_does() {
    assert_eq!(escape("a,b"), "a\\,b");
    assert_eq!(escape(" a b "), "\\ a b\\ ");
    assert_eq!(escape("a\"\\<>;+"), "a\\\"\\\\\\<\\>\\;\\+");
}

/// The length and what it takes, of the DER element at the start.
fn element(der: &[u8]) -> (usize, usize) {
    match der[1] {
        short @ 0..0x80 => (2, usize::from(short)),
        long => {
            let bytes = &der[2..2 + usize::from(long & 0x7f)];
            let length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (2 + bytes.len(), length)
        }
    }
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head: &[u8] = match length {
        [0, _] => &[0x30, 0x81, length[1]],
        _ => &[0x30, 0x82, length[0], length[1]],
    };
    [head, content].concat()
}

/// A certificate of X.509 version 1, as `openssl x509 -req` makes it: without a version and without extensions.
fn of_version_1() -> Made {
    let key = KeyPair::generate().unwrap();
    let newer = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let der: &[u8] = newer.der();
    let signed = &der[element(der).0..];
    let (head, length) = element(signed);
    let (mut fields, algorithm) = (&signed[head..head + length], &signed[head + length..]);
    let (head, length) = element(algorithm);
    let algorithm = &algorithm[..head + length];
    let mut kept = Vec::new();
    while !fields.is_empty() {
        let (head, length) = element(fields);
        let (field, rest) = fields.split_at(head + length);
        if ![0xa0, 0xa3].contains(&field[0]) {
            kept.extend_from_slice(field);
        }
        fields = rest;
    }
    let signed = sequence(&kept);
    let signature = rcgen::SigningKey::sign(&key, &signed).unwrap();
    let length = u8::try_from(signature.len() + 1).unwrap();
    let bits = [&[0x03, length, 0], &signature[..]].concat();
    let certificate = sequence(&[&signed[..], algorithm, &bits].concat()).into();
    Made { certificate, key: key.serialize_der() }
}

#[test]
fn a_certificate_of_version_1_is_shown() {
    let old = of_version_1();
    let (_, read) = X509Certificate::from_der(&old.certificate).unwrap();
    assert_eq!(read.version(), X509Version::V1);
    let authority = Authority { server: of_version_1(), ..Authority::new() };
    let folder = TempDir::new().unwrap();
    let tls = config(write_pem(folder.path(), &authority), ClientAuth::Need);
    let server = start(&folder, tls, None);
    // A client of rustls gets as far as the certificate; others read it.
    let error = who_am_i(&server, &authority, Some(&authority.client)).unwrap_err();
    assert!(error.to_string().contains("UnsupportedCertVersion"), "{error}");
}
