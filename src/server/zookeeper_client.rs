//! How the broker reaches ZooKeeper: what its properties, and Java's system properties in `KAFKA_OPTS`, say of TLS and of a
//! login. Source: `KafkaServer.zkClientConfigFromKafkaConfig`, `JaasUtils`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use common::{
    config::{
        broker::{BrokerConfig, ConfigErrors},
        value::Password,
    },
    properties::Properties,
};
use security::{
    jaas::{self, JaasError, Login},
    java_options::JavaOptions,
    key_store::{KeyStore, KeyStoreError},
    tls::ClientTls,
};
use zk::{metrics::ZkMetrics, real::ZkConfig};

/// Kafka's keys, and the system properties that stand in for them where the file has no value.
/// Source: `ZkConfigs.ZK_SSL_CONFIG_TO_SYSTEM_PROPERTY_MAP`.
const SYSTEM_PROPERTIES: [(&str, &str); 14] = [
    (CLIENT_ENABLE, "zookeeper.client.secure"),
    ("zookeeper.clientCnxnSocket", "zookeeper.clientCnxnSocket"),
    (KEY_STORE, "zookeeper.ssl.keyStore.location"),
    ("zookeeper.ssl.keystore.password", "zookeeper.ssl.keyStore.password"),
    ("zookeeper.ssl.keystore.type", "zookeeper.ssl.keyStore.type"),
    (TRUST_STORE, "zookeeper.ssl.trustStore.location"),
    ("zookeeper.ssl.truststore.password", "zookeeper.ssl.trustStore.password"),
    ("zookeeper.ssl.truststore.type", "zookeeper.ssl.trustStore.type"),
    ("zookeeper.ssl.protocol", "zookeeper.ssl.protocol"),
    ("zookeeper.ssl.enabled.protocols", "zookeeper.ssl.enabledProtocols"),
    ("zookeeper.ssl.cipher.suites", "zookeeper.ssl.ciphersuites"),
    (ENDPOINT_IDENTIFICATION, "zookeeper.ssl.hostnameVerification"),
    (CRL_ENABLE, "zookeeper.ssl.crl"),
    (OCSP_ENABLE, "zookeeper.ssl.ocsp"),
];
const CLIENT_ENABLE: &str = "zookeeper.ssl.client.enable";
const CRL_ENABLE: &str = "zookeeper.ssl.crl.enable";
const OCSP_ENABLE: &str = "zookeeper.ssl.ocsp.enable";
const KEY_STORE: &str = "zookeeper.ssl.keystore.location";
const TRUST_STORE: &str = "zookeeper.ssl.truststore.location";
const ENDPOINT_IDENTIFICATION: &str = "zookeeper.ssl.endpoint.identification.algorithm";

/// Where Java finds the JAAS file.
const LOGIN_CONFIG: &str = "java.security.auth.login.config";
/// Whether there is a login at all; `true` by default.
const SASL_CLIENT: &str = "zookeeper.sasl.client";
/// The section of the JAAS file; `Client` by default.
const SASL_SECTION: &str = "zookeeper.sasl.clientconfig";

/// Why ZooKeeper cannot be reached as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum ZooKeeperClientError {
    /// A file cannot be read.
    #[error("{key}: read {path}")]
    Read {
        /// Who names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A store cannot be used.
    #[error("use {key}")]
    Store {
        /// Who names it.
        key: &'static str,
        /// Why not.
        source: KeyStoreError,
    },
    /// Java's system properties.
    #[error("Java's system properties: {0}")]
    SystemProperties(#[from] ConfigErrors),
    /// Nobody to trust.
    #[error(
        "zookeeper.ssl.client.enable=true needs zookeeper.ssl.truststore.location: there is no list of authorities to \
         trust by default, as Java has one"
    )]
    NoTrustStore,
    /// Revocation would have to be checked.
    #[error(
        "zookeeper.ssl.crl.enable and zookeeper.ssl.ocsp.enable must be false: revocation is not checked"
    )]
    Revocation,
    /// The JAAS file.
    #[error(
        "Exception while loading Zookeeper JAAS login context [{LOGIN_CONFIG}={}, {SASL_CLIENT}={}, {SASL_SECTION}={section}]",
        path.display(), if *is_off { "false" } else { "default:true" }
    )]
    Login {
        /// The file.
        path: PathBuf,
        /// The section.
        section: String,
        /// Whether a system property turns logins off, against the file.
        is_off: bool,
        /// Why not; nothing where a property forbids it.
        source: Option<JaasError>,
    },
}

/// Java's system properties as the lines of a file that they stand in for. Of a switch only `true` turns it on.
fn system_properties(java: &JavaOptions) -> Properties {
    let mut properties = Properties::new();
    for (key, name) in SYSTEM_PROPERTIES {
        let Some(value) = java.property(name) else { continue };
        let value = match (key, value) {
            (ENDPOINT_IDENTIFICATION, "true") => "HTTPS",
            (ENDPOINT_IDENTIFICATION, _) => "",
            (CLIENT_ENABLE | CRL_ENABLE | OCSP_ENABLE, value) if value != "true" => "false",
            _ => value,
        };
        properties.insert(key.to_owned(), value.to_owned());
    }
    properties
}

/// What a command says of TLS to ZooKeeper: in the file of `--zk-tls-config-file`, else in Java's system properties. Nothing where
/// it is not to be used.
pub fn tls_of_tool(
    file: Properties,
    java: &JavaOptions,
) -> Result<Option<ClientTls>, ZooKeeperClientError> {
    let mut properties = system_properties(java);
    properties.extend(file);
    match properties.get(CLIENT_ENABLE).is_some_and(|value| is_true(value.trim())) {
        true => TlsSettings::of_tool(&properties).read().map(Some),
        false => Ok(None),
    }
}

/// What the store over ZooKeeper is to be given. Reads key stores and the JAAS file. Java's system properties count here alone:
/// the configuration that the broker shows is that of its file.
pub(crate) fn zk_config(
    config: &BrokerConfig,
    java: &JavaOptions,
    metrics: ZkMetrics,
) -> Result<ZkConfig, ZooKeeperClientError> {
    let config = &config.with_more(&system_properties(java))?;
    let milliseconds = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let requests_max = usize::try_from(config.zookeeper_max_in_flight_requests);
    let bytes_max = java.property("jute.maxbuffer").and_then(|value| value.parse().ok());
    let defaults = ZkConfig::new(config.zookeeper_connect.clone());
    Ok(ZkConfig {
        session_timeout: milliseconds(config.zookeeper_session_timeout_ms),
        connection_timeout: milliseconds(config.zookeeper_connection_timeout_ms),
        max_in_flight_requests: requests_max.unwrap_or(1),
        request_bytes_max: bytes_max.unwrap_or(defaults.request_bytes_max),
        set_acl: config.zookeeper_set_acl,
        tls: match config.zookeeper_ssl_client_enable {
            true => Some(TlsSettings::of_broker(config).read()?),
            false => None,
        },
        login: login(java)?,
        metrics,
        ..defaults
    })
}

/// What properties say of TLS to ZooKeeper.
struct TlsSettings<'a> {
    key_store: Store<'a>,
    trust_store: Store<'a>,
    protocols: Vec<String>,
    cipher_suites: Vec<String>,
    endpoint_identification: &'a str,
    checks_revocation: bool,
}

impl TlsSettings<'_> {
    fn of_broker(config: &BrokerConfig) -> TlsSettings<'_> {
        let protocol = || vec![config.zookeeper_ssl_protocol.clone()];
        TlsSettings {
            key_store: Store {
                key: KEY_STORE,
                path: config.zookeeper_ssl_keystore_location.as_deref(),
                password: config.zookeeper_ssl_keystore_password.as_ref().map(Password::secret),
                kind: config.zookeeper_ssl_keystore_type.as_deref(),
            },
            trust_store: Store {
                key: TRUST_STORE,
                path: config.zookeeper_ssl_truststore_location.as_deref(),
                password: config.zookeeper_ssl_truststore_password.as_ref().map(Password::secret),
                kind: config.zookeeper_ssl_truststore_type.as_deref(),
            },
            protocols: config.zookeeper_ssl_enabled_protocols.clone().unwrap_or_else(protocol),
            cipher_suites: config.zookeeper_ssl_cipher_suites.clone().unwrap_or_default(),
            endpoint_identification: &config.zookeeper_ssl_endpoint_identification_algorithm,
            checks_revocation: config.zookeeper_ssl_crl_enable || config.zookeeper_ssl_ocsp_enable,
        }
    }

    fn of_tool(properties: &Properties) -> TlsSettings<'_> {
        let value = |key: &str| properties.get(key).map(|value| value.trim());
        let list = |key: &str| value(key).map(list);
        let is_on = |key: &str| value(key).is_some_and(is_true);
        let protocol = || vec![value("zookeeper.ssl.protocol").unwrap_or("TLSv1.2").to_owned()];
        TlsSettings {
            key_store: Store {
                key: KEY_STORE,
                path: value(KEY_STORE),
                password: value("zookeeper.ssl.keystore.password"),
                kind: value("zookeeper.ssl.keystore.type"),
            },
            trust_store: Store {
                key: TRUST_STORE,
                path: value(TRUST_STORE),
                password: value("zookeeper.ssl.truststore.password"),
                kind: value("zookeeper.ssl.truststore.type"),
            },
            protocols: list("zookeeper.ssl.enabled.protocols").unwrap_or_else(protocol),
            cipher_suites: list("zookeeper.ssl.cipher.suites").unwrap_or_default(),
            endpoint_identification: value(ENDPOINT_IDENTIFICATION).unwrap_or("HTTPS"),
            checks_revocation: is_on(CRL_ENABLE) || is_on(OCSP_ENABLE),
        }
    }

    fn read(&self) -> Result<ClientTls, ZooKeeperClientError> {
        if self.checks_revocation {
            return Err(ZooKeeperClientError::Revocation);
        }
        Ok(ClientTls {
            trusted: self
                .trust_store
                .read(KeyStore::trusted)?
                .ok_or(ZooKeeperClientError::NoTrustStore)?,
            identity: self.key_store.read(KeyStore::identity)?,
            protocols: self.protocols.clone(),
            cipher_suites: self.cipher_suites.clone(),
            checks_names: self.endpoint_identification.eq_ignore_ascii_case("HTTPS"),
        })
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// A store that the properties name, or none.
struct Store<'a> {
    key: &'static str,
    path: Option<&'a str>,
    password: Option<&'a str>,
    kind: Option<&'a str>,
}

impl Store<'_> {
    fn read<T>(
        &self,
        part: fn(&KeyStore) -> Result<T, KeyStoreError>,
    ) -> Result<Option<T>, ZooKeeperClientError> {
        let key = self.key;
        let Some(path) = self.path.filter(|path| !path.is_empty()).map(Path::new) else {
            return Ok(None);
        };
        let bytes = std::fs::read(path).map_err(|source| ZooKeeperClientError::Read {
            key,
            path: path.to_owned(),
            source,
        })?;
        let password = self.password.unwrap_or_default().to_owned();
        let kind = self.kind.filter(|kind| !kind.is_empty());
        KeyStore::new(path, bytes, password, kind)
            .and_then(|store| part(&store))
            .map(Some)
            .map_err(|source| ZooKeeperClientError::Store { key, source })
    }
}

/// The login of the JAAS file; none where there is no file, or no section for ZooKeeper in it.
pub fn login(java: &JavaOptions) -> Result<Option<Login>, ZooKeeperClientError> {
    let Some(path) = java.property(LOGIN_CONFIG).map(PathBuf::from) else { return Ok(None) };
    let section = java.property(SASL_SECTION).unwrap_or("Client").to_owned();
    let is_off = java.property(SASL_CLIENT).is_some_and(|on| !on.eq_ignore_ascii_case("true"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(ZooKeeperClientError::Read { key: LOGIN_CONFIG, path, source }),
    };
    let failure =
        |source| ZooKeeperClientError::Login { path, section: section.clone(), is_off, source };
    match jaas::login(&text, &section) {
        // The file may be for the broker's own listeners alone.
        Err(JaasError::NoSection(_)) => Ok(None),
        Ok(_) if is_off => Err(failure(None)),
        Ok(login) => Ok(Some(login)),
        Err(error) => Err(failure(Some(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use tempfile::TempDir;

    use super::*;

    fn configured(lines: &[(&str, &str)], java: &str) -> Result<ZkConfig, String> {
        let java = JavaOptions::new(java);
        let lines = [("broker.id", "1"), ("zookeeper.connect", "zk:1/k")].iter().chain(lines);
        let properties =
            lines.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = BrokerConfig::parse(&properties).unwrap();
        zk_config(&config, &java, ZkMetrics::default()).map_err(|error| {
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{source}")
        })
    }

    fn trusted(folder: &TempDir) -> String {
        let params = rcgen::CertificateParams::new(vec!["zk".to_owned()]).unwrap();
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let path = folder.path().join("trusted.pem");
        let text = security::key_store::certificates_to_pem(&[certificate.der().clone()]);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    #[test]
    fn limits_come_from_the_properties() {
        let lines = [
            ("zookeeper.session.timeout.ms", "6000"),
            ("zookeeper.max.in.flight.requests", "3"),
            ("zookeeper.set.acl", "true"),
        ];
        let config = configured(&lines, "-Djute.maxbuffer=1000000").unwrap();
        assert_eq!(config.session_timeout, Duration::from_secs(6));
        assert_eq!(config.connection_timeout, Duration::from_secs(6));
        assert_eq!((config.max_in_flight_requests, config.set_acl), (3, true));
        assert_eq!(config.request_bytes_max, 1_000_000);
        assert!(config.tls.is_none() && config.login.is_none());
    }

    #[test]
    fn tls_is_read_from_the_file_and_from_javas_properties() {
        let folder = TempDir::new().unwrap();
        let store = trusted(&folder);
        let lines = [
            ("zookeeper.ssl.client.enable", "true"),
            ("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty"),
            (TRUST_STORE, store.as_str()),
        ];
        let tls = configured(&lines, "").unwrap().tls.unwrap();
        assert_eq!((tls.trusted.len(), tls.protocols), (1, vec!["TLSv1.2".to_owned()]));
        let more = [lines[0], lines[2], ("zookeeper.ssl.enabled.protocols", "TLSv1.3,TLSv1.2")];
        assert_eq!(configured(&more, "").unwrap().tls.unwrap().protocols.len(), 2);

        let java = format!(
            "-Dzookeeper.client.secure=true -Dzookeeper.ssl.trustStore.location={store} \
             -Dzookeeper.ssl.hostnameVerification=true"
        );
        assert!(configured(&[], &java).unwrap().tls.is_some());
        let of_tool = tls_of_tool(Properties::new(), &JavaOptions::new(java.as_str())).unwrap();
        assert!(of_tool.is_some_and(|tls| tls.checks_names && tls.protocols == ["TLSv1.2"]));
        let anyone = [lines[0], lines[2], (ENDPOINT_IDENTIFICATION, "")];
        assert!(!configured(&anyone, "").unwrap().tls.unwrap().checks_names);
        // Only this word is a yes, as in Java.
        for (secure, verified) in [("TRUE", "true"), ("true", "TRUE")] {
            let java = java.replace("secure=true", &format!("secure={secure}"));
            let java = java.replace("Verification=true", &format!("Verification={verified}"));
            let tls = configured(&[], &java).unwrap().tls;
            assert!(tls.is_none_or(|tls| secure == "true" && !tls.checks_names));
        }
        // The file counts first.
        let file = [("zookeeper.ssl.client.enable", "false")];
        assert!(configured(&file, &java).unwrap().tls.is_none());
    }

    #[test]
    fn what_would_be_less_safe_than_it_looks_is_refused() {
        let folder = TempDir::new().unwrap();
        let store = trusted(&folder);
        let on = ("zookeeper.ssl.client.enable", "true");
        let trust = (TRUST_STORE, store.as_str());
        let missing = (KEY_STORE, "/nowhere/keys.jks");
        let wrong = (KEY_STORE, store.as_str());
        for (lines, expected) in [
            (&[on][..], "zookeeper.ssl.client.enable=true needs zookeeper.ssl.truststore.location"),
            (&[on, trust, ("zookeeper.ssl.crl.enable", "true")], "zookeeper.ssl.crl.enable and"),
            (&[on, trust, missing], "zookeeper.ssl.keystore.location: read /nowhere/keys.jks: No"),
            (&[on, trust, wrong], "use zookeeper.ssl.keystore.location: "),
        ] {
            let error = configured(lines, "").err().unwrap();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_login_is_that_of_the_jaas_file() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("jaas.conf");
        let java =
            |more: &str| format!("-Djava.security.auth.login.config={} {more}", path.display());
        let digest = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        std::fs::write(
            &path,
            format!(
                "Client {{ {digest} username=kafka password=\"x y\"; }};
                 Other {{ {digest} username=other password=z; }};
                 Kerberos {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; }};"
            ),
        )
        .unwrap();
        let login = |more| configured(&[], &java(more)).map(|config| config.login);
        let user = |more| login(more).unwrap().map(|login| login.username);
        assert_eq!(user("").as_deref(), Some("kafka"));
        assert_eq!(user("-Dzookeeper.sasl.clientconfig=Other").as_deref(), Some("other"));
        // A file for the broker's listeners alone.
        assert_eq!(user("-Dzookeeper.sasl.clientconfig=Nobody"), None);
        let error = login("-Dzookeeper.sasl.clientconfig=Kerberos").err().unwrap();
        assert!(
            error.ends_with("Krb5LoginModule is not supported: only DigestLoginModule is"),
            "{error}"
        );
        let error = login("-Dzookeeper.sasl.client=false").err().unwrap();
        assert!(error.contains("zookeeper.sasl.client=false"), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = login("").err().unwrap();
        assert!(error.starts_with("java.security.auth.login.config: read "), "{error}");
    }
}
