//! Brokers and the addresses they tell clients.

use std::fmt;

use common::ids::{BrokerEpoch, BrokerId};
use common::security_protocol::SecurityProtocol;

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
