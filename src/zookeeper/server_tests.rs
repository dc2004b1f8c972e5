//! The server as clients see it, over real sockets and a real folder.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::client::{Client, ClientError, CreateMode, Op, OpResult, WatchedEvent};
use crate::code::Refusal;
use crate::config::Config;
use crate::data::Acl;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(10);

fn start(folder: &TempDir) -> Server {
    Server::start(Config::for_tests(folder.path())).unwrap()
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap().0
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refusal {
    match result {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn nodes_live_through_a_restart() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let (path, stat) =
        client.create("/a", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    assert_eq!((path.as_str(), stat.version, stat.data_length), ("/a", 0, 1));
    client.create("/a/null", None, &Acl::open(), CreateMode::Persistent).unwrap();
    client.create("/a/empty", Some(b""), &Acl::open(), CreateMode::Persistent).unwrap();
    let stat = client.set_data("/a", Some(b"yy"), 0).unwrap();
    assert_eq!(stat.version, 1);
    assert_eq!(refusal(client.set_data("/a", Some(b"z"), 0)), Refusal::BadVersion);
    client.close().unwrap();
    server.stop();

    let server = start(&folder);
    let client = connect(&server);
    let (data, again) = client.get_data("/a", false).unwrap();
    assert_eq!(data.as_deref(), Some(&b"yy"[..]));
    assert_eq!((again.mzxid, again.cversion, again.child_count), (stat.mzxid, 2, 2));
    assert_eq!(client.get_data("/a/null", false).unwrap().0, None);
    assert_eq!(client.get_data("/a/empty", false).unwrap().0, Some(Vec::new()));
    assert_eq!(client.get_children("/a", false).unwrap().0, ["empty", "null"]);
}

#[test]
fn ephemerals_go_with_their_session_and_not_with_the_connection() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let watcher = connect(&server);
    let address = server.address().to_string();
    let (owner, _events) = Client::connect(&address, TIMEOUT, None).unwrap();
    owner.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    let session = owner.session().clone();
    drop(owner);
    assert!(watcher.exists("/e", false).unwrap().is_some());
    let (owner, _events) = Client::connect(&address, TIMEOUT, Some(&session)).unwrap();
    assert_eq!(owner.session(), &session);
    for all in ["/", "", " /\u{1}"] {
        assert_eq!(owner.get_ephemerals(all).unwrap(), ["/e"], "{all:?}");
    }
    assert!(owner.get_ephemerals("/e\u{1}").unwrap().is_empty(), "a prefix is taken as it is");
    owner.close().unwrap();
    assert!(watcher.exists("/e", false).unwrap().is_none());
    let expired = Client::connect(&address, TIMEOUT, Some(&session));
    assert!(matches!(expired, Err(ClientError::Expired)));
}

#[test]
fn a_session_lives_through_a_restart_and_ends_on_time() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let short = Duration::from_millis(300);
    let (owner, _events) = Client::connect(&server.address().to_string(), short, None).unwrap();
    owner.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    drop(owner);
    server.stop();

    let server = start(&folder);
    let (watcher, events) = Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap();
    assert!(watcher.exists("/e", true).unwrap().is_some());
    assert_eq!(events.recv().unwrap().state, "SyncConnected");
    let gone = events.recv_timeout(Duration::from_secs(5)).unwrap();
    let expected =
        WatchedEvent { state: "SyncConnected", kind: "NodeDeleted", path: Some("/e".to_owned()) };
    assert_eq!(gone, expected);
}

#[test]
fn a_session_ends_soon_after_its_timeout_however_long_a_tick_is() {
    let folder = TempDir::new().unwrap();
    let tick = Duration::from_secs(10);
    let server = Server::start(Config { tick, ..Config::for_tests(folder.path()) }).unwrap();
    let short = Duration::from_millis(300);
    let (owner, _events) = Client::connect(&server.address().to_string(), short, None).unwrap();
    owner.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    let (watcher, events) = Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap();
    assert!(watcher.exists("/e", true).unwrap().is_some());
    drop(owner);
    assert_eq!(events.recv().unwrap().state, "SyncConnected");
    assert_eq!(events.recv_timeout(tick / 2).unwrap().kind, "NodeDeleted");
}

#[test]
fn a_multi_does_all_or_nothing() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let create = |path: &str| Op::Create { path: path.to_owned(), data: None, ephemeral: false };
    let results = client
        .multi(&[
            create("/m"),
            create("/m/a"),
            Op::Check { path: "/m".to_owned(), version: 0 },
            Op::SetData { path: "/m".to_owned(), data: Some(b"1".to_vec()), version: 0 },
            Op::Delete { path: "/m/a".to_owned(), version: -1 },
        ])
        .unwrap();
    assert_eq!(results[0], OpResult::Created("/m".to_owned()));
    assert!(matches!(&results[3], OpResult::Set(stat) if stat.version == 1));
    let results = client
        .multi(&[create("/m/b"), Op::Check { path: "/m".to_owned(), version: 7 }, create("/m/c")])
        .unwrap();
    assert_eq!(
        results,
        [
            OpResult::Failed(0),
            OpResult::Failed(Refusal::BadVersion.code()),
            OpResult::Failed(Refusal::RuntimeInconsistency.code())
        ]
    );
    assert!(client.get_children("/m", false).unwrap().0.is_empty());
}

fn raw(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn word(server: &Server, word: &str) -> String {
    let mut stream = raw(server);
    stream.write_all(word.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A connect request with its length.
fn connect_frame() -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 45];
    frame.extend([0; 4 + 8]);
    frame.extend(10_000_i32.to_be_bytes());
    frame.extend([0; 8]);
    frame.extend(16_i32.to_be_bytes());
    frame.extend([0; 17]);
    frame
}

#[test]
fn four_letter_words_are_answered() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    client.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    client.exists("/watched", true).unwrap();
    assert_eq!(word(&server, "ruok"), "imok");
    assert_eq!(word(&server, "isro"), "rw");
    let text = word(&server, "srvr");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Zookeeper version: 3.8.4-"), "{text}");
    assert!(lines[1].starts_with("Latency min/avg/max: "), "{text}");
    assert_eq!(
        lines[4..],
        ["Connections: 2", "Outstanding: 0", "Zxid: 0x2", "Mode: standalone", "Node count: 6"]
    );
    let session = format!("0x{:x}", client.session().id);
    assert!(word(&server, "dump").contains(&format!("{session}:\n\t/e\n")));
    assert!(word(&server, "cons").contains(&format!(",sid={session},lop=EXIS,est=")));
    client.delete("/nothing", -1).unwrap_err();
    assert!(word(&server, "cons").contains(&format!(",sid={session},lop=NA,est=")));
    assert_eq!(word(&server, "wchp"), format!("/watched\n\t{session}\n\n"));
    assert_eq!(word(&server, "wchc"), format!("{session}\n\t/watched\n\n"));
    let summary = "1 connections watching 1 paths\nTotal watches:1\n";
    assert_eq!(word(&server, "wchs"), summary);
    let monitor = word(&server, "mntr");
    assert!(monitor.contains("zk_znode_count\t6\n"), "{monitor}");
    assert!(monitor.contains("zk_ephemerals_count\t1\n"), "{monitor}");
    let port = format!("clientPort={}\n", server.address().port());
    assert!(word(&server, "conf").contains(&port));
    assert_eq!(word(&server, "srst"), "Server stats reset.\n");
    assert_eq!(word(&server, "crst"), "Connection stats reset.\n");
    assert!(word(&server, "dirs").starts_with("datadir_size: "));
}

#[test]
fn words_that_are_not_on_the_list_are_refused() {
    let folder = TempDir::new().unwrap();
    let mut config = Config::for_tests(folder.path());
    config.words = ["srvr".to_owned()].into();
    let server = Server::start(config).unwrap();
    let text = "ruok is not executed because it is not in the whitelist.\n";
    assert_eq!(word(&server, "ruok"), text);
}

#[test]
fn bad_input_ends_its_own_connection_and_no_other() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let huge = 0x7fff_ffff_i32.to_be_bytes().to_vec();
    let negative = (-5_i32).to_be_bytes().to_vec();
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let mut short_connect = 3_i32.to_be_bytes().to_vec();
    short_connect.extend(b"abc");
    let mut no_header = connect_frame();
    no_header.extend([0, 0, 0, 2, 1, 1]);
    let mut unknown = connect_frame();
    unknown.extend([0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 3, 231]);
    let noise: Vec<u8> = (0..100_000_u32).map(|number| (number * 31 % 251) as u8).collect();
    for bytes in [huge, negative, http, short_connect, no_header, unknown, noise] {
        let mut stream = raw(&server);
        // The server may close before it has taken everything.
        let _ = stream.write_all(&bytes);
        let mut rest = Vec::new();
        // A reset is as good an end.
        let _ = stream.read_to_end(&mut rest);
        assert!(client.exists("/", false).unwrap().is_some());
    }
}

#[test]
fn half_frames_and_silence_hold_nobody_up() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let mut half: Vec<TcpStream> = (0..50).map(|_| raw(&server)).collect();
    for (number, stream) in half.iter_mut().enumerate() {
        let frame = connect_frame();
        // Claims much and sends little.
        let bytes = if number % 2 == 0 { &frame[..number] } else { &[0, 15, 0, 0, 1][..] };
        stream.write_all(bytes).unwrap();
    }
    let client = connect(&server);
    client.create("/n", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    // A slow writer is served as well.
    let mut slow = raw(&server);
    for byte in connect_frame() {
        slow.write_all(&[byte]).unwrap();
    }
    let mut answer = [0; 41];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [0, 0, 0, 37]);
}

#[test]
fn frames_are_taken_up_to_their_limit() {
    let folder = TempDir::new().unwrap();
    let config = Config { jute_buffer_bytes_max: 10_000, ..Config::for_tests(folder.path()) };
    let server = Server::start(config).unwrap();
    // A connect request may be large too.
    let mut connect = connect_frame();
    connect.resize(4 + 8000, 0);
    connect[..4].copy_from_slice(&8000_i32.to_be_bytes());
    for (length, is_taken) in [(10_000, true), (10_001, false)] {
        let mut stream = raw(&server);
        stream.write_all(&connect).unwrap();
        let mut answer = [0; 41];
        stream.read_exact(&mut answer).unwrap();
        // A sync, and what nobody reads behind it.
        let mut frame = i32::to_be_bytes(length).to_vec();
        frame.extend([0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, b'/']);
        frame.resize(4 + usize::try_from(length).unwrap(), 0);
        // The server may close before it has taken everything.
        let _ = stream.write_all(&frame);
        assert_eq!(stream.read_exact(&mut [0; 25]).is_ok(), is_taken, "{length}");
    }
}

#[test]
fn halves_of_large_frames_have_room_together_and_hold_no_small_ones_up() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let claimed = 1_000_000_i32.to_be_bytes();
    let halves: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = raw(&server);
            stream.write_all(&connect_frame()).unwrap();
            stream.write_all(&claimed).unwrap();
            stream.write_all(&[7; 100_000]).unwrap();
            stream
        })
        .collect();
    // There is room for 268 of them.
    while server.shared.large_frames.available_permits() > 976 {
        std::thread::yield_now();
    }
    client.create("/small", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    let large = std::thread::spawn(move || {
        let data = vec![7; 500_000];
        client.create("/large", Some(&data), &Acl::open(), CreateMode::Persistent)
    });
    let other = connect(&server);
    other.create("/other", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    drop(halves);
    large.join().unwrap().unwrap();
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    client.create("/big", Some(&vec![7; 500_000]), &Acl::open(), CreateMode::Persistent).unwrap();
    let mut deaf = raw(&server);
    deaf.write_all(&connect_frame()).unwrap();
    let mut request = vec![0, 0, 0, 17, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 4];
    request.extend(b"/big\0");
    let requests = request.repeat(300);
    deaf.write_all(&requests).unwrap();
    // All of the answers would be 150 MB.
    let mut queued = 0;
    for _ in 0..100 {
        client.exists("/", false).unwrap();
        let connections = server.shared.connections();
        let traffic = &connections.last().unwrap().traffic;
        queued = queued.max(traffic.queued_bytes());
    }
    assert!(queued > 0 && queued < 8 << 20, "{queued}");
    // When it reads at last, every answer is there.
    let mut length = 41 + 300 * (4 + 16 + 4 + 500_000 + 68);
    let mut chunk = vec![0; 1 << 20];
    while length > 0 {
        let count = deaf.read(&mut chunk).unwrap();
        assert!(count > 0);
        length -= count;
    }
}

#[test]
fn connections_of_one_address_are_counted() {
    let folder = TempDir::new().unwrap();
    let mut config = Config::for_tests(folder.path());
    config.client_connections_max = 2;
    let server = Server::start(config).unwrap();
    let first = connect(&server);
    let _second = connect(&server);
    let address = server.address().to_string();
    assert!(Client::connect(&address, TIMEOUT, None).is_err());
    first.close().unwrap();
    let free = (0..1000).any(|_| Client::connect(&address, TIMEOUT, None).is_ok());
    assert!(free, "a place becomes free when a connection ends");
}

#[test]
fn writers_that_race_lose_nothing() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let setup = connect(&server);
    setup.create("/count", Some(b"0"), &Acl::open(), CreateMode::Persistent).unwrap();
    let address = server.address().to_string();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || {
                let client = Client::connect(&address, TIMEOUT, None).unwrap().0;
                for _ in 0..50 {
                    loop {
                        let (data, stat) = client.get_data("/count", false).unwrap();
                        let number: u32 =
                            String::from_utf8(data.unwrap()).unwrap().parse().unwrap();
                        let next = (number + 1).to_string();
                        match client.set_data("/count", Some(next.as_bytes()), stat.version) {
                            Ok(_) => break,
                            Err(ClientError::Refused(Refusal::BadVersion)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let mode = CreateMode::PersistentSequential;
                    client.create("/count/n-", None, &Acl::open(), mode).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let (data, stat) = setup.get_data("/count", false).unwrap();
    assert_eq!((data.as_deref(), stat.version), (Some(&b"200"[..]), 200));
    let (names, _) = setup.get_children("/count", false).unwrap();
    let expected: Vec<String> = (0..200).map(|number| format!("n-{number:010}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn snapshots_are_written_while_clients_write_and_old_files_are_purged() {
    let folder = TempDir::new().unwrap();
    let mut config = Config::for_tests(folder.path());
    config.snap_count = 50;
    let server = Server::start(config.clone()).unwrap();
    let client = connect(&server);
    for number in 0..500 {
        let path = format!("/n{number}");
        client.create(&path, Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    }
    drop(client);
    server.stop();
    let count = |prefix: &str| {
        let names = std::fs::read_dir(folder.path().join("version-2")).unwrap();
        names
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with(prefix)
            })
            .count()
    };
    assert!(count("snapshot.") > 2 && count("log.") > 2);
    assert_eq!(count("tmp-"), 0);
    config.purge_interval = Some(Duration::from_secs(3600));
    let server = Server::start(config).unwrap();
    let client = connect(&server);
    assert_eq!(client.get_all_children_number("/").unwrap(), 503);
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let mut config = Config::for_tests(folder.path());
    let error = Server::start(config.clone()).unwrap_err();
    assert!(matches!(&error, crate::server::StartError::Store(_)), "{error}");
    let other = TempDir::new().unwrap();
    config.data_dir = other.path().to_owned();
    config.data_log_dir = other.path().to_owned();
    config.client_address = Some(server.address());
    let error = Server::start(config).unwrap_err();
    assert!(matches!(error, crate::server::StartError::Listen { .. }), "{error}");
}

#[test]
fn a_log_that_cannot_be_written_stops_the_server_before_anybody_is_answered() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    std::fs::remove_dir_all(folder.path().join("version-2")).unwrap();
    assert!(Client::connect(&server.address().to_string(), TIMEOUT, None).is_err());
    assert!(server.has_failed());
}

#[test]
fn a_full_disk_stops_the_server_and_takes_nothing_that_was_acknowledged() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    client.create("/a", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    let session = client.session().clone();
    drop(client);
    server.stop();
    let server = start(&folder);
    // The next log is that of the next zxid, and there is no room for it.
    let next = folder.path().join("version-2").join("log.3");
    std::os::unix::fs::symlink("/dev/full", &next).unwrap();
    let again = Client::connect(&server.address().to_string(), TIMEOUT, Some(&session));
    let client = again.unwrap().0;
    let result = client.create("/b", Some(b"y"), &Acl::open(), CreateMode::Persistent);
    assert!(matches!(result, Err(ClientError::Lost)), "{result:?}");
    assert!(server.has_failed());
    drop(server);
    std::fs::remove_file(&next).unwrap();
    let server = start(&folder);
    let client = connect(&server);
    assert_eq!(client.get_children("/", false).unwrap().0, ["a", "zookeeper"]);
}

/// What a crash would leave at this moment: snapshots first, or a log might be missing behind one.
fn copy(from: &std::path::Path) -> TempDir {
    let to = TempDir::new().unwrap();
    let (source, target) = (from.join("version-2"), to.path().join("version-2"));
    std::fs::create_dir(&target).unwrap();
    for prefix in ["snapshot.", "log."] {
        let mut names: Vec<_> =
            std::fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names.iter().filter(|name| name.to_string_lossy().starts_with(prefix)) {
            std::fs::copy(source.join(name), target.join(name)).unwrap();
        }
    }
    to
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_moment() {
    let folder = TempDir::new().unwrap();
    let mut config = Config::for_tests(folder.path());
    config.snap_count = 200;
    let server = Server::start(config).unwrap();
    let acknowledged: [AtomicUsize; 3] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let client = connect(&server);
            let stop = &stop;
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    let path = format!("/w{writer}-{number:06}");
                    client.create(&path, None, &Acl::open(), CreateMode::Persistent).unwrap();
                    number += 1;
                    acknowledged.store(number, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..10 {
            let before = acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
            let copy = copy(folder.path());
            let after = Server::start(Config::for_tests(copy.path())).unwrap();
            let (names, _) = connect(&after).get_children("/", false).unwrap();
            for (writer, before) in before.iter().enumerate() {
                let prefix = format!("w{writer}-");
                let own: Vec<_> = names.iter().filter(|name| name.starts_with(&prefix)).collect();
                assert!(own.len() >= *before, "{} of {before}", own.len());
                // Each writer's nodes have no gap: what came later is there only with what came before.
                let last = format!("{prefix}{:06}", own.len().saturating_sub(1));
                assert!(own.is_empty() || *own[own.len() - 1] == last);
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
}
