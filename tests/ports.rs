//! Ports for servers that are started again on the same one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use parking_lot::Mutex;

/// Below those that Linux gives to outgoing connections, of which one could have the port while its server is down.
const PORTS: Range<u16> = 12_000..32_000;

/// What this process has claimed, until it ends.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that nobody listens on, and that no other test is given while this process lives.
///
/// Every test that asks takes an abstract socket named after the port (so does `tests/clients/ports.py`), which ends with its process.
///
/// # Panics
/// Where none of ten thousand picks can be had.
pub fn quiet_port() -> u16 {
    for _ in 0..10_000 {
        // A hasher's keys are random: no crate is needed for it.
        let random = RandomState::new().build_hasher().finish();
        let count = u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(random % count).unwrap_or_default();
        let name = SocketAddr::from_abstract_name(format!("odradek-port-{port}"));
        let Ok(claim) = name.and_then(|name| UnixListener::bind_addr(&name)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CLAIMS.lock().push(claim);
            return port;
        }
    }
    panic!("no port between {} and {} can be had", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<u16> = (0..500).map(|_| quiet_port()).collect();
        let distinct: HashSet<u16> = ports.iter().copied().collect();
        assert_eq!(ports.len(), distinct.len());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }
}
