//! From the configs of listeners to what the network binds, and what the broker tells of itself.

use std::{
    collections::HashMap,
    net::{IpAddr, ToSocketAddrs},
    time::Duration,
};

use common::config::{broker::BrokerConfig, listener::Listener, value::Value};
use common::security_protocol::SecurityProtocol;
use metadata::broker::Endpoint;
use network::{
    quotas::{ConnectionLimits, ListenerLimits},
    server::{ListenerConfig, NetworkConfig},
};
use tracing::{info, warn};

/// Requests of one connection that may wait for their answers at once.
const REQUESTS_IN_FLIGHT_MAX: usize = 100;

/// Listeners that this version cannot serve, all of them.
#[derive(Debug, thiserror::Error)]
#[error("{}: not served yet, use PLAINTEXT", .0.join(", "))]
pub struct UnservedProtocols(Vec<String>);

/// Refuses the listeners that cannot be served, before anything is bound or written.
pub(crate) fn check_served(config: &BrokerConfig) -> Result<(), UnservedProtocols> {
    let unserved: Vec<String> = (config.listeners.iter())
        .map(|listener| (&listener.name, protocol_of(listener)))
        .filter(|(_, protocol)| *protocol != SecurityProtocol::Plaintext)
        .map(|(name, protocol)| format!("listener {name} uses {}", protocol.name()))
        .collect();
    if unserved.is_empty() { Ok(()) } else { Err(UnservedProtocols(unserved)) }
}

/// What the network binds.
pub(crate) fn to_bind(config: &BrokerConfig) -> Vec<ListenerConfig> {
    let one_alone = config.listeners.len() == 1;
    config
        .listeners
        .iter()
        .map(|listener| {
            let limit = |name: &str| match config.listener_value(&listener.name, name) {
                Some(Value::Int(limit)) => *limit,
                _ => i32::MAX,
            };
            // What the brokers tell each other must get through, however many clients there are.
            let is_brokers = listener.name == config.inter_broker_listener_name
                || Some(&listener.name) == config.control_plane_listener_name.as_ref();
            ListenerConfig {
                name: listener.name.clone(),
                security_protocol: protocol_of(listener),
                host: listener.host.clone().unwrap_or_default(),
                port: listener.port,
                tls: None,
                limits: ListenerLimits {
                    connections_max: unsigned(limit("max.connections")),
                    creation_rate_max: limit("max.connection.creation.rate").unsigned_abs(),
                    protected: is_brokers && !one_alone,
                },
            }
        })
        .collect()
}

/// What all listeners share.
pub(crate) fn network_config(config: &BrokerConfig) -> NetworkConfig {
    let buffer = |bytes: i32| u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
    let idle = u64::try_from(config.connections_max_idle_ms).ok();
    let overrides = config.max_connections_per_ip_overrides.iter();
    NetworkConfig {
        send_buffer_bytes: buffer(config.socket_send_buffer_bytes),
        receive_buffer_bytes: buffer(config.socket_receive_buffer_bytes),
        listen_backlog: u32::try_from(config.socket_listen_backlog_size).unwrap_or(50),
        request_bytes_max: unsigned(config.socket_request_max_bytes),
        idle_max: idle.map(Duration::from_millis),
        connections: ConnectionLimits {
            connections_max: unsigned(config.max_connections),
            connections_per_ip_max: unsigned(config.max_connections_per_ip),
            connections_per_ip_overrides: resolve_all(overrides),
            creation_rate_max: config.max_connection_creation_rate.unsigned_abs(),
        },
        requests_in_flight_max: REQUESTS_IN_FLIGHT_MAX,
        request_bytes_in_flight_max: NetworkConfig::default().request_bytes_in_flight_max,
        queued_request_bytes_max: usize::try_from(config.queued_max_request_bytes)
            .ok()
            .filter(|bytes_max| *bytes_max > 0),
    }
}

fn resolve_all<'a>(
    overrides: impl Iterator<Item = (&'a String, &'a i32)>,
) -> HashMap<IpAddr, usize> {
    let mut limits = HashMap::new();
    for (host, limit) in overrides {
        match std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), 0)) {
            Ok(addresses) => {
                limits.extend(addresses.map(|address| (address.ip(), unsigned(*limit))));
            }
            Err(error) => {
                warn!(host, %error, "max.connections.per.ip.overrides names a host without address");
            }
        }
    }
    limits
}

/// What clients are told: each advertised listener, with the bound port where the port was left to the system, and
/// this machine's name where no host is given.
pub(crate) fn endpoints(
    config: &BrokerConfig,
    bound_port: &dyn Fn(&str) -> Option<u16>,
) -> Vec<Endpoint> {
    let endpoints = config.advertised_listeners.iter().map(|listener| {
        let port = if listener.port == 0 {
            bound_port(&listener.name).unwrap_or(0)
        } else {
            listener.port
        };
        Endpoint {
            listener: listener.name.clone(),
            host: listener.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(host_name),
            port,
            protocol: protocol_of(listener),
        }
    });
    endpoints.collect()
}

/// Says per listener what clients will be told, and warns where they will not reach it.
pub(crate) fn announce(config: &BrokerConfig, endpoints: &[Endpoint]) {
    for endpoint in endpoints {
        let (name, host, port) = (&endpoint.listener, &endpoint.host, endpoint.port);
        let address = host.parse::<IpAddr>();
        // An address of IPv6 stands in brackets, so that the port can be told from it.
        let shown = match address {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => host.clone(),
        };
        info!(target: "kafka.server.KafkaServer", "clients of listener {name} are told to connect to {shown}:{port}");
        if address.as_ref().is_ok_and(IpAddr::is_unspecified) {
            warn!(
                target: "kafka.server.KafkaServer",
                "listener {name} tells clients {shown}, which is no address to connect to; set advertised.listeners"
            );
        }
        let bound = config.listeners.iter().find(|listener| listener.name == *name);
        let bound_everywhere = bound.is_some_and(|bound| {
            matches!(bound.host.as_deref(), None | Some("" | "0.0.0.0" | "::"))
        });
        if bound_everywhere {
            let (name, host) = (name.clone(), host.clone());
            // A resolver that is slow holds up nobody: the warning comes when it comes. Without a thread there is none.
            let _ = std::thread::Builder::new()
                .name("loopback-check".to_owned())
                .spawn(move || warn_of_loopback(&name, &host));
        }
    }
}

/// Warns where clients are told a name or an address that leads every machine to itself.
fn warn_of_loopback(listener: &str, host: &str) {
    if leads_to_loopback(host) {
        warn!(
            target: "kafka.server.KafkaServer",
            "listener {listener} is bound to every address, but clients are told {host}: only those on this machine will reach it; set advertised.listeners"
        );
    }
}

/// Whether all addresses of a host, as this machine knows it, are loopback ones. Debian gives a machine's own name 127.0.1.1.
fn leads_to_loopback(host: &str) -> bool {
    let Ok(addresses) = (host, 0).to_socket_addrs() else { return false };
    let addresses: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
    !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback)
}

fn protocol_of(listener: &Listener) -> SecurityProtocol {
    SecurityProtocol::from_name(listener.protocol.name()).unwrap_or(SecurityProtocol::Plaintext)
}

/// The canonical name of this machine, as Java's `InetAddress.getLocalHost` gives it.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

fn unsigned(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_to_this_machine_alone_is_known() {
        for host in ["localhost", "127.0.0.1", "127.0.1.1", "::1"] {
            assert!(leads_to_loopback(host), "{host}");
        }
        for host in ["192.0.2.1", "2001:db8::1", "0.0.0.0"] {
            assert!(!leads_to_loopback(host), "{host}");
        }
    }

    #[test]
    fn listeners_that_cannot_be_served_are_all_named() {
        let text = "zookeeper.connect=z:1\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:SSL,B:SASL_SSL\n\
                    listeners=PLAINTEXT://:0,A://:1,B://:2";
        let config = BrokerConfig::parse(&common::properties::parse(text.as_bytes())).unwrap();
        let refused = check_served(&config).unwrap_err().to_string();
        assert_eq!(
            refused,
            "listener A uses SSL, listener B uses SASL_SSL: not served yet, use PLAINTEXT"
        );
    }
}
