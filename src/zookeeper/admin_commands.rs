//! The commands of the admin server. Source: ZooKeeper's `admin.Commands`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::Ordering;

use common::clock;

use crate::json::Json;
use crate::server::{Connection, Shared};
use crate::traffic::Sizes;
use crate::words::{self, VERSION};

/// Every command's names, that of its answers first.
pub(crate) const COMMANDS: [&[&str]; 26] = [
    &["connection_stat_reset", "crst"],
    &["configuration", "conf", "config"],
    &["connections", "cons"],
    &["hash"],
    &["dirs"],
    &["dump"],
    &["environment", "env", "envi"],
    &["get_trace_mask", "gtmk"],
    &["initial_configuration", "icfg"],
    &["is_read_only", "isro"],
    &["last_snapshot", "lsnp"],
    &["leader", "lead"],
    &["monitor", "mntr"],
    &["observer_connection_stat_reset", "orst"],
    &["ruok"],
    &["set_trace_mask", "stmk"],
    &["server_stats", "srvr"],
    &["stats", "stat"],
    &["stat_reset", "srst"],
    &["observers", "obsr"],
    &["system_properties", "sysp"],
    &["voting_view"],
    &["watches", "wchc"],
    &["watches_by_path", "wchp"],
    &["watch_summary", "wchs"],
    &["zabstate"],
];

/// Runs a command by any of its names.
pub(crate) fn run(name: &str, query: &str, shared: &Shared) -> Json {
    let found = COMMANDS.iter().find(|names| names.contains(&name));
    let Some(names) = found else {
        let error = format!("Unknown command: {name}");
        return Json::object([("command", Json::text(name)), ("error", Json::Text(error))]);
    };
    let mut answer = answer(names[0], query, shared);
    // A command's own "error" stays where it is.
    let has_error = answer.iter().any(|(key, _)| key == "error");
    answer.push(("command".to_owned(), Json::text(names[0])));
    if !has_error {
        answer.push(("error".to_owned(), Json::Null));
    }
    Json::Object(answer)
}

type Entries = Vec<(String, Json)>;

fn entries<const N: usize>(entries: [(&str, Json); N]) -> Entries {
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

fn answer(command: &str, query: &str, shared: &Shared) -> Entries {
    match command {
        "connection_stat_reset" => {
            words::reset_connections(shared);
            Vec::new()
        }
        "configuration" => configuration(shared),
        "connections" => connections(shared, full),
        // The history of digests, of which we keep none.
        "hash" => entries([("digests", Json::List(Vec::new()))]),
        "dirs" => entries([
            ("datadir_size", Json::count(words::size_of(&shared.store.snapshots))),
            ("logdir_size", Json::count(words::size_of(&shared.store.logs))),
        ]),
        "dump" => dump(shared),
        "environment" => {
            let lines = words::environment_values().into_iter();
            lines.map(|(key, value)| (key.to_owned(), Json::Text(value))).collect()
        }
        // Trace masks, of which there are none.
        "get_trace_mask" => entries([("tracemask", Json::Integer(0))]),
        "set_trace_mask" => set_trace_mask(query),
        "initial_configuration" => entries([("initial_configuration", Json::Null)]),
        "is_read_only" => entries([("read_only", Json::Bool(false))]),
        "last_snapshot" => {
            let (zxid, timestamp) = shared.store.last_snapshot().unwrap_or((-1, -1));
            entries([
                ("zxid", Json::Text(format!("{zxid:x}"))),
                ("timestamp", Json::Integer(timestamp)),
            ])
        }
        "leader" => entries([("error", Json::text("server is not initialized"))]),
        "monitor" => {
            let values = words::monitor_values(shared).into_iter();
            values.map(|(key, value)| (key.to_owned(), value)).collect()
        }
        "server_stats" => server_stats(shared),
        "stats" => {
            let mut answer = server_stats(shared);
            answer.extend(connections(shared, brief));
            answer
        }
        "stat_reset" => {
            words::reset_server(shared);
            Vec::new()
        }
        "observers" => {
            entries([("synced_observers", Json::Integer(0)), ("observers", Json::List(Vec::new()))])
        }
        "voting_view" => entries([("current_config", Json::Object(Vec::new()))]),
        "watches" => watches_by_session(shared),
        "watches_by_path" => watches_by_path(shared),
        "watch_summary" => {
            let table = &shared.core().data_watches;
            entries([
                ("num_connections", Json::count(table.by_connection().len())),
                ("num_paths", Json::count(table.path_count())),
                ("num_total_watches", Json::count(table.count())),
            ])
        }
        "zabstate" => entries([("voting", Json::Bool(false)), ("zabstate", Json::text(""))]),
        // "ruok" says that somebody answers; the rest is about Java and about ensembles.
        _ => Vec::new(),
    }
}

fn configuration(shared: &Shared) -> Entries {
    let config = &shared.config;
    entries([
        (
            "client_port",
            Json::Integer(shared.addresses.plain.map_or(-1, |address| address.port().into())),
        ),
        ("data_dir", Json::Text(shared.store.snapshots.display().to_string())),
        ("data_log_dir", Json::Text(shared.store.logs.display().to_string())),
        ("tick_time", Json::count(config.tick.as_millis())),
        ("max_client_cnxns", Json::count(config.client_connections_max)),
        ("min_session_timeout", Json::Integer(config.session_timeout_ms_min.into())),
        ("max_session_timeout", Json::Integer(config.session_timeout_ms_max.into())),
        ("server_id", Json::Integer(0)),
        ("client_port_listen_backlog", Json::Integer(-1)),
    ])
}

fn connections(shared: &Shared, show: fn(&Connection) -> Entries) -> Entries {
    let (secure, plain): (Vec<Connection>, Vec<Connection>) =
        shared.connections().into_iter().partition(|connection| connection.is_secure);
    let list = |connections: Vec<Connection>| {
        Json::List(connections.iter().map(|connection| Json::Object(show(connection))).collect())
    };
    entries([("connections", list(plain)), ("secure_connections", list(secure))])
}

fn brief(connection: &Connection) -> Entries {
    let stats = connection.traffic.stats();
    entries([
        // As Jackson writes a Java socket address.
        ("remote_socket_address", Json::Text(connection.address.to_string())),
        ("interest_ops", Json::Integer(1)),
        ("outstanding_requests", Json::count(connection.traffic.outstanding())),
        ("packets_received", Json::count(stats.received)),
        ("packets_sent", Json::count(stats.sent)),
    ])
}

fn full(connection: &Connection) -> Entries {
    let stats = connection.traffic.stats();
    let latency = stats.latency;
    let mut answer = brief(connection);
    answer.extend(entries([
        ("session_id", Json::Integer(connection.session)),
        ("last_operation", Json::text(stats.last_operation)),
        ("established", Json::Integer(stats.established_ms)),
        ("session_timeout", Json::Integer(connection.timeout_ms.into())),
        ("last_cxid", Json::Integer(stats.last_cxid.into())),
        ("last_zxid", Json::Integer(stats.last_zxid)),
        ("last_response_time", Json::Integer(stats.last_response_ms)),
        ("last_latency", Json::count(latency.last)),
        ("min_latency", Json::count(latency.min)),
        ("avg_latency", Json::count(latency.average_whole())),
        ("max_latency", Json::count(latency.max)),
    ]));
    answer
}

fn set_trace_mask(query: &str) -> Entries {
    const WANTED: &str = "setTraceMask requires long traceMask argument";
    let value = query.split('&').find_map(|pair| pair.strip_prefix("traceMask="));
    let error = match value.map(str::parse) {
        Some(Ok(mask)) => return entries([("tracemask", Json::Integer(mask))]),
        Some(Err(_)) => format!("{WANTED}, got {}", value.unwrap_or_default()),
        None => WANTED.to_owned(),
    };
    entries([("error", Json::Text(error))])
}

fn dump(shared: &Shared) -> Entries {
    let core = shared.core();
    let buckets = words::sessions_by_expiry(&core).into_iter().map(|(at, sessions)| {
        (at.to_string(), Json::List(sessions.into_iter().map(Json::Integer).collect()))
    });
    let ephemerals: BTreeMap<_, _> = core.tree.ephemerals().iter().collect();
    let owners = ephemerals.into_iter().map(|(session, paths)| (session.to_string(), texts(paths)));
    entries([
        ("expiry_time_to_session_ids", Json::Object(buckets.collect())),
        ("session_id_to_ephemeral_paths", Json::Object(owners.collect())),
    ])
}

fn texts(texts: impl IntoIterator<Item = impl Display>) -> Json {
    Json::List(texts.into_iter().map(|text| Json::Text(text.to_string())).collect())
}

fn server_stats(shared: &Shared) -> Entries {
    let latency = *shared.statistics.latency.lock();
    let load =
        |counter: &std::sync::atomic::AtomicU64| Json::count(counter.load(Ordering::Relaxed));
    let response = response_sizes(*shared.statistics.response_sizes.lock());
    let connections = Json::count(shared.connection_count());
    let outstanding = Json::count(words::outstanding(shared));
    let core = shared.core();
    let stats = Json::object([
        ("packets_sent", load(&shared.statistics.sent)),
        ("packets_received", load(&shared.statistics.received)),
        ("fsync_threshold_exceed_count", load(&shared.statistics.slow_syncs)),
        ("client_response_stats", response.clone()),
        ("data_dir_size", Json::count(words::size_of(&shared.store.snapshots))),
        ("log_dir_size", Json::count(words::size_of(&shared.store.logs))),
        ("provider_null", Json::Bool(false)),
        ("last_processed_zxid", Json::Integer(core.tree.last_zxid)),
        ("outstanding_requests", outstanding),
        ("server_state", Json::text("standalone")),
        ("avg_latency", Json::Double(latency.average())),
        ("max_latency", Json::count(latency.max)),
        ("min_latency", Json::count(latency.min)),
        ("num_alive_client_connections", connections),
        ("uptime", Json::count((clock::now() - shared.started).as_millis())),
        ("auth_failed_count", Json::count(core.failed_logins)),
    ]);
    entries([
        ("version", Json::Text(format!("{VERSION}, built on unknown"))),
        ("read_only", Json::Bool(false)),
        ("server_stats", stats),
        ("client_response", response),
        ("node_count", Json::count(core.tree.node_count())),
    ])
}

/// -1 stands for "none yet".
fn response_sizes(sizes: Option<Sizes>) -> Json {
    let show = |size: Option<usize>| size.map_or(Json::Integer(-1), Json::count);
    Json::object([
        ("last_buffer_size", show(sizes.map(|sizes| sizes.last))),
        ("min_buffer_size", show(sizes.map(|sizes| sizes.min))),
        ("max_buffer_size", show(sizes.map(|sizes| sizes.max))),
    ])
}

fn watches_by_session(shared: &Shared) -> Entries {
    let core = shared.core();
    let watching = core.data_watches.by_connection().iter().map(|(connection, paths)| {
        let session = core.links.get(connection).map_or(0, |link| link.session);
        (session.to_string(), texts(paths))
    });
    entries([("session_id_to_watched_paths", Json::Object(watching.collect()))])
}

fn watches_by_path(shared: &Shared) -> Entries {
    let core = shared.core();
    let paths: BTreeMap<_, _> = core.data_watches.by_path().iter().collect();
    let watched = paths.into_iter().map(|(path, watching)| {
        let sessions = watching.keys().filter_map(|connection| core.links.get(connection));
        let sessions = sessions.map(|link| Json::Integer(link.session)).collect();
        (path.to_string(), Json::List(sessions))
    });
    entries([("path_to_session_ids", Json::Object(watched.collect()))])
}
