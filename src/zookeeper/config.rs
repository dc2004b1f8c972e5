//! `zookeeper.properties`. Source: ZooKeeper's `QuorumPeerConfig`, and the system properties that
//! its other keys become.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use common::properties::{self, Properties};
use security::java_options::JavaOptions;
use thiserror::Error;

use crate::key_store::StoreConfig;
use crate::tls::{ClientAuth, TlsConfig};
use crate::txn_log::Durability;

/// Settings of a server, with the defaults of ZooKeeper.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where snapshots are.
    pub data_dir: PathBuf,
    /// Where logs are; `data_dir` by default.
    pub data_log_dir: PathBuf,
    /// Where to listen; port 0 lets the system choose.
    pub client_address: Option<SocketAddr>,
    /// Where to listen for TLS, and with which keys; with it `client_address` may be missing.
    pub secure: Option<SecureConfig>,
    /// The admin server, if there is to be one.
    pub admin: Option<AdminConfig>,
    /// The unit of time; sessions end at its multiples.
    pub tick: Duration,
    /// Connections per address of a client; 0 for any number.
    pub client_connections_max: usize,
    /// Connections in all; 0 for any number.
    pub connections_max: usize,
    /// Bounds of what a client may ask for.
    pub session_timeout_ms_min: i32,
    /// Bounds of what a client may ask for.
    pub session_timeout_ms_max: i32,
    /// Whether a reply waits for the disk.
    pub durability: Durability,
    /// Transactions from one snapshot to the next.
    pub snap_count: u64,
    /// The largest request, in bytes.
    pub jute_buffer_bytes_max: usize,
    /// Snapshots that a purge leaves.
    pub purge_retain_count: usize,
    /// Time from purge to purge; none without.
    pub purge_interval: Option<Duration>,
    /// The four-letter words that are answered.
    pub words: BTreeSet<String>,
    /// The digest id of the super user.
    pub super_digest: Option<String>,
    /// Users that may log in by SASL, with their passwords; see [`security::jaas::users`].
    pub sasl_users: BTreeMap<String, String>,
    /// Whether ACLs may name such users.
    pub sasl: bool,
    /// Whether a client that has not logged in is sent away.
    pub sasl_required: bool,
    /// The user of SASL that is a super user.
    pub super_user: Option<String>,
    /// Whether TTL nodes are enabled.
    pub extended_types: bool,
    /// Whether hard quotas are enforced.
    pub enforce_quota: bool,
    /// Whether ACLs are left unchecked.
    pub skip_acl: bool,
    /// How often empty container nodes are looked for.
    pub container_check: Duration,
    /// What the one who wrote the file should know: unknown keys, and such without effect.
    pub warnings: Vec<String>,
}

/// The port for TLS.
#[derive(Debug, Clone)]
pub struct SecureConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// Keys and who is trusted.
    pub tls: TlsConfig,
    /// The subject of a certificate that makes a super user.
    pub super_user: Option<String>,
}

/// The admin server: commands over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The path in front of the commands' names.
    pub command_url: String,
}

/// What is wrong with a file: all of it, a line each.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

/// Known four-letter words, in the order of ZooKeeper's documentation.
pub(crate) const WORDS: [&str; 18] = [
    "conf", "cons", "crst", "dump", "envi", "ruok", "srst", "srvr", "stat", "wchs", "wchc", "wchp",
    "mntr", "isro", "dirs", "hash", "gtmk", "stmk",
];

/// Keys for the members of an ensemble; alone they mean nothing.
const ENSEMBLE_KEYS: [&str; 17] = [
    "initLimit",
    "syncLimit",
    "connectToLearnerMasterLimit",
    "electionAlg",
    "quorumListenOnAllIPs",
    "peerType",
    "syncEnabled",
    "standaloneEnabled",
    "sslQuorum",
    "portUnification",
    "sslQuorumReloadCertFiles",
    "localSessionsEnabled",
    "localSessionsUpgradingEnabled",
    "observerMasterPort",
    "cnxTimeout",
    "leaderServes",
    "oraclePath",
];

/// Keys that Apache's reads from the file alone. Source: `QuorumPeerConfig.parseProperties`.
const FILE_KEYS: [&str; 16] = [
    "dataDir",
    "dataLogDir",
    "clientPort",
    "clientPortAddress",
    "secureClientPort",
    "secureClientPortAddress",
    "tickTime",
    "maxClientCnxns",
    "minSessionTimeout",
    "maxSessionTimeout",
    "autopurge.snapRetainCount",
    "autopurge.purgeInterval",
    "clientPortListenBacklog",
    "reconfigEnabled",
    "dynamicConfigFile",
    "standaloneEnabled",
];

/// System properties without ZooKeeper's prefix. Apache's does not look for these in the file, so they win.
const BARE_PROPERTIES: [&str; 2] = ["jute.maxbuffer", "znode.container.checkIntervalMs"];

const NO_SASL: &str =
    "{} needs authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";

/// What `KAFKA_OPTS` may hold for a client of ZooKeeper.
const CLIENT_PROPERTIES: [&str; 2] = ["client.secure", "clientCnxnSocket"];

/// Keys that change nothing here and that nobody needs to hear of.
const NEEDLESS_KEYS: [&str; 5] = [
    // Apache speaks TLS with Netty alone.
    "serverCnxnFactory",
    "ssl.hostnameVerification",
    "ssl.authProvider",
    "ssl.handshakeDetectionTimeoutMillis",
    "admin.idleTimeout",
];

impl Config {
    /// A server for tests: a folder, loopback, a port that the system chooses, short ticks, and a
    /// log that survives the process but no power cut.
    pub fn for_tests(data_dir: impl Into<PathBuf>) -> Config {
        let data_dir = data_dir.into();
        Config {
            data_log_dir: data_dir.clone(),
            data_dir,
            client_address: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            secure: None,
            admin: None,
            tick: Duration::from_millis(100),
            client_connections_max: 0,
            connections_max: 0,
            session_timeout_ms_min: 100,
            session_timeout_ms_max: 60_000,
            durability: Durability::Cached,
            snap_count: 100_000,
            jute_buffer_bytes_max: 0xfffff,
            purge_retain_count: 3,
            purge_interval: None,
            words: WORDS.map(str::to_owned).into(),
            super_digest: None,
            sasl_users: BTreeMap::new(),
            sasl: false,
            sasl_required: false,
            super_user: None,
            extended_types: true,
            enforce_quota: false,
            skip_acl: false,
            container_check: Duration::from_secs(60),
            warnings: Vec::new(),
        }
    }

    /// Reads a file. Finds every fault in it before it gives up.
    pub fn parse(text: &[u8]) -> Result<Config, ConfigError> {
        Config::parse_with(text, &JavaOptions::default())
    }

    /// Reads a file, and the system properties that stand beside it: `zookeeper.x` is the file's key `x`, which wins.
    pub fn parse_with(text: &[u8], java: &JavaOptions) -> Result<Config, ConfigError> {
        let mut lines = Lines::new(properties::parse(text), java);
        refuse_ensemble(&mut lines);
        let data_dir = PathBuf::from(lines.take("dataDir").unwrap_or_else(|| {
            lines.errors.push("dataDir is not set".to_owned());
            String::new()
        }));
        let data_log_dir = lines.take("dataLogDir").map_or_else(|| data_dir.clone(), PathBuf::from);
        let secure = secure(&mut lines);
        let client_address = client_address(&mut lines, secure.is_some());
        let tick_ms: u32 = lines.number("tickTime", 3000, 1);
        let bound = |ticks: u32| i32::try_from(tick_ms.saturating_mul(ticks)).unwrap_or(i32::MAX);
        let session_timeout_ms_min = match lines.number("minSessionTimeout", -1, -1) {
            -1 => bound(2),
            timeout => timeout,
        };
        let session_timeout_ms_max = match lines.number("maxSessionTimeout", -1, -1) {
            -1 => bound(20),
            timeout => timeout,
        };
        if session_timeout_ms_min > session_timeout_ms_max {
            lines.errors.push(format!(
                "minSessionTimeout={session_timeout_ms_min}: must not be larger than \
                 maxSessionTimeout={session_timeout_ms_max}"
            ));
        }
        // Anything below 1 is off.
        let purge_hours: i32 = lines.number("autopurge.purgeInterval", 0, i32::MIN);
        let purge_interval = u64::try_from(purge_hours).ok().filter(|hours| *hours > 0);
        let sasl = lines.authenticates_by_sasl();
        let config = Config {
            data_dir,
            data_log_dir,
            client_address,
            secure,
            admin: admin(&mut lines),
            tick: Duration::from_millis(u64::from(tick_ms)),
            client_connections_max: lines.number("maxClientCnxns", 60, 0),
            connections_max: lines.number("maxCnxns", 0, 0),
            session_timeout_ms_min,
            session_timeout_ms_max,
            durability: match lines.take("forceSync").as_deref() {
                Some("no") => Durability::Cached,
                _ => Durability::Synced,
            },
            snap_count: lines.at_least("snapCount", 100_000, 2),
            jute_buffer_bytes_max: lines.number("jute.maxbuffer", 0xfffff, 1),
            purge_retain_count: lines.at_least("autopurge.snapRetainCount", 3, 3),
            purge_interval: purge_interval.map(|hours| Duration::from_secs(hours * 3600)),
            words: words(lines.take("4lw.commands.whitelist").as_deref().unwrap_or_default()),
            super_digest: lines.take("DigestAuthenticationProvider.superDigest"),
            sasl_users: BTreeMap::new(),
            sasl,
            sasl_required: lines.requires_sasl(sasl),
            super_user: lines.take("superUser"),
            extended_types: lines.boolean("extendedTypesEnabled"),
            enforce_quota: lines.boolean("enforceQuota"),
            skip_acl: lines.take("skipACL").is_some_and(|value| value == "yes"),
            container_check: Duration::from_millis(lines.number(
                "znode.container.checkIntervalMs",
                60_000,
                1,
            )),
            warnings: Vec::new(),
        };
        let warnings = warnings(&mut lines);
        match lines.errors.is_empty() {
            true => Ok(Config { warnings, ..config }),
            false => Err(ConfigError(lines.errors)),
        }
    }
}

/// A file's lines: what is read is taken out, what is left is unknown.
struct Lines {
    properties: Properties,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// Those that are no lines, but system properties: by their keys, their names.
    of_java: BTreeMap<String, String>,
}

impl Lines {
    fn new(file: Properties, java: &JavaOptions) -> Lines {
        let mut lines = Lines {
            properties: Properties::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            of_java: BTreeMap::new(),
        };
        // In Apache's these become system properties that nobody asks for.
        let (idle, file): (Properties, Properties) =
            file.into_iter().partition(|(key, _)| key.starts_with("zookeeper."));
        for key in idle.into_keys() {
            let text = "unknown key, ignored: keys of the file are written without \"zookeeper.\"";
            lines.warnings.push(format!("{key}: {text}"));
        }
        for (name, value) in java.properties() {
            let is_bare = BARE_PROPERTIES.contains(&name);
            let Some(key) = name.strip_prefix("zookeeper.").or(is_bare.then_some(name)) else {
                continue;
            };
            if FILE_KEYS.contains(&key) {
                lines.warnings.push(format!("-D{name}: is read from the file alone, ignored"));
            } else if is_bare || !file.contains_key(key) {
                lines.properties.insert(key.to_owned(), value.to_owned());
                lines.of_java.insert(key.to_owned(), format!("-D{name}"));
            }
        }
        for (key, value) in file {
            lines.properties.entry(key).or_insert(value);
        }
        lines
    }

    fn take(&mut self, key: &str) -> Option<String> {
        Some(self.properties.remove(key)?.trim().to_owned())
    }

    fn number<T: TryFrom<i32>>(&mut self, key: &str, default: T, min: i32) -> T {
        let Some(value) = self.take(key) else { return default };
        let number = value.parse().ok().filter(|number| *number >= min);
        number.and_then(|number| T::try_from(number).ok()).unwrap_or_else(|| {
            let max = i32::MAX;
            self.errors.push(format!("{key}={value}: must be a whole number from {min} to {max}"));
            default
        })
    }

    fn port(&mut self, key: &str, default: u16) -> u16 {
        let Some(value) = self.take(key) else { return default };
        value.parse().unwrap_or_else(|_| {
            self.errors.push(format!("{key}={value}: must be a whole number from 0 to 65535"));
            default
        })
    }

    /// A number that counts as `min` where it is smaller.
    fn at_least<T: TryFrom<i32>>(&mut self, key: &str, default: T, min: i32) -> T {
        if let Some(value) = self.properties.get_mut(key)
            && value.trim().parse::<i32>().is_ok_and(|number| number < min)
        {
            self.warnings.push(format!("{key}={value}: is taken as {min}, the least there can be"));
            *value = min.to_string();
        }
        self.number(key, default, min)
    }

    /// `authProvider.1=...SASLAuthenticationProvider`; other providers there are warned of.
    fn authenticates_by_sasl(&mut self) -> bool {
        let before = self.properties.len();
        self.properties.retain(|key, value| {
            !(key.starts_with("authProvider.") && value.contains("SASLAuthenticationProvider"))
        });
        self.properties.len() < before
    }

    /// Source: ZooKeeper's `AuthenticationHelper`.
    fn requires_sasl(&mut self, has_provider: bool) -> bool {
        let old = self.boolean("sessionRequireClientSASLAuth");
        let enforced = self.boolean("enforce.auth.enabled");
        let schemes = self.take("enforce.auth.schemes");
        if !old && !enforced {
            return false;
        }
        let error = match schemes.as_deref() {
            _ if old && has_provider => return true,
            _ if old => NO_SASL.replace("{}", "sessionRequireClientSASLAuth=true"),
            Some("sasl") if has_provider => return true,
            Some("sasl") => NO_SASL.replace("{}", "enforce.auth.schemes=sasl"),
            None | Some("") => {
                "enforce.auth.enabled=true needs enforce.auth.schemes=sasl".to_owned()
            }
            Some(schemes) => format!("enforce.auth.schemes={schemes}: only sasl can be"),
        };
        self.errors.push(error);
        false
    }

    fn resolve(&mut self, key: &str, host: &str, port: u16) -> SocketAddr {
        if let Ok(address) = host.parse::<IpAddr>() {
            return SocketAddr::from((address, port));
        }
        match (host, port).to_socket_addrs().map(|mut found| found.next()) {
            Ok(Some(address)) => address,
            _ => {
                self.errors.push(format!("{key}={host}: no such host"));
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
            }
        }
    }

    fn boolean(&mut self, key: &str) -> bool {
        self.boolean_or(key, false)
    }

    fn boolean_or(&mut self, key: &str, default: bool) -> bool {
        match self.take(key).as_deref() {
            None => default,
            Some(value) if value.eq_ignore_ascii_case("false") => false,
            Some(value) if value.eq_ignore_ascii_case("true") => true,
            Some(value) => {
                self.errors.push(format!("{key}={value}: must be true or false"));
                false
            }
        }
    }
}

/// An ensemble is Apache's business.
fn refuse_ensemble(lines: &mut Lines) {
    let is_member = |key: &&String| {
        ["server.", "group.", "weight."].iter().any(|prefix| key.starts_with(prefix))
            || *key == "dynamicConfigFile"
    };
    let members: Vec<String> = lines.properties.keys().filter(is_member).cloned().collect();
    if members.is_empty() {
        return;
    }
    lines.errors.push(format!(
        "{}: this server is one node and joins no ensemble; run Apache ZooKeeper for one, and let \
         zookeeper.connect of the brokers name its servers",
        members.join(", ")
    ));
    for key in members {
        lines.properties.remove(&key);
    }
}

fn client_address(lines: &mut Lines, is_secure: bool) -> Option<SocketAddr> {
    let is_set = lines.properties.contains_key("clientPort");
    let address = address(lines, "clientPortAddress", "clientPort");
    if !is_set && !is_secure {
        lines.errors.push("clientPort is not set".to_owned());
    }
    address
}

/// The address of a port, if it is set: every one of the machine, unless the file names one.
fn address(lines: &mut Lines, host_key: &str, port_key: &str) -> Option<SocketAddr> {
    let host = lines.take(host_key);
    let is_set = lines.properties.contains_key(port_key);
    let port: u16 = lines.port(port_key, 0);
    if !is_set {
        return None;
    }
    Some(match host {
        None => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        Some(host) => lines.resolve(host_key, &host, port),
    })
}

/// `secureClientPort` and the `ssl.` keys. Source: ZooKeeper's `X509Util`.
fn secure(lines: &mut Lines) -> Option<SecureConfig> {
    let address = address(lines, "secureClientPortAddress", "secureClientPort");
    let key_store = store(lines, "ssl.keyStore");
    let trust_store = store(lines, "ssl.trustStore");
    let client_auth = match lines.take("ssl.clientAuth").unwrap_or_default().to_lowercase().as_str()
    {
        "" | "need" => ClientAuth::Need,
        "want" => ClientAuth::Want,
        "none" => ClientAuth::None,
        other => {
            lines.errors.push(format!("ssl.clientAuth={other}: must be none, want or need"));
            ClientAuth::Need
        }
    };
    let protocol = lines.take("ssl.protocol");
    let protocols = lines.take("ssl.enabledProtocols").or(protocol);
    let cipher_suites = lines.take("ssl.ciphersuites");
    for key in ["ssl.crl", "ssl.ocsp", "client.portUnification"] {
        if lines.boolean(key) {
            lines.errors.push(format!("{key}=true: is not supported"));
        }
    }
    let super_user = lines.take("X509AuthenticationProvider.superUser");
    let address = address?;
    let Some(key_store) = key_store else {
        lines.errors.push("secureClientPort needs ssl.keyStore.location".to_owned());
        return None;
    };
    if trust_store.is_none() && client_auth != ClientAuth::None {
        lines.errors.push(
            "ssl.clientAuth other than none needs ssl.trustStore.location: without one nobody \
             could connect"
                .to_owned(),
        );
    }
    let list = |list: Option<String>| -> Vec<String> {
        let list = list.unwrap_or_default();
        let names = list.split([',', ':']).map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let tls = TlsConfig {
        key_store,
        trust_store,
        client_auth,
        protocols: list(protocols),
        cipher_suites: list(cipher_suites),
    };
    Some(SecureConfig { address, tls, super_user })
}

/// A key or trust store, if its place is set.
fn store(lines: &mut Lines, prefix: &str) -> Option<StoreConfig> {
    let location = lines.take(&format!("{prefix}.location"));
    let password = lines.take(&format!("{prefix}.password"));
    let password_path = lines.take(&format!("{prefix}.passwordPath"));
    let kind = lines.take(&format!("{prefix}.type"));
    Some(StoreConfig {
        path: PathBuf::from(location?),
        password: password.unwrap_or_default(),
        password_path: password_path.map(PathBuf::from),
        kind,
    })
}

/// Source: ZooKeeper's `JettyAdminServer`.
fn admin(lines: &mut Lines) -> Option<AdminConfig> {
    let is_enabled = lines.boolean_or("admin.enableServer", true);
    let host = lines.take("admin.serverAddress").unwrap_or_else(|| "0.0.0.0".to_owned());
    let port = lines.port("admin.serverPort", 8080);
    let command_url = lines.take("admin.commandURL").unwrap_or_else(|| "/commands".to_owned());
    for key in ["admin.portUnification", "admin.forceHttps"] {
        if lines.boolean(key) && is_enabled {
            lines.errors.push(format!("{key}=true: the admin server speaks plain HTTP only"));
        }
    }
    if !is_enabled {
        return None;
    }
    if !command_url.starts_with('/') {
        lines.errors.push(format!("admin.commandURL={command_url}: must begin with /"));
    }
    let command_url = command_url.trim_end_matches('/').to_owned();
    let address = lines.resolve("admin.serverAddress", &host, port);
    Some(AdminConfig { address, command_url })
}

/// The whitelist: `srvr` is always on it.
fn words(list: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::from(["srvr".to_owned()]);
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "*" => words.extend(WORDS.map(str::to_owned)),
            word => {
                words.insert(word.to_owned());
            }
        }
    }
    words
}

fn warnings(lines: &mut Lines) -> Vec<String> {
    let mut warnings = std::mem::take(&mut lines.warnings);
    for name in lines.properties.keys() {
        let key = lines.of_java.get(name).unwrap_or(name);
        let is_of_java = key != name;
        let name = name.as_str();
        if is_of_java && (CLIENT_PROPERTIES.contains(&name) || name.starts_with("sasl.")) {
            // It is a client's, or says where the server's users are.
        } else if ENSEMBLE_KEYS.contains(&name) || name.starts_with("quorum.") {
            warnings.push(format!("{key}: has no meaning for one node, ignored"));
        } else if NEEDLESS_KEYS.contains(&name) {
            // What it asks for is so, or has no meaning for a server's own port.
        } else if name.starts_with("metricsProvider.") || name.starts_with("jvm.") {
            warnings.push(format!("{key}: has no meaning here, ignored"));
        } else if name == "reconfigEnabled" || name == "clientPortListenBacklog" {
            warnings.push(format!("{key}: has no effect, ignored"));
        } else if is_of_java {
            warnings.push(format!("{key}: unknown system property, ignored"));
        } else {
            warnings.push(format!("{key}: unknown key, ignored"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_own_file_is_read() {
        let text = b"dataDir=/tmp/zookeeper\nclientPort=2181\nmaxClientCnxns=0\n\
                     admin.enableServer=false\n# admin.serverPort=8080\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.data_log_dir, PathBuf::from("/tmp/zookeeper"));
        let address = config.client_address.unwrap();
        assert_eq!(address.port(), 2181);
        assert!(address.ip().is_unspecified());
        assert_eq!(config.admin, None);
        assert_eq!(config.client_connections_max, 0);
        assert_eq!((config.session_timeout_ms_min, config.session_timeout_ms_max), (6000, 60_000));
        assert_eq!(config.words, BTreeSet::from(["srvr".to_owned()]));
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn every_fault_is_named() {
        let text = b"clientPort=x\ntickTime=0\nextendedTypesEnabled=maybe\nserver.1=a:1:2\n";
        let ConfigError(errors) = Config::parse(text).unwrap_err();
        assert_eq!(errors.len(), 5, "{errors:?}");
        assert!(errors[0].contains("Apache ZooKeeper"));
        assert_eq!(errors[1], "dataDir is not set");
        assert_eq!(errors[2], "clientPort=x: must be a whole number from 0 to 65535");
        assert_eq!(errors[3], "tickTime=0: must be a whole number from 1 to 2147483647");
        assert_eq!(errors[4], "extendedTypesEnabled=maybe: must be true or false");
    }

    #[test]
    fn unknown_and_useless_keys_are_warned_of() {
        let text = b"dataDir=/d\nclientPort=1\ninitLimit=5\nnonsense=1\nzookeeper.skipACL=yes\n\
                     zookeeper.DigestAuthenticationProvider.superDigest=a\n\
                     4lw.commands.whitelist=ruok, stat\n";
        let config = Config::parse(text).unwrap();
        let hint = "unknown key, ignored: keys of the file are written without \"zookeeper.\"";
        assert_eq!(
            config.warnings,
            [
                &format!("zookeeper.DigestAuthenticationProvider.superDigest: {hint}"),
                &format!("zookeeper.skipACL: {hint}"),
                "initLimit: has no meaning for one node, ignored",
                "nonsense: unknown key, ignored"
            ]
        );
        assert!(config.words.contains("ruok") && config.words.contains("stat"));
        // As in Apache's, where nobody asks for what they become.
        assert!(!config.skip_acl && config.super_digest.is_none());
    }

    #[test]
    fn system_properties_count_where_the_file_is_silent() {
        let java = JavaOptions::new(
            "-Dzookeeper.skipACL=yes -Dzookeeper.4lw.commands.whitelist=* -Djute.maxbuffer=4000000 \
             -Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider \
             -Dzookeeper.sessionRequireClientSASLAuth=true -Dzookeeper.snapCount=5 \
             -Dzookeeper.DigestAuthenticationProvider.superDigest=super:x= -Dzookeeper.tickTime=1 \
             -Dzookeeper.sasl.serverconfig=Zk -Dzookeeper.nonsense=1 -Dother=1",
        );
        let text = b"dataDir=/d\nclientPort=1\nsnapCount=7\n4lw.commands.whitelist=ruok\njute.maxbuffer=9\n";
        let config = Config::parse_with(text, &java).unwrap();
        assert!(config.skip_acl && config.sasl && config.sasl_required);
        assert_eq!(config.super_digest.as_deref(), Some("super:x="));
        // The file wins where Apache's looks into it.
        assert_eq!((config.snap_count, config.words.len()), (7, 2));
        assert_eq!(config.jute_buffer_bytes_max, 4_000_000);
        assert_eq!(config.tick, Duration::from_secs(3));
        assert_eq!(
            config.warnings,
            [
                "-Dzookeeper.tickTime: is read from the file alone, ignored",
                "-Dzookeeper.nonsense: unknown system property, ignored"
            ]
        );
    }

    #[test]
    fn small_numbers_are_taken_as_apache_takes_them() {
        let text = b"dataDir=/d\nclientPort=1\nautopurge.snapRetainCount=1\n\
                     autopurge.purgeInterval=-1\nsnapCount=0\n";
        let config = Config::parse(text).unwrap();
        assert_eq!((config.purge_retain_count, config.purge_interval), (3, None));
        assert_eq!(config.snap_count, 2);
        assert_eq!(
            config.warnings,
            [
                "snapCount=0: is taken as 2, the least there can be",
                "autopurge.snapRetainCount=1: is taken as 3, the least there can be"
            ]
        );
        let text = b"dataDir=/d\nclientPort=70000\ntickTime=-1\nautopurge.purgeInterval=24h\n";
        assert_eq!(Config::parse(text).unwrap_err().0.len(), 3);
    }

    #[test]
    fn a_login_that_nobody_could_make_is_not_enforced() {
        let required = |text: &str| {
            let text = format!("dataDir=/d\nclientPort=1\n{text}");
            Config::parse(text.as_bytes()).map(|config| config.sasl_required)
        };
        let provider =
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
        for old_or_new in [
            "sessionRequireClientSASLAuth=true\n",
            "enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n",
        ] {
            assert_eq!(required(&format!("{provider}{old_or_new}")), Ok(true));
            let errors = required(old_or_new).unwrap_err().0;
            assert!(errors[0].ends_with(provider.trim()), "{errors:?}");
        }
        let errors = required(&format!("{provider}enforce.auth.enabled=true")).unwrap_err().0;
        assert_eq!(errors, ["enforce.auth.enabled=true needs enforce.auth.schemes=sasl"]);
        assert_eq!(required("enforce.auth.schemes=sasl"), Ok(false));
    }

    #[test]
    fn the_admin_server_is_there_unless_it_is_switched_off() {
        let admin = |text: &str| {
            let text = format!("dataDir=/d\nclientPort=1\n{text}");
            Config::parse(text.as_bytes()).map(|config| config.admin)
        };
        let expected = |address: &str, command_url: &str| {
            let (address, command_url) = (address.parse().unwrap(), command_url.to_owned());
            Ok(Some(AdminConfig { address, command_url }))
        };
        assert_eq!(admin(""), expected("0.0.0.0:8080", "/commands"));
        assert_eq!(admin("admin.enableServer=false"), Ok(None));
        let text = "admin.serverAddress=127.0.0.1\nadmin.serverPort=1\nadmin.commandURL=/zk/";
        assert_eq!(admin(text), expected("127.0.0.1:1", "/zk"));
        assert!(admin("admin.forceHttps=true").is_err());
    }

    #[test]
    fn a_port_for_tls_needs_its_keys_and_no_other_port() {
        let parse = |text: &str| Config::parse(format!("dataDir=/d\n{text}").as_bytes());
        let errors = parse("secureClientPort=1").unwrap_err().0;
        assert_eq!(errors[0], "secureClientPort needs ssl.keyStore.location");
        let keys = "secureClientPort=1\nssl.keyStore.location=/k.jks\nssl.keyStore.password=p\n";
        let errors = parse(keys).unwrap_err().0;
        assert!(errors[0].contains("ssl.trustStore.location"), "{errors:?}");
        let text = format!("{keys}ssl.clientAuth=none\nssl.enabledProtocols=TLSv1.2,TLSv1.3\n");
        let config = parse(&text).unwrap();
        assert_eq!(config.client_address, None);
        let tls = config.secure.unwrap().tls;
        assert_eq!((tls.client_auth, tls.protocols.len()), (ClientAuth::None, 2));
        assert_eq!(tls.key_store.path, PathBuf::from("/k.jks"));
        // What would be checked less than was asked for.
        assert!(parse(&format!("{text}ssl.crl=true\n")).is_err());
    }

    #[test]
    fn session_bounds_must_be_in_order() {
        let text = b"dataDir=/d\nclientPort=1\nminSessionTimeout=9\nmaxSessionTimeout=8\n";
        assert!(Config::parse(text).is_err());
    }
}
