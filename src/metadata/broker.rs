//! Brokers and the addresses they tell clients.

use std::fmt;

use common::ids::{BrokerEpoch, BrokerId};

/// How a listener is secured. Source: `org.apache.kafka.common.security.auth.SecurityProtocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i16)]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    Plaintext = 0,
    /// TLS.
    Ssl = 1,
    /// SASL over plain TCP.
    SaslPlaintext = 2,
    /// SASL over TLS.
    SaslSsl = 3,
}

impl SecurityProtocol {
    /// Every protocol, by number.
    pub const ALL: [SecurityProtocol; 4] = [
        SecurityProtocol::Plaintext,
        SecurityProtocol::Ssl,
        SecurityProtocol::SaslPlaintext,
        SecurityProtocol::SaslSsl,
    ];

    /// The number in UpdateMetadata.
    pub fn id(self) -> i16 {
        self as i16
    }

    /// The protocol of a number in UpdateMetadata.
    pub fn from_id(id: i16) -> Option<SecurityProtocol> {
        SecurityProtocol::ALL.into_iter().find(|protocol| protocol.id() == id)
    }

    /// The name in configs and znodes.
    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// The protocol of a name, in any case as Kafka reads it.
    pub fn from_name(name: &str) -> Option<SecurityProtocol> {
        SecurityProtocol::ALL
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// An address of a broker, as clients of one listener are told it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The listener's name, in upper case as Kafka normalises it.
    pub listener: String,
    /// A host name or address; an IPv6 address stands without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How connections to it are secured.
    pub protocol: SecurityProtocol,
}

impl fmt::Display for Endpoint {
    /// As in znodes: `LISTENER://host:port`, IPv6 in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "{}://[{}]:{}", self.listener, self.host, self.port)
        } else {
            write!(formatter, "{}://{}:{}", self.listener, self.host, self.port)
        }
    }
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its `broker.id`.
    pub id: BrokerId,
    /// Its advertised addresses, one a listener.
    pub endpoints: Vec<Endpoint>,
    /// Its `broker.rack`.
    pub rack: Option<String>,
    /// Its registration; -1 where the source does not say (UpdateMetadata carries none).
    pub epoch: BrokerEpoch,
}

impl Broker {
    /// The address that clients of a listener use; none where the broker lacks that listener.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener)
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, SecurityProtocol};

    #[test]
    fn endpoints_show_as_in_znodes() {
        let endpoint = |host: &str| Endpoint {
            listener: "PLAINTEXT".into(),
            host: host.into(),
            port: 9092,
            protocol: SecurityProtocol::Plaintext,
        };
        assert_eq!(endpoint("kafka1").to_string(), "PLAINTEXT://kafka1:9092");
        assert_eq!(endpoint("::1").to_string(), "PLAINTEXT://[::1]:9092");
    }

    #[test]
    fn protocols_are_found_by_name_and_number() {
        for protocol in SecurityProtocol::ALL {
            assert_eq!(SecurityProtocol::from_id(protocol.id()), Some(protocol));
            assert_eq!(SecurityProtocol::from_name(protocol.name()), Some(protocol));
        }
        assert_eq!(SecurityProtocol::from_id(4), None);
    }
}
