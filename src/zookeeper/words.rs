//! The four-letter words: a connection that begins with one gets a text and is closed.
//! Source: ZooKeeper's `FourLetterCommands` and the package `server.command`.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

use common::clock;

use crate::config::WORDS;
use crate::date::java_date;
use crate::server::Shared;
use crate::traffic::{Latency, Traffic};
use crate::watches::WatchTable;

/// What clients take us for: they look for features by it.
pub(crate) const VERSION: &str = "3.8.4-odradek";

/// Whether the first four bytes of a connection are a word and no length.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    WORDS.iter().any(|word| word.as_bytes() == bytes)
}

/// The answer to a word.
pub(crate) fn answer(word: &str, shared: &Shared) -> String {
    if !shared.config.words.contains(word) {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let mut out = String::new();
    let written = match word {
        "ruok" => out.write_str("imok"),
        "isro" => out.write_str("rw"),
        "srvr" => server(shared, &mut out),
        "stat" => stat(shared, &mut out),
        "mntr" => monitor(shared, &mut out),
        "cons" => connections(shared, &mut out),
        "conf" => configuration(shared, &mut out),
        "envi" => environment(&mut out),
        "dirs" => directories(shared, &mut out),
        "dump" => dump(shared, &mut out),
        "wchs" => watch_summary(&shared.core().data_watches, &mut out),
        "wchc" => watches_by_session(shared, &mut out),
        "wchp" => watches_by_path(shared, &mut out),
        "crst" => {
            for (_, _, _, traffic) in shared.connections().values() {
                traffic.reset();
            }
            out.write_str("Connection stats reset.\n")
        }
        "srst" => {
            shared.statistics.received.store(0, Ordering::Relaxed);
            shared.statistics.sent.store(0, Ordering::Relaxed);
            *shared.statistics.latency.lock() = Latency::default();
            out.write_str("Server stats reset.\n")
        }
        // The history of digests, of which we keep none; trace masks, of which there are none.
        "hash" => Ok(()),
        _ => out.write_str("0"),
    };
    written.expect("writing to a string cannot fail");
    out
}

/// As Java prints a double: with a point.
fn double(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() }
}

fn address(address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    if ip.is_ipv6() {
        format!("/[{ip}]:{}", address.port())
    } else {
        format!("/{ip}:{}", address.port())
    }
}

fn outstanding(shared: &Shared) -> usize {
    shared.connections().values().map(|(_, _, _, traffic)| traffic.outstanding()).sum()
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
    writeln!(out, "Connections: {}", shared.connection_count())?;
    writeln!(out, "Outstanding: {}", outstanding(shared))?;
    let core = shared.core();
    writeln!(out, "Zxid: 0x{:x}", core.tree.last_zxid)?;
    writeln!(out, "Mode: standalone")?;
    writeln!(out, "Node count: {}", core.tree.node_count())
}

fn stat(shared: &Shared, out: &mut String) -> std::fmt::Result {
    writeln!(out, "Zookeeper version: {VERSION}, built on unknown")?;
    writeln!(out, "Clients:")?;
    for (peer, _, _, traffic) in shared.connections().values() {
        connection_head(*peer, traffic, out)?;
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

fn connections(shared: &Shared, out: &mut String) -> std::fmt::Result {
    for (peer, session, timeout_ms, traffic) in shared.connections().values() {
        connection_head(*peer, traffic, out)?;
        if *session != 0 {
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
    let latency = *shared.statistics.latency.lock();
    let outstanding = outstanding(shared);
    let connections = shared.connection_count();
    let core = shared.core();
    let ephemerals: usize = core.tree.ephemerals().values().map(|paths| paths.len()).sum();
    let watches = core.data_watches.count() + core.child_watches.count();
    let uptime = (clock::now() - shared.started).as_millis();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let lines = [
        ("version", format!("{VERSION}, built on unknown")),
        ("server_state", "standalone".to_owned()),
        ("avg_latency", double(latency.average())),
        ("max_latency", latency.max.to_string()),
        ("min_latency", latency.min.to_string()),
        ("packets_received", shared.statistics.received.load(Ordering::Relaxed).to_string()),
        ("packets_sent", shared.statistics.sent.load(Ordering::Relaxed).to_string()),
        ("num_alive_connections", connections.to_string()),
        ("outstanding_requests", outstanding.to_string()),
        ("uptime", uptime.to_string()),
        ("znode_count", core.tree.node_count().to_string()),
        ("watch_count", watches.to_string()),
        ("ephemerals_count", ephemerals.to_string()),
        ("approximate_data_size", core.tree.data_size().to_string()),
        ("global_sessions", core.sessions.len().to_string()),
        ("local_sessions", "0".to_owned()),
        ("open_file_descriptor_count", open_files().to_string()),
        ("max_file_descriptor_count", limit.current.unwrap_or(u64::MAX).to_string()),
    ];
    for (key, value) in lines {
        writeln!(out, "zk_{key}\t{value}")?;
    }
    Ok(())
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn configuration(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let config = &shared.config;
    let (data, logs) = (&shared.store.snapshots, &shared.store.logs);
    writeln!(out, "clientPort={}", shared.address.port())?;
    writeln!(out, "secureClientPort=-1")?;
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

/// What Java tells of its machine, as far as it has a meaning here.
fn environment(out: &mut String) -> std::fmt::Result {
    let system = rustix::system::uname();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    writeln!(out, "Environment:")?;
    writeln!(out, "zookeeper.version={VERSION}, built on unknown")?;
    writeln!(out, "host.name={}", system.nodename().to_string_lossy())?;
    writeln!(out, "os.name={}", system.sysname().to_string_lossy())?;
    writeln!(out, "os.arch={}", system.machine().to_string_lossy())?;
    writeln!(out, "os.version={}", system.release().to_string_lossy())?;
    writeln!(out, "user.name={}", variable("USER"))?;
    writeln!(out, "user.home={}", variable("HOME"))?;
    writeln!(out, "user.dir={}", directory.display())
}

fn directories(shared: &Shared, out: &mut String) -> std::fmt::Result {
    writeln!(out, "datadir_size: {}", size_of(&shared.store.snapshots))?;
    writeln!(out, "logdir_size: {}", size_of(&shared.store.logs))
}

/// Bytes of the files in a directory; one that vanishes meanwhile counts as nothing.
fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let lengths = entries.flatten().filter_map(|entry| entry.metadata().ok());
    lengths.map(|metadata| metadata.len()).sum()
}

fn dump(shared: &Shared, out: &mut String) -> std::fmt::Result {
    let core = shared.core();
    let by_deadline = core.sessions.by_deadline();
    let now = clock::now();
    let wall_ms = clock::wall_clock().0;
    let mut buckets: Vec<(i64, Vec<i64>)> = Vec::new();
    for (deadline, session) in by_deadline {
        let left = i64::try_from(deadline.saturating_duration_since(now).as_millis());
        let at = wall_ms.saturating_add(left.unwrap_or(i64::MAX));
        match buckets.last_mut() {
            Some((last, sessions)) if *last == at => sessions.push(*session),
            _ => buckets.push((at, vec![*session])),
        }
    }
    writeln!(out, "SessionTracker dump:")?;
    writeln!(out, "Session Sets ({})/({}):", buckets.len(), core.sessions.len())?;
    for (at, sessions) in buckets {
        writeln!(out, "{} expire at {}:", sessions.len(), java_date(at))?;
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
    writeln!(out, "Connections Sets (1)/({}):", core.links.len())?;
    for link in core.links.values() {
        writeln!(out, "\tip: {} sessionId: 0x{:x}", address(link.address), link.session)?;
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
