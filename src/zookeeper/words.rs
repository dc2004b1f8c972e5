//! The four-letter words: a connection that begins with one gets a text and is closed.
//! Source: ZooKeeper's `FourLetterCommands` and the package `server.command`.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use common::clock;

use crate::config::WORDS;
use crate::core::Core;
use crate::date::java_date;
use crate::json::{Json, double};
use crate::server::{Connection, Shared};
use crate::traffic::{Latency, Traffic};
use crate::watches::{ConnectionId, WatchTable};

/// What clients take us for: they look for features by it.
pub(crate) const VERSION: &str = "3.8.4-odradek";

/// Whether the first four bytes of a connection are a word and no length.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    WORDS.iter().any(|word| word.as_bytes() == bytes)
}

/// The answer to a word. Its own connection, from `asker`, is shown among the others.
pub(crate) fn answer(word: &str, asker: SocketAddr, shared: &Shared) -> String {
    if !shared.config.words.contains(word) {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let mut out = String::new();
    let written = match word {
        "ruok" => out.write_str("imok"),
        "isro" => out.write_str("rw"),
        "srvr" => server(shared, &mut out),
        "stat" => stat(asker, shared, &mut out),
        "mntr" => monitor(shared, &mut out),
        "cons" => connections(asker, shared, &mut out),
        "conf" => configuration(shared, &mut out),
        "envi" => environment(&mut out),
        "dirs" => directories(shared, &mut out),
        "dump" => dump(shared, &mut out),
        "wchs" => watch_summary(&shared.core().data_watches, &mut out),
        "wchc" => watches_by_session(shared, &mut out),
        "wchp" => watches_by_path(shared, &mut out),
        "crst" => {
            reset_connections(shared);
            out.write_str("Connection stats reset.\n")
        }
        "srst" => {
            reset_server(shared);
            out.write_str("Server stats reset.\n")
        }
        // The history of digests, of which we keep none; trace masks, of which there are none.
        "hash" => Ok(()),
        _ => out.write_str("0"),
    };
    written.expect("writing to a string cannot fail");
    out
}

pub(crate) fn reset_connections(shared: &Shared) {
    for connection in shared.connections() {
        connection.traffic.reset();
    }
}

pub(crate) fn reset_server(shared: &Shared) {
    let statistics = &shared.statistics;
    statistics.received.store(0, Ordering::Relaxed);
    statistics.sent.store(0, Ordering::Relaxed);
    *statistics.latency.lock() = Latency::default();
    *statistics.response_sizes.lock() = None;
}

fn address(address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    if ip.is_ipv6() {
        format!("/[{ip}]:{}", address.port())
    } else {
        format!("/{ip}:{}", address.port())
    }
}

pub(crate) fn outstanding(shared: &Shared) -> usize {
    shared.connections().iter().map(|connection| connection.traffic.outstanding()).sum()
}

fn server(shared: &Shared, out: &mut String) -> std::fmt::Result {
    writeln!(out, "Zookeeper version: {VERSION}, built on unknown")?;
    server_stats(shared, out)
}

fn server_stats(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let latency = *shared.statistics.latency.lock();
    writeln!(
        out,
        "Latency min/avg/max: {}/{}/{}",
        latency.min,
        double(latency.average()),
        latency.max
    )?;
    writeln!(out, "Received: {}", shared.statistics.received.load(Ordering::Relaxed))?;
    writeln!(out, "Sent: {}", shared.statistics.sent.load(Ordering::Relaxed))?;
    // With the one that asks.
    writeln!(out, "Connections: {}", shared.connection_count() + 1)?;
    writeln!(out, "Outstanding: {}", outstanding(shared))?;
    let core = shared.core();
    writeln!(out, "Zxid: 0x{:x}", core.tree.last_zxid)?;
    writeln!(out, "Mode: standalone")?;
    writeln!(out, "Node count: {}", core.tree.node_count())
}

fn stat(asker: SocketAddr, shared: &Shared, out: &mut String) -> std::fmt::Result {
    writeln!(out, "Zookeeper version: {VERSION}, built on unknown")?;
    writeln!(out, "Clients:")?;
    own_connection(asker, out)?;
    for connection in shared.connections() {
        connection_head(connection.address, &connection.traffic, out)?;
        writeln!(out, ")")?;
    }
    writeln!(out)?;
    server_stats(shared, out)
}

/// Up to where brief and full lines are equal. The bracket holds the operations that Java's
/// selector waits for, which is reading.
fn connection_head(peer: SocketAddr, traffic: &Traffic, out: &mut String) -> std::fmt::Result {
    let stats = traffic.stats();
    write!(
        out,
        " {}[1](queued={},recved={},sent={}",
        address(peer),
        traffic.outstanding(),
        stats.received,
        stats.sent
    )
}

/// The connection of the word itself, from which nothing more is read.
fn own_connection(asker: SocketAddr, out: &mut String) -> std::fmt::Result {
    writeln!(out, " {}[0](queued=0,recved=1,sent=0)", address(asker))
}

fn connections(asker: SocketAddr, shared: &Shared, out: &mut String) -> std::fmt::Result {
    own_connection(asker, out)?;
    for Connection { address, session, timeout_ms, traffic, .. } in shared.connections() {
        connection_head(address, &traffic, out)?;
        if session != 0 {
            let stats = traffic.stats();
            write!(
                out,
                ",sid=0x{session:x},lop={},est={},to={timeout_ms}",
                stats.last_operation, stats.established_ms
            )?;
            if stats.last_cxid >= 0 {
                write!(out, ",lcxid=0x{:x}", stats.last_cxid)?;
            }
            let latency = stats.latency;
            write!(
                out,
                ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
                stats.last_zxid,
                stats.last_response_ms,
                latency.last,
                latency.min,
                latency.average_whole(),
                latency.max
            )?;
        }
        writeln!(out, ")")?;
    }
    writeln!(out)
}

fn monitor(shared: &Shared, out: &mut String) -> std::fmt::Result {
    for (key, value) in monitor_values(shared) {
        match value {
            Json::Text(text) => writeln!(out, "zk_{key}\t{text}")?,
            value => writeln!(out, "zk_{key}\t{value}")?,
        }
    }
    Ok(())
}

/// What `mntr` tells, with Apache's names.
pub(crate) fn monitor_values(shared: &Shared) -> Vec<(&'static str, Json)> {
    let latency = *shared.statistics.latency.lock();
    let outstanding = outstanding(shared);
    let connections = shared.connection_count();
    let count = |counter: &AtomicU64| Json::count(counter.load(Ordering::Relaxed));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let core = shared.core();
    let ephemerals: usize = core.tree.ephemerals().values().map(|paths| paths.len()).sum();
    let watches = core.data_watches.count() + core.child_watches.count();
    vec![
        ("version", Json::Text(format!("{VERSION}, built on unknown"))),
        ("server_state", Json::text("standalone")),
        ("avg_latency", Json::Double(latency.average())),
        ("max_latency", Json::count(latency.max)),
        ("min_latency", Json::count(latency.min)),
        ("packets_received", count(&shared.statistics.received)),
        ("packets_sent", count(&shared.statistics.sent)),
        ("num_alive_connections", Json::count(connections)),
        ("outstanding_requests", Json::count(outstanding)),
        ("uptime", Json::count((clock::now() - shared.started).as_millis())),
        ("znode_count", Json::count(core.tree.node_count())),
        ("watch_count", Json::count(watches)),
        ("ephemerals_count", Json::count(ephemerals)),
        ("approximate_data_size", Json::count(core.tree.data_size())),
        ("global_sessions", Json::count(core.sessions.len())),
        ("local_sessions", Json::Integer(0)),
        ("auth_failed_count", Json::count(core.failed_logins)),
        ("open_file_descriptor_count", Json::count(open_files())),
        ("max_file_descriptor_count", Json::count(limit.current.unwrap_or(u64::MAX))),
    ]
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn configuration(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let config = &shared.config;
    let (data, logs) = (&shared.store.snapshots, &shared.store.logs);
    let port = |address: Option<SocketAddr>| address.map_or(-1, |address| address.port().into());
    writeln!(out, "clientPort={}", port(shared.addresses.plain))?;
    writeln!(out, "secureClientPort={}", port(shared.addresses.secure))?;
    writeln!(out, "dataDir={}", data.display())?;
    writeln!(out, "dataDirSize={}", size_of(data))?;
    writeln!(out, "dataLogDir={}", logs.display())?;
    writeln!(out, "dataLogSize={}", size_of(logs))?;
    writeln!(out, "tickTime={}", config.tick.as_millis())?;
    writeln!(out, "maxClientCnxns={}", config.client_connections_max)?;
    writeln!(out, "minSessionTimeout={}", config.session_timeout_ms_min)?;
    writeln!(out, "maxSessionTimeout={}", config.session_timeout_ms_max)?;
    writeln!(out, "clientPortListenBacklog=-1")?;
    writeln!(out, "serverId=0")
}

fn environment(out: &mut String) -> std::fmt::Result {
    writeln!(out, "Environment:")?;
    for (key, value) in environment_values() {
        writeln!(out, "{key}={value}")?;
    }
    Ok(())
}

/// What Java tells of its machine, as far as it has a meaning here.
pub(crate) fn environment_values() -> [(&'static str, String); 8] {
    let system = rustix::system::uname();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    [
        ("zookeeper.version", format!("{VERSION}, built on unknown")),
        ("host.name", system.nodename().to_string_lossy().into_owned()),
        ("os.name", system.sysname().to_string_lossy().into_owned()),
        ("os.arch", system.machine().to_string_lossy().into_owned()),
        ("os.version", system.release().to_string_lossy().into_owned()),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", directory.display().to_string()),
    ]
}

fn directories(shared: &Shared, out: &mut String) -> std::fmt::Result {
    writeln!(out, "datadir_size: {}", size_of(&shared.store.snapshots))?;
    writeln!(out, "logdir_size: {}", size_of(&shared.store.logs))
}

/// Bytes of the files in a directory; one that vanishes meanwhile counts as nothing.
pub(crate) fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let lengths = entries.flatten().filter_map(|entry| entry.metadata().ok());
    lengths.map(|metadata| metadata.len()).sum()
}

/// Sessions by the time at which they expire unless they are heard of, in milliseconds since 1970.
pub(crate) fn sessions_by_expiry(core: &Core) -> Vec<(i64, Vec<i64>)> {
    let now = clock::now();
    let wall_ms = clock::wall_clock().0;
    let mut buckets: Vec<(i64, Vec<i64>)> = Vec::new();
    for (deadline, session) in core.sessions.by_deadline() {
        let left = i64::try_from(deadline.saturating_duration_since(now).as_millis());
        let at = wall_ms.saturating_add(left.unwrap_or(i64::MAX));
        match buckets.last_mut() {
            Some((last, sessions)) if *last == at => sessions.push(*session),
            _ => buckets.push((at, vec![*session])),
        }
    }
    buckets
}

fn dump(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let core = shared.core();
    let buckets = sessions_by_expiry(&core);
    writeln!(out, "SessionTracker dump:")?;
    writeln!(out, "Session Sets ({})/({}):", buckets.len(), core.sessions.len())?;
    for (at, sessions) in &buckets {
        writeln!(out, "{} expire at {}:", sessions.len(), java_date(*at))?;
        for session in sessions {
            writeln!(out, "\t0x{session:x}")?;
        }
    }
    writeln!(out, "ephemeral nodes dump:")?;
    let ephemerals = core.tree.ephemerals();
    writeln!(out, "Sessions with Ephemerals ({}):", ephemerals.len())?;
    for (session, paths) in ephemerals {
        writeln!(out, "0x{session:x}:")?;
        for path in paths {
            writeln!(out, "\t{path}")?;
        }
    }
    writeln!(out, "Connections dump:")?;
    let bound = |session: &i64| core.sessions.get(*session)?.connection;
    let sets: Vec<(i64, Vec<ConnectionId>)> = buckets
        .iter()
        .map(|(at, sessions)| (*at, sessions.iter().filter_map(bound).collect()))
        .filter(|(_, connections): &(i64, Vec<ConnectionId>)| !connections.is_empty())
        .collect();
    writeln!(out, "Connections Sets ({})/({}):", sets.len(), core.links.len())?;
    for (at, connections) in sets {
        writeln!(out, "{} expire at {}:", connections.len(), java_date(at))?;
        for link in connections.iter().filter_map(|connection| core.links.get(connection)) {
            writeln!(out, "\tip: {} sessionId: 0x{:x}", address(link.address), link.session)?;
        }
    }
    Ok(())
}

fn watch_summary(table: &WatchTable, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "{} connections watching {} paths",
        table.by_connection().len(),
        table.path_count()
    )?;
    writeln!(out, "Total watches:{}", table.count())
}

fn watches_by_session(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let core = shared.core();
    for (connection, paths) in core.data_watches.by_connection() {
        let session = core.links.get(connection).map_or(0, |link| link.session);
        writeln!(out, "0x{session:x}")?;
        for path in paths {
            writeln!(out, "\t{path}")?;
        }
    }
    writeln!(out)
}

fn watches_by_path(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let core = shared.core();
    for (path, watching) in core.data_watches.by_path() {
        writeln!(out, "{path}")?;
        for connection in watching.keys() {
            let session = core.links.get(connection).map_or(0, |link| link.session);
            writeln!(out, "\t0x{session:x}")?;
        }
    }
    writeln!(out)
}
