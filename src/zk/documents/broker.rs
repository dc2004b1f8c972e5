//! `/brokers/ids/<id>`: who a broker is and where clients reach it.

use std::collections::BTreeMap;

use common::ids::{BrokerEpoch, BrokerId, Timestamp};
use common::security_protocol::SecurityProtocol;
use metadata::broker::{Broker, Endpoint};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, from_text, to_json};
use crate::paths;

/// Written from inter-broker protocol 2.7 on; 0.10 to 2.6 write 4, older ones 2.
pub const VERSION: i32 = 5;

/// Supported versions of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRange {
    /// Lowest level.
    pub min_version: i16,
    /// Highest level.
    pub max_version: i16,
}

/// A broker's registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerDocument {
    /// Version of the document, 1 or more; from 3 on it has a rack, from 4 on the listeners' protocols, from 5 on
    /// features.
    pub version: i32,
    /// Advertised addresses, one a listener.
    pub endpoints: Vec<Endpoint>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Port of JMX; -1 where there is none.
    pub jmx_port: i32,
    /// When it registered.
    pub timestamp: Timestamp,
    /// Always empty for brokers of ZooKeeper mode.
    pub features: BTreeMap<String, FeatureRange>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<BTreeMap<String, FeatureRange>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listener_security_protocol_map: Option<BTreeMap<String, String>>,
    endpoints: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rack: Option<String>,
    jmx_port: i32,
    port: Option<i32>,
    host: Option<String>,
    version: i32,
    timestamp: Option<String>,
}

impl BrokerDocument {
    /// Reads the registration of a broker.
    pub fn parse(id: BrokerId, data: &[u8]) -> Result<BrokerDocument, DocumentError> {
        let path = paths::broker_id(id.0);
        let wire: Wire = from_json(&path, data)?;
        let endpoints = match wire.version {
            ..1 => {
                let reason = format!("unsupported version {}", wire.version);
                return Err(DocumentError::new(&path, reason));
            }
            1 => vec![first_version_endpoint(&path, &wire)?],
            _ => endpoints(&path, &wire)?,
        };
        let timestamp = match &wire.timestamp {
            Some(text) => Timestamp(from_text(&path, "timestamp", text)?),
            None => Timestamp::NONE,
        };
        Ok(BrokerDocument {
            version: wire.version,
            endpoints,
            rack: wire.rack,
            jmx_port: wire.jmx_port,
            timestamp,
            features: wire.features.unwrap_or_default(),
        })
    }

    /// Writes it in its version.
    pub fn to_bytes(&self) -> Vec<u8> {
        // For clients that know one address only.
        let plaintext = |endpoint: &&Endpoint| endpoint.protocol == SecurityProtocol::Plaintext;
        let plaintext = self.endpoints.iter().find(plaintext);
        let protocols =
            self.endpoints.iter().map(|e| (e.listener.clone(), e.protocol.name().to_owned()));
        to_json(&Wire {
            features: (self.version >= 5).then(|| self.features.clone()),
            listener_security_protocol_map: (self.version >= 4).then(|| protocols.collect()),
            endpoints: Some(self.endpoints.iter().map(Endpoint::to_string).collect()),
            rack: self.rack.clone().filter(|_| self.version >= 3),
            jmx_port: self.jmx_port,
            port: Some(plaintext.map_or(-1, |endpoint| i32::from(endpoint.port))),
            host: plaintext.map(|endpoint| endpoint.host.clone()),
            version: self.version,
            timestamp: Some(self.timestamp.to_string()),
        })
    }

    /// The broker it describes; its epoch is the czxid of the znode.
    pub fn broker(&self, id: BrokerId, epoch: BrokerEpoch) -> Broker {
        Broker { id, endpoints: self.endpoints.clone(), rack: self.rack.clone(), epoch }
    }
}

fn first_version_endpoint(path: &str, wire: &Wire) -> Result<Endpoint, DocumentError> {
    let missing = |field: &str| DocumentError::new(path, format!("missing field `{field}`"));
    let port = wire.port.ok_or_else(|| missing("port"))?;
    Ok(Endpoint {
        listener: SecurityProtocol::Plaintext.name().to_owned(),
        host: wire.host.clone().ok_or_else(|| missing("host"))?,
        port: u16::try_from(port).map_err(|error| DocumentError::new(path, error))?,
        protocol: SecurityProtocol::Plaintext,
    })
}

fn endpoints(path: &str, wire: &Wire) -> Result<Vec<Endpoint>, DocumentError> {
    let Some(endpoints) = &wire.endpoints else {
        return Err(DocumentError::new(path, "missing field `endpoints`"));
    };
    let mut protocols = BTreeMap::new();
    for (listener, protocol) in wire.listener_security_protocol_map.iter().flatten() {
        let Some(known) = SecurityProtocol::from_name(protocol) else {
            let reason = format!("unknown security protocol \"{protocol}\"");
            return Err(DocumentError::new(path, reason));
        };
        protocols.insert(listener.to_uppercase(), known);
    }
    let protocol_of = |listener: &str| match &wire.listener_security_protocol_map {
        Some(_) => protocols.get(listener).copied(),
        None => SecurityProtocol::from_name(listener),
    };
    let parse = |text: &String| {
        parse_endpoint(text, protocol_of).map_err(|reason| DocumentError::new(path, reason))
    };
    endpoints.iter().map(parse).collect()
}

/// Reads `LISTENER://host:port`. Source: `SocketServerConfigs.listenerListToEndPoints`.
fn parse_endpoint(
    text: &str,
    protocol_of: impl Fn(&str) -> Option<SecurityProtocol>,
) -> Result<Endpoint, String> {
    let malformed = || format!("Unable to parse {text} to a broker endpoint");
    let (listener, address) = text.split_once("://").ok_or_else(malformed)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-%._:".contains(c);
    if !host.chars().all(allowed) {
        return Err(malformed());
    }
    let listener = listener.trim().to_uppercase();
    let Some(protocol) = protocol_of(&listener) else {
        return Err(format!("No security protocol defined for listener {listener}"));
    };
    let port = port.parse().map_err(|_| malformed())?;
    Ok(Endpoint { listener, host: host.to_owned(), port, protocol })
}
