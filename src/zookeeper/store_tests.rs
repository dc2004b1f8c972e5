//! Data directories after crashes: cut, torn, flipped, and with snapshots that were written while
//! the tree changed.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use crate::core::{Core, Now, Peer, Sasl, Settings, X509};
use crate::data::Acl;
use crate::jute::Write;
use crate::snapshot::{HeadAcls, SnapshotWriter, Walk};
use crate::store::{Loaded, Store, StoreError};
use crate::traffic::Traffic;
use crate::tree::Tree;
use crate::txn_log::{Durability, LogError, LogWriter};
use crate::watches::ConnectionId;

const CLIENT: ConnectionId = ConnectionId(1);

/// A server without threads: requests go in, the log is written at once.
struct Bench {
    core: Core,
    writer: LogWriter,
    now: Now,
    next_connection: u64,
}

fn settings() -> Settings {
    Settings {
        session_check: Duration::from_secs(2),
        session_timeout_ms_min: 4000,
        session_timeout_ms_max: 40_000,
        multi_read_bytes_max: 1 << 20,
        super_digest: None,
        enforce_quota: false,
        skip_acl: false,
        sasl: Sasl::default(),
        x509: X509::default(),
        container_check: Duration::from_secs(60),
    }
}

impl Bench {
    fn open(folder: &Path) -> Bench {
        let (loaded, logs) = load(folder).unwrap();
        let now = Now { instant: common::clock::now(), wall_ms: 1_700_000_000_000 };
        let core = Core::new(settings(), loaded.tree, loaded.sessions, now);
        let mut bench = Bench {
            core,
            writer: LogWriter::new(logs, Durability::Cached),
            now,
            next_connection: CLIENT.0,
        };
        bench.connect();
        bench
    }

    /// A new connection with a new session.
    fn connect(&mut self) -> ConnectionId {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        self.core.attach(connection, Peer::plain(address), Arc::new(Traffic::default()));
        let mut frame = Vec::new();
        frame.int(0);
        frame.long(0);
        frame.int(10_000);
        frame.long(0);
        frame.buffer(Some(&[0; 16]));
        frame.boolean(false);
        self.core.connect(connection, &frame, self.now);
        self.write_log();
        connection
    }

    fn request(&mut self, connection: ConnectionId, op: i32, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        frame.int(1);
        frame.int(op);
        write(&mut frame);
        self.now.wall_ms += 1;
        self.core.request(connection, &frame, self.now);
    }

    fn create(&mut self, path: &str, data: &[u8], flags: i32) {
        self.request(CLIENT, 1, |out| create_body(out, path, Some(data), flags));
        self.write_log();
    }

    fn write_log(&mut self) {
        let take = self.core.take();
        if let Some(first_zxid) = take.first_zxid {
            self.writer.append(&take.log, first_zxid).unwrap();
        }
    }
}

fn create_body(out: &mut Vec<u8>, path: &str, data: Option<&[u8]>, flags: i32) {
    out.text(path);
    out.buffer(data);
    Acl::write_all(&Acl::open(), out);
    out.int(flags);
}

fn load(folder: &Path) -> Result<(Loaded, PathBuf), StoreError> {
    let store = Store::open(folder, folder, Durability::Cached)?;
    let loaded = store.load(true)?;
    Ok((loaded, store.logs))
}

/// Everything there is to know of a tree, for comparison.
fn dump(tree: &Tree) -> String {
    let mut nodes: Vec<_> = tree.nodes().collect();
    nodes.sort_by_key(|(path, _)| *path);
    let lines = nodes.iter().map(|(path, node)| {
        let acl = tree.acls.get(node.acl);
        format!("{path:?} {:?} {:?} {acl:?} {:?}\n", node.data, node.stat, node.children)
    });
    let mut text: String = lines.collect();
    let mut ephemerals: Vec<_> = tree.ephemerals().iter().collect();
    ephemerals.sort();
    text.push_str(&format!("0x{:x} {} {ephemerals:?}", tree.last_zxid, tree.data_size()));
    text
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    let version = to.path().join("version-2");
    fs::create_dir(&version).unwrap();
    for entry in fs::read_dir(from.join("version-2")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), version.join(entry.file_name())).unwrap();
    }
    to
}

fn only_log(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder.join("version-2")).unwrap();
    let mut logs = entries.map(|entry| entry.unwrap().path()).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log."))
    });
    let log = logs.next().unwrap();
    assert!(logs.next().is_none());
    log
}

/// A folder with a log of a few transactions: lengths of the log and trees after each.
fn recorded() -> (TempDir, BTreeMap<usize, String>) {
    let folder = TempDir::new().unwrap();
    let mut bench = Bench::open(folder.path());
    let mut states = BTreeMap::new();
    let length = |folder: &TempDir| {
        usize::try_from(fs::metadata(only_log(folder.path())).unwrap().len()).unwrap()
    };
    states.insert(length(&folder), dump(&bench.core.tree));
    for number in 0..4 {
        bench.create(&format!("/n{number}"), b"data", number % 4);
        states.insert(length(&folder), dump(&bench.core.tree));
    }
    // A refused one takes a transaction too.
    bench.create("/nowhere/child", b"", 0);
    states.insert(length(&folder), dump(&bench.core.tree));
    (folder, states)
}

#[test]
fn a_log_cut_anywhere_gives_the_whole_transactions_before_the_cut() {
    let (folder, states) = recorded();
    let bytes = fs::read(only_log(folder.path())).unwrap();
    for length in 0..=bytes.len() {
        let copy = copy(folder.path());
        fs::write(only_log(copy.path()), &bytes[..length]).unwrap();
        let (loaded, _) = load(copy.path()).unwrap();
        let before = states.range(..=length).next_back();
        match before {
            Some((_, state)) => assert_eq!(&dump(&loaded.tree), state, "cut at {length}"),
            // Not even the session is there.
            None => assert_eq!(loaded.tree.last_zxid, 0, "cut at {length}"),
        }
        // It goes on from there, and opens again.
        let mut bench = Bench::open(copy.path());
        bench.create("/after", b"x", 0);
        let state = dump(&bench.core.tree);
        drop(bench);
        assert_eq!(dump(&load(copy.path()).unwrap().0.tree), state, "cut at {length}");
    }
}

#[test]
fn a_flipped_byte_is_never_taken_for_data() {
    let (folder, states) = recorded();
    let bytes = fs::read(only_log(folder.path())).unwrap();
    let ends: Vec<usize> = states.keys().copied().collect();
    let last = ends[ends.len() - 2];
    let mut refused = 0;
    for position in 16..bytes.len() {
        let copy = copy(folder.path());
        let mut flipped = bytes.clone();
        flipped[position] ^= 0x40;
        fs::write(only_log(copy.path()), flipped).unwrap();
        match load(copy.path()) {
            // In front of others it can't be a torn write.
            Err(StoreError::Log(LogError::Damaged { .. })) if position < last => refused += 1,
            // At the end it may be one: all before it is there.
            Ok((loaded, _)) if position >= last => {
                assert_eq!(dump(&loaded.tree), states[&last], "flipped at {position}");
            }
            other => panic!("flipped at {position}: {other:?}"),
        }
    }
    assert_eq!(refused, last - 16);
}

#[test]
fn pages_that_never_reached_the_disk_are_cut_off() {
    let folder = TempDir::new().unwrap();
    let mut bench = Bench::open(folder.path());
    bench.create("/kept", b"x", 0);
    let state = dump(&bench.core.tree);
    let kept = usize::try_from(fs::metadata(only_log(folder.path())).unwrap().len()).unwrap();
    for number in 0..8 {
        bench.create(&format!("/lost{number}"), &[7; 3000], 0);
    }
    drop(bench);
    let mut bytes = fs::read(only_log(folder.path())).unwrap();
    // The second page of one unsynced write is missing, the later ones are there.
    assert!(kept < 4096);
    bytes[4096..8192].fill(0);
    let whole_before = bytes[..4096].len();
    fs::write(only_log(folder.path()), &bytes).unwrap();
    let (loaded, _) = load(folder.path()).unwrap();
    assert!(loaded.tree.get("/kept").is_some());
    assert!(loaded.tree.get("/lost5").is_none());
    assert!(dump(&loaded.tree).len() >= state.len());
    let cut = fs::metadata(only_log(folder.path())).unwrap().len();
    assert!(usize::try_from(cut).unwrap() <= whole_before);
}

#[test]
fn apaches_zeros_behind_the_last_transaction_end_the_file() {
    let (folder, states) = recorded();
    let mut bytes = fs::read(only_log(folder.path())).unwrap();
    bytes.resize(bytes.len() + 10_000, 0);
    fs::write(only_log(folder.path()), &bytes).unwrap();
    let (loaded, _) = load(folder.path()).unwrap();
    assert_eq!(Some(&dump(&loaded.tree)), states.values().next_back());
}

/// `tests/suites/zookeeper/move` left it: what Apache ZooKeeper 3.8.4 had on disk, a snapshot with
/// a log behind it, and the tree as it showed it then.
#[test]
fn a_data_directory_of_apache_opens_with_what_apache_showed() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/zookeeper");
    let folder = copy(&golden);
    let (loaded, _) = load(folder.path()).unwrap();
    let text = fs::read_to_string(golden.join("tree.jsonl")).unwrap();
    let mut count = 0;
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(session) = row["session"].as_i64() {
            assert_eq!(loaded.sessions.get(&session), Some(&20_000));
            let password = crate::sessions::password(session);
            let hex: String = password.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(row["password"], hex);
            continue;
        }
        let path = row["path"].as_str().unwrap();
        let node = loaded.tree.get(path).unwrap();
        let data = node.data.as_ref().map(|data| STANDARD.encode(data));
        assert_eq!(row["data"].as_str(), data.as_deref(), "{path}");
        let stat = node.stat();
        let shown = serde_json::json!([
            stat.czxid,
            stat.mzxid,
            stat.ctime,
            stat.mtime,
            stat.version,
            stat.cversion,
            stat.aversion,
            stat.ephemeral_owner,
            stat.data_length,
            stat.child_count,
            stat.pzxid
        ]);
        assert_eq!(row["stat"], shown, "{path}");
        // It was shown to somebody without the password.
        let acls = crate::auth::without_hashes(&loaded.tree.acls.get(node.acl));
        let acls: Vec<_> = acls
            .iter()
            .map(|acl| serde_json::json!([acl.perms, acl.id.scheme, acl.id.id]))
            .collect();
        assert_eq!(row["acl"], serde_json::Value::from(acls), "{path}");
        count += 1;
    }
    // The root has two names.
    assert_eq!(loaded.tree.node_count(), count + 1);
}

#[test]
fn a_missing_log_is_noticed() {
    let folder = TempDir::new().unwrap();
    for number in 0..3 {
        let mut bench = Bench::open(folder.path());
        bench.create(&format!("/n{number}"), b"", 0);
    }
    let version = folder.path().join("version-2");
    let mut logs: Vec<PathBuf> = fs::read_dir(&version)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("/log."))
        .collect();
    logs.sort();
    assert_eq!(logs.len(), 3);
    fs::remove_file(&logs[1]).unwrap();
    assert!(matches!(load(folder.path()), Err(StoreError::Gap { after: 2, before: 5, .. })));
    fs::remove_file(&logs[0]).unwrap();
    assert!(matches!(load(folder.path()), Err(StoreError::Gap { .. })));
    for entry in fs::read_dir(&version).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("/snapshot.") {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(matches!(load(folder.path()), Err(StoreError::SnapshotMissing { .. })));
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((self.0 >> 33) % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// One change of a small world: names collide, so every refusal occurs.
fn change(bench: &mut Bench, dice: &mut Dice, sessions: &mut Vec<ConnectionId>) {
    let names = ["a", "b", "c", "zookeeper"];
    let mut path = String::new();
    for _ in 0..=dice.roll(3) {
        path.push('/');
        path.push_str(names[dice.roll(names.len())]);
    }
    let session = sessions[dice.roll(sessions.len())];
    match dice.roll(10) {
        0..=3 => {
            let flags = i32::try_from(dice.roll(4)).unwrap();
            let data = (dice.roll(4) > 0).then_some(path.as_bytes());
            bench.request(session, 1, |out| create_body(out, &path, data, flags));
        }
        4 => bench.request(session, 19, |out| create_body(out, &path, None, 4)),
        5 => bench.request(session, 2, |out| {
            out.text(&path);
            out.int(-1);
        }),
        6 => bench.request(session, 5, |out| {
            out.text(&path);
            out.buffer(Some(b"new data"));
            out.int(-1);
        }),
        7 => {
            let bits = i32::try_from(16 + dice.roll(16)).unwrap();
            bench.request(session, 7, |out| {
                out.text(&path);
                let acl = Acl { perms: bits | 15, id: crate::data::Id::new("world", "anyone") };
                let other = Acl { perms: bits, id: crate::data::Id::new("ip", "127.0.0.1") };
                Acl::write_all(&[acl, other], out);
                out.int(-1);
            });
        }
        8 => bench.request(session, 14, |out| {
            for flags in [0, 2] {
                out.int(1);
                out.boolean(false);
                out.int(-1);
                create_body(out, &path, None, flags);
            }
            out.int(-1);
            out.boolean(true);
            out.int(-1);
        }),
        _ if session != CLIENT => {
            bench.request(session, -11, |_| {});
            sessions.retain(|other| *other != session);
            let begun = bench.connect();
            sessions.push(begun);
        }
        _ => {}
    }
    bench.write_log();
}

fn sessions_of(core: &Core) -> BTreeMap<i64, i32> {
    core.sessions.iter().map(|(id, session)| (id, session.timeout_ms)).collect()
}

#[test]
fn a_snapshot_written_while_the_tree_changes_loads_as_the_tree_is() {
    for seed in 0..40 {
        let folder = TempDir::new().unwrap();
        let mut bench = Bench::open(folder.path());
        let mut dice = Dice(seed);
        let mut sessions = vec![CLIENT, bench.connect(), bench.connect()];
        for _ in 0..60 {
            change(&mut bench, &mut dice, &mut sessions);
        }
        let (mut walk, head) = Walk::begin(&bench.core.tree, &bench.core.sessions);
        let head_acls = HeadAcls::of(&bench.core.tree);
        let snapshots = folder.path().join("version-2");
        let mut writer = SnapshotWriter::create(&snapshots, walk.zxid, Durability::Cached).unwrap();
        writer.append(&head).unwrap();
        while let Some(piece) = walk.next_piece(&bench.core.tree, &head_acls, 1 + dice.roll(3)) {
            writer.append(&piece).unwrap();
            for _ in 0..dice.roll(8) {
                change(&mut bench, &mut dice, &mut sessions);
            }
        }
        writer.finish().unwrap();
        for _ in 0..dice.roll(20) {
            change(&mut bench, &mut dice, &mut sessions);
        }
        let (loaded, _) = load(folder.path()).unwrap();
        assert_eq!(dump(&loaded.tree), dump(&bench.core.tree), "seed {seed}");
        assert_eq!(loaded.sessions, sessions_of(&bench.core), "seed {seed}");
        // Without the snapshot, the log alone says the same.
        fs::remove_file(snapshots.join(format!("snapshot.{:x}", walk.zxid))).unwrap();
        let (replayed, _) = load(folder.path()).unwrap();
        assert_eq!(dump(&replayed.tree), dump(&bench.core.tree), "seed {seed}");
    }
}

#[test]
fn a_snapshot_cut_or_flipped_anywhere_is_passed_over() {
    let (folder, states) = recorded();
    let state = states.values().next_back().unwrap();
    let (loaded, _) = load(folder.path()).unwrap();
    let zxid = loaded.tree.last_zxid;
    let sessions = crate::sessions::Sessions::new(Duration::from_secs(1), common::clock::now(), 0);
    let version = folder.path().join("version-2");
    crate::snapshot::write_still(&loaded.tree, &sessions, &version, Durability::Cached).unwrap();
    let path = version.join(format!("snapshot.{zxid:x}"));
    let bytes = fs::read(&path).unwrap();
    assert_eq!(&dump(&load(folder.path()).unwrap().0.tree), state);
    // The last five bytes say "complete" to Apache, which reads the file's end first; we do not.
    for position in 0..bytes.len() - 5 {
        fs::write(&path, &bytes[..position]).unwrap();
        assert_eq!(&dump(&load(folder.path()).unwrap().0.tree), state, "cut at {position}");
        let mut flipped = bytes.clone();
        flipped[position] ^= 0x10;
        fs::write(&path, flipped).unwrap();
        assert_eq!(&dump(&load(folder.path()).unwrap().0.tree), state, "flipped at {position}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_found_out_at_once() {
    let (data, logs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // Stands for a disk that is full or read-only: the file that is tried cannot be made.
    fs::create_dir_all(logs.path().join("version-2/tmp-snapshot-check")).unwrap();
    let store = Store::open(data.path(), logs.path(), Durability::Cached);
    let error = store.err().unwrap();
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    assert_eq!(fs::read_dir(data.path().join("version-2")).unwrap().count(), 0);
}

#[test]
fn a_second_server_is_kept_out() {
    let folder = TempDir::new().unwrap();
    let _store = Store::open(folder.path(), folder.path(), Durability::Cached).unwrap();
    let second = Store::open(folder.path(), folder.path(), Durability::Cached);
    assert!(matches!(second, Err(StoreError::InUse { .. })));
}

#[test]
fn a_purge_keeps_what_the_kept_snapshots_need() {
    let folder = TempDir::new().unwrap();
    for number in 0..6 {
        let mut bench = Bench::open(folder.path());
        bench.create(&format!("/n{number}"), b"", 0);
        let (tree, sessions) = (&bench.core.tree, &bench.core.sessions);
        let version = folder.path().join("version-2");
        crate::snapshot::write_still(tree, sessions, &version, Durability::Cached).unwrap();
    }
    let before = dump(&load(folder.path()).unwrap().0.tree);
    let store = Store::open(folder.path(), folder.path(), Durability::Cached).unwrap();
    // Seven snapshots, one of them of the empty tree, and six logs.
    assert_eq!(store.purge(3).unwrap(), 4 + 3);
    drop(store);
    assert_eq!(dump(&load(folder.path()).unwrap().0.tree), before);
    let version = folder.path().join("version-2");
    let names = || fs::read_dir(&version).unwrap().map(|entry| entry.unwrap().path());
    let mut snapshots: Vec<_> =
        names().filter(|path| path.to_string_lossy().contains("/snapshot.")).collect();
    snapshots.sort();
    // The oldest that is kept is enough, with the logs that are kept.
    for path in &snapshots[1..] {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(dump(&load(folder.path()).unwrap().0.tree), before);
}
