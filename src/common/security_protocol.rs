//! How a listener is secured.

use std::fmt;

/// Source: `org.apache.kafka.common.security.auth.SecurityProtocol`.
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

    /// Whether peers authenticate by SASL.
    pub fn is_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
