//! `listeners` and `advertised.listeners`. Source: `SocketServerConfigs` and `CoreUtils.listenerListToEndPoints`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::security_protocol::SecurityProtocol;

/// One address that the broker listens on, or tells clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The name, in upper case as Kafka normalises it.
    pub name: String,
    /// Host name or address, IPv6 without brackets; `None` means every address (or, advertised, this host's name).
    pub host: Option<String>,
    /// The TCP port; 0 lets the system choose.
    pub port: u16,
    /// How connections are secured.
    pub protocol: SecurityProtocol,
}

impl fmt::Display for Listener {
    /// As Kafka's `EndPoint.connectionString`: `NAME://host:port`, IPv6 in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_deref() {
            None => write!(formatter, "{}://:{}", self.name, self.port),
            Some(host) if host.contains(':') => {
                write!(formatter, "{}://[{host}]:{}", self.name, self.port)
            }
            Some(host) => write!(formatter, "{}://{host}:{}", self.name, self.port),
        }
    }
}

/// `listener.security.protocol.map`: names in upper case.
pub type ProtocolMap = BTreeMap<String, SecurityProtocol>;

/// Whether two listeners may share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// Each needs its own, but that one may be IPv4 and the other IPv6.
    Distinct,
    /// Advertised: anything goes, for a proxy may stand in between.
    Shared,
}

/// Reads a list of listeners; the error is Kafka's text. Without the protocols, which
/// are refused themselves, the rest is looked at as if each name had one.
pub(super) fn parse_list(
    text: &str,
    protocols: Option<&ProtocolMap>,
    ports: Ports,
) -> Result<Vec<Listener>, String> {
    let listeners = csv(text.trim())
        .map(|entry| parse(entry, protocols))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|reason| format!("Error creating broker listeners from '{text}': {reason}"))?;
    let mut names: Vec<_> = listeners.iter().map(|listener| &listener.name).collect();
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "requirement failed: Each listener must have a different name, listeners: {text}"
        ));
    }
    if ports == Ports::Distinct {
        check_ports(&listeners, text)?;
    }
    Ok(listeners)
}

/// Elements between commas, empty ones left out. Source: `Csv.parseCsvList`.
pub(super) fn csv(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|element| !element.is_empty())
}

/// Upper case; an empty name is refused. Source: `ListenerName.normalised`.
pub(super) fn normalised(name: &str) -> Result<String, String> {
    if name.trim().is_empty() {
        return Err("The provided listener name is null or empty string".to_owned());
    }
    Ok(name.to_uppercase())
}

fn parse(entry: &str, protocols: Option<&ProtocolMap>) -> Result<Listener, String> {
    let unparsable = || format!("Unable to parse {entry} to a broker endpoint");
    let (name, address) = entry.rsplit_once("://").ok_or_else(unparsable)?;
    let (host, port_digits) = address.rsplit_once(':').ok_or_else(unparsable)?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-%._:".contains(&byte);
    let digits = port_digits.strip_prefix('-').unwrap_or(port_digits);
    if !host.bytes().all(is_host)
        || digits.is_empty()
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(unparsable());
    }
    // Kafka takes any 32-bit number and fails when it binds.
    let port = port_digits.parse().map_err(|_| format!("port out of range:{port_digits}"))?;
    let name = normalised(name)?;
    let protocol = match protocols {
        Some(protocols) => *protocols
            .get(&name)
            .ok_or_else(|| format!("No security protocol defined for listener {name}"))?,
        None => SecurityProtocol::Plaintext,
    };
    let host = (!host.is_empty()).then(|| host.to_owned());
    Ok(Listener { name, host, port, protocol })
}

fn check_ports(listeners: &[Listener], text: &str) -> Result<(), String> {
    let mut by_port: BTreeMap<u16, Vec<&Listener>> = BTreeMap::new();
    for listener in listeners.iter().filter(|listener| listener.port != 0) {
        by_port.entry(listener.port).or_default().push(listener);
    }
    for (port, same) in by_port.into_iter().filter(|(_, same)| same.len() > 1) {
        let families: Vec<Option<Family>> = same.iter().map(|listener| family(listener)).collect();
        let with_address = families.iter().flatten().count();
        if families.len() - with_address > 1 {
            return Err(format!(
                "requirement failed: Each listener must have a different port, listeners: {text}"
            ));
        }
        let one_of_each =
            families.contains(&Some(Family::V4)) && families.contains(&Some(Family::V6));
        let needs = format!(
            "If you have two listeners on the same port then one needs to be IPv4 and the other \
             IPv6, listeners: {text}, port: {port}"
        );
        match with_address {
            2 if !one_of_each => return Err(format!("requirement failed: {needs}")),
            2 if families.len() > 2 => return Err(needs),
            // A lone address beside a name is refused with the words for three.
            1 | 3.. => {
                return Err(format!(
                    "Each listener must have a different port unless exactly one listener has an \
                     IPv4 address and the other IPv6 address, listeners: {text}, port: {port}"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The family of a listener with an address; `None` for names and for "every address".
fn family(listener: &Listener) -> Option<Family> {
    let host = listener.host.as_deref()?;
    if host.parse::<Ipv4Addr>().is_ok() {
        return Some(Family::V4);
    }
    let without_zone = host.split_once('%').map_or(host, |(address, _)| address);
    without_zone.parse::<Ipv6Addr>().is_ok().then_some(Family::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> String {
        parse_as(text, Ports::Distinct)
    }

    fn parse_as(text: &str, ports: Ports) -> String {
        let mut protocols = ProtocolMap::new();
        for protocol in SecurityProtocol::ALL {
            protocols.insert(protocol.name().to_owned(), protocol);
        }
        protocols.insert("INTERNAL".to_owned(), SecurityProtocol::Plaintext);
        match parse_list(text, Some(&protocols), ports) {
            Ok(listeners) => {
                let texts: Vec<_> = listeners.iter().map(ToString::to_string).collect();
                texts.join(" ")
            }
            Err(error) => error,
        }
    }

    #[test]
    fn names_hosts_and_ports() {
        assert_eq!(parse("PLAINTEXT://:9092"), "PLAINTEXT://:9092");
        assert_eq!(
            parse(" plaintext://localhost:9092 , internal://0.0.0.0:0,"),
            "PLAINTEXT://localhost:9092 INTERNAL://0.0.0.0:0"
        );
        assert_eq!(parse("PLAINTEXT://[::1]:9092"), "PLAINTEXT://[::1]:9092");
        assert_eq!(parse("PLAINTEXT://fe80::1%eth0:9092"), "PLAINTEXT://[fe80::1%eth0]:9092");
    }

    #[test]
    fn unparsable_listeners() {
        for wrong in
            ["PLAINTEXT://localhost", "localhost:9092", "PLAINTEXT://a b:1", "PLAINTEXT://a:x"]
        {
            assert_eq!(
                parse(wrong),
                format!(
                    "Error creating broker listeners from '{wrong}': Unable to parse {wrong} to a broker endpoint"
                )
            );
        }
        assert_eq!(
            parse("NONSENSE://:1"),
            "Error creating broker listeners from 'NONSENSE://:1': No security protocol defined for listener NONSENSE"
        );
        assert_eq!(
            parse("PLAINTEXT://:70000"),
            "Error creating broker listeners from 'PLAINTEXT://:70000': port out of range:70000"
        );
        assert_eq!(
            parse("SSL://:1,ssl://:2"),
            "requirement failed: Each listener must have a different name, listeners: SSL://:1,ssl://:2"
        );
    }

    #[test]
    fn one_port_serves_ipv4_and_ipv6() {
        let both = "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9092";
        assert_eq!(parse(both), "PLAINTEXT://127.0.0.1:9092 INTERNAL://[::1]:9092");
        for (wrong, text) in [
            ("PLAINTEXT://a:1,SSL://b:1", "Each listener must have a different port, listeners"),
            ("PLAINTEXT://:1,SSL://:1", "Each listener must have a different port, listeners"),
            (
                "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:1",
                "one needs to be IPv4 and the other IPv6",
            ),
            ("PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,INTERNAL://:1", "one needs to be IPv4"),
            ("PLAINTEXT://127.0.0.1:1,SSL://host:1", "unless exactly one listener has an IPv4"),
            (
                "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,INTERNAL://127.0.0.2:1",
                "unless exactly one listener has an IPv4 address",
            ),
        ] {
            assert!(parse(wrong).contains(text), "{wrong}: {}", parse(wrong));
            assert!(!parse_as(wrong, Ports::Shared).contains("port"), "{wrong}");
        }
    }
}
