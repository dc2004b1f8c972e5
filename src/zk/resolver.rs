//! Addresses of ZooKeeper's servers, found anew for each connection.
//!
//! All addresses of all names are servers to try: of a name with several addresses one may be dead, and a library that
//! is given the name would try that one again and again. A name that cannot be found keeps the addresses it had.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use tokio::{task::JoinSet, time::timeout_at};
use tracing::debug;

/// Finds the addresses of a `host:port`; may block.
pub type Resolve = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// What one round over all names may take.
const RESOLVE_AT_MOST: Duration = Duration::from_secs(5);
const DEFAULT_PORT: u16 = 2181;

/// The system's: `/etc/hosts`, DNS and whatever else it is set up for.
pub fn system() -> Resolve {
    Arc::new(|host| host.to_socket_addrs().map(Iterator::collect))
}

/// The names of one ensemble, with the addresses they had last.
pub(crate) struct Resolver {
    resolve: Resolve,
    /// With their ports.
    pub(crate) hosts: Vec<String>,
    known: HashMap<String, Vec<SocketAddr>>,
}

impl Resolver {
    /// Takes `host:port,host:port`; a host without a port has ZooKeeper's.
    pub(crate) fn new(hosts: &str, resolve: Resolve) -> Resolver {
        let with_port = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => host.to_owned(),
            _ => format!("{host}:{DEFAULT_PORT}"),
        };
        let hosts = hosts.split(',').map(with_port).collect();
        Resolver { resolve, hosts, known: HashMap::new() }
    }

    /// The addresses now, each once, as the library wants them; empty where none was ever found.
    pub(crate) async fn addresses(&mut self) -> String {
        let mut running = JoinSet::new();
        for host in &self.hosts {
            let (resolve, host) = (self.resolve.clone(), host.clone());
            running.spawn_blocking(move || {
                let found = resolve(&host);
                (host, found)
            });
        }
        let deadline = common::clock::now() + RESOLVE_AT_MOST;
        while let Ok(Some(joined)) = timeout_at(deadline.into(), running.join_next()).await {
            match joined {
                Ok((host, Ok(found))) if !found.is_empty() => {
                    self.known.insert(host, found);
                }
                Ok((host, Err(error))) => debug!(%host, %error, "a name of ZooKeeper is not known"),
                Ok(_) | Err(_) => {}
            }
        }
        // Those that did not come in time go on by themselves; what they find is not heard.
        running.detach_all();
        let mut addresses: Vec<String> = Vec::new();
        for address in self.hosts.iter().filter_map(|host| self.known.get(host)).flatten() {
            let address = address.to_string();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.join(",")
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn names_are_found_anew_and_kept_while_they_are_not_found() {
        let table: Arc<Mutex<HashMap<&str, Vec<&str>>>> = Arc::default();
        let asked = table.clone();
        let resolve: Resolve = Arc::new(move |host| {
            let table = asked.lock();
            let found = table.get(host).ok_or(io::ErrorKind::NotFound)?;
            Ok(found.iter().map(|address| address.parse().unwrap()).collect())
        });
        let mut resolver = Resolver::new("a:1,b,[::1]", resolve);
        assert_eq!(resolver.addresses().await, "");
        table.lock().insert("a:1", vec!["10.0.0.1:1", "10.0.0.2:1"]);
        table.lock().insert("b:2181", vec!["10.0.0.3:2181"]);
        table.lock().insert("[::1]:2181", vec!["[::1]:2181"]);
        let all = "10.0.0.1:1,10.0.0.2:1,10.0.0.3:2181,[::1]:2181";
        assert_eq!(resolver.addresses().await, all);
        // One has moved, one is not found for now, and two are the same.
        table.lock().insert("a:1", vec!["10.0.0.3:2181"]);
        table.lock().remove("b:2181");
        assert_eq!(resolver.addresses().await, "10.0.0.3:2181,[::1]:2181");
    }
}
