//! The shell's commands. Source: ZooKeeper's package `cli`, and `ZKUtil`.

use std::collections::VecDeque;

use zookeeper::client::{Client, ClientError, CreateMode, Op, OpResult, WatchedEvent};
use zookeeper::code::Refusal;
use zookeeper::data::{Acl, Id, Stat, check_path, perms};
use zookeeper::date::java_date;

use super::arguments::{Parsed, parse};
use super::quota;
use super::{Failure, Screen, Shell, USAGE};

/// The version that Kafka 3.9's shell tells.
const VERSION: &str =
    "3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c, built on 2024-02-12 22:16 UTC";

/// Nodes that `deleteall` puts into one `multi`.
const DELETE_BATCH: usize = 1000;

/// Runs a command that needs the server; the others are done before.
pub(super) fn run(shell: &mut Shell, command: &str, words: &[String]) -> Result<(), Failure> {
    match command {
        "ls" => ls(shell, words),
        "get" => get(shell, words),
        "set" => set(shell, words),
        "create" => create(shell, words),
        "delete" => delete(shell, words),
        "deleteall" => delete_all(shell, words),
        "stat" => stat(shell, words),
        "getAcl" => get_acl(shell, words),
        "setAcl" => set_acl(shell, words),
        "sync" => sync(shell, words),
        "addauth" => add_auth(shell, words),
        "addWatch" => add_watch(shell, words),
        "removewatches" => remove_watches(shell, words),
        "getEphemerals" => get_ephemerals(shell, words),
        "getAllChildrenNumber" => get_all_children_number(shell, words),
        "whoami" => who_am_i(shell),
        "config" => config(shell, words),
        "reconfig" => reconfig(shell, words),
        "listquota" => quota::list(shell, words),
        "setquota" => quota::set(shell, words),
        "delquota" => quota::delete(shell, words),
        "version" => version(shell, words),
        "close" => {
            shell.close();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What the shell prints of an error.
pub(super) fn failure(error: ClientError, path: &str) -> Failure {
    let text = match error {
        ClientError::Refused(refusal) => refused(refusal, path),
        ClientError::Lost | ClientError::Connect(_) => keeper(Refusal::ConnectionLoss, path),
        ClientError::Expired => keeper(Refusal::SessionExpired, path),
        ClientError::Login(_) => keeper(Refusal::AuthFailed, path),
        ClientError::Answer(text) => text,
    };
    Failure::new(text)
}

fn refused(refusal: Refusal, path: &str) -> String {
    let text = match refusal {
        Refusal::NoNode => "Node does not exist: ",
        Refusal::NoChildrenForEphemerals => "Ephemerals cannot have children: ",
        Refusal::NodeExists => "Node already exists: ",
        Refusal::NotEmpty => "Node not empty: ",
        Refusal::InvalidAcl => "Acl is not valid : ",
        Refusal::NoAuth => "Insufficient permission : ",
        Refusal::BadArguments => "Arguments are not valid : ",
        Refusal::BadVersion => "version No is not valid : ",
        Refusal::QuotaExceeded => "Quota has exceeded : ",
        refusal => return keeper(refusal, path),
    };
    format!("{text}{path}")
}

/// The message of a `KeeperException`.
fn keeper(refusal: Refusal, path: &str) -> String {
    match path {
        "" => format!("KeeperErrorCode = {}", refusal.java_name()),
        path => format!("KeeperErrorCode = {} for {path}", refusal.java_name()),
    }
}

/// The usage of a command, as it complains of too few words.
pub(super) fn usage(command: &str) -> Failure {
    let arguments = USAGE.iter().find(|(name, _)| *name == command).map_or("", |(_, text)| text);
    Failure::new(format!("{command} {arguments}"))
}

/// Reads the options and demands so many words with the command.
pub(super) fn read(
    words: &[String],
    flags: &[&str],
    valued: &[&str],
    least: usize,
) -> Result<Parsed, Failure> {
    let parsed = parse(words, flags, valued).map_err(Failure::new)?;
    if parsed.words.len() < least {
        return Err(usage(&words[0]));
    }
    Ok(parsed)
}

/// The path of a command, refused as Java's client does before it asks the server.
pub(super) fn path_of(parsed: &Parsed) -> Result<&str, Failure> {
    let path = parsed.words[1].as_str();
    check_path(path).map_err(Failure::new)?;
    Ok(path)
}

/// Older shells took the watch as a third word; that it is deprecated is all that is left of it.
fn deprecated_watch(shell: &Shell, words: &[String], parsed: Parsed) -> Result<Parsed, Failure> {
    if parsed.words.len() <= 2 {
        return Ok(parsed);
    }
    let instead = match words[0].as_str() {
        "get" => "get [-s] [-w] path",
        "stat" => "stat [-w] path",
        _ => "ls [-w] path",
    };
    shell.screen.complain(&format!(
        "'{} path [watch]' has been deprecated. Please use '{instead}' instead.",
        words[0]
    ));
    // Java puts the option where the third word of the line is.
    let mut words = words.to_vec();
    words[2] = "-w".to_owned();
    parse(&words, &["s", "w", "R", "?"], &[]).map_err(Failure::new)
}

fn version_of(parsed: &Parsed) -> Result<i32, Failure> {
    let Some(version) = parsed.value("v") else { return Ok(-1) };
    version.parse().map_err(|_| {
        Failure::death(&format!("java.lang.NumberFormatException: For input string: \"{version}\""))
    })
}

fn print_stat(screen: &Screen, stat: &Stat) {
    screen.say(&format!("cZxid = 0x{:x}", stat.czxid));
    screen.say(&format!("ctime = {}", java_date(stat.ctime)));
    screen.say(&format!("mZxid = 0x{:x}", stat.mzxid));
    screen.say(&format!("mtime = {}", java_date(stat.mtime)));
    screen.say(&format!("pZxid = 0x{:x}", stat.pzxid));
    screen.say(&format!("cversion = {}", stat.cversion));
    screen.say(&format!("dataVersion = {}", stat.version));
    screen.say(&format!("aclVersion = {}", stat.aversion));
    screen.say(&format!("ephemeralOwner = 0x{:x}", stat.ephemeral_owner));
    screen.say(&format!("dataLength = {}", stat.data_length));
    screen.say(&format!("numChildren = {}", stat.child_count));
}

fn ls(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = parse(words, &["?", "s", "w", "R"], &[]).map_err(Failure::new)?;
    if parsed.has("?") {
        shell
            .screen
            .say("usage: ls [options] path\n -?   help\n -R   recurse\n -s   stat\n -w   watch");
    }
    let parsed = deprecated_watch(shell, words, parsed)?;
    if parsed.words.len() < 2 {
        return Err(usage("ls"));
    }
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    if parsed.has("R") {
        return walk(client, path, parsed.has("w"), &mut |path| screen.say(path));
    }
    let (mut names, stat) =
        client.get_children(path, parsed.has("w")).map_err(|error| failure(error, path))?;
    sort_as_java(&mut names);
    screen.say(&format!("[{}]", names.join(", ")));
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

/// Java orders strings by their UTF-16 units.
fn sort_as_java(names: &mut [String]) {
    names.sort_by(|left, right| left.encode_utf16().cmp(right.encode_utf16()));
}

/// Shows a node, its children, and then what is below each of them.
fn walk(
    client: &Client,
    path: &str,
    watch: bool,
    show: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    client.get_data(path, watch).map_err(|error| failure(error, path))?;
    show(path);
    let mut stack = vec![path.to_owned()];
    while let Some(path) = stack.pop() {
        let mut names = match client.get_children(&path, watch) {
            Ok((names, _)) => names,
            // It was deleted meanwhile.
            Err(ClientError::Refused(Refusal::NoNode)) => continue,
            Err(error) => return Err(failure(error, &path)),
        };
        sort_as_java(&mut names);
        let parent = if path == "/" { "" } else { &path };
        let children: Vec<String> = names.iter().map(|name| format!("{parent}/{name}")).collect();
        for child in &children {
            show(child);
        }
        stack.extend(children.into_iter().rev());
    }
    Ok(())
}

fn get(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["s", "w"], &[], 2)?;
    let parsed = deprecated_watch(shell, words, parsed)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    let (data, stat) =
        client.get_data(path, parsed.has("w")).map_err(|error| failure(error, path))?;
    screen.say(&String::from_utf8_lossy(data.as_deref().unwrap_or(b"null")));
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

fn set(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["s"], &["v"], 3)?;
    let version = version_of(&parsed)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    let stat = client
        .set_data(path, Some(parsed.words[2].as_bytes()), version)
        .map_err(|error| failure(error, path))?;
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

fn create(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["e", "s", "c"], &["t"], 2)?;
    let mode = create_mode(&parsed)?;
    let path = parsed.words[1].as_str();
    let sequential = parsed.has("s");
    let checked = if sequential { format!("{path}1") } else { path.to_owned() };
    check_path(&checked).map_err(Failure::new)?;
    let screen = shell.screen.clone();
    let acl = match parsed.words.get(3) {
        Some(text) => parse_acl(&screen, text),
        None => Acl::open(),
    };
    if acl.is_empty() {
        screen.complain(&keeper(Refusal::InvalidAcl, ""));
        return Err(no_acl());
    }
    let client = shell.client(path)?;
    let data = parsed.words.get(2).map(String::as_bytes);
    match client.create(path, data, &acl, mode) {
        Ok((path, _)) => {
            screen.complain(&format!("Created {path}"));
            Ok(())
        }
        Err(error) => {
            if matches!(error, ClientError::Refused(Refusal::InvalidAcl)) {
                screen.complain(&keeper(Refusal::InvalidAcl, path));
            }
            Err(failure(error, path))
        }
    }
}

/// Java's client refuses an empty ACL by itself, and does not say for which path.
fn no_acl() -> Failure {
    Failure::new(refused(Refusal::InvalidAcl, "null"))
}

fn create_mode(parsed: &Parsed) -> Result<CreateMode, Failure> {
    let (ephemeral, sequential, container) = (parsed.has("e"), parsed.has("s"), parsed.has("c"));
    if container && (ephemeral || sequential) {
        return Err(Failure::new(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.",
        ));
    }
    let Some(ttl) = parsed.value("t") else {
        return Ok(match (ephemeral, sequential, container) {
            (true, true, _) => CreateMode::EphemeralSequential,
            (true, false, _) => CreateMode::Ephemeral,
            (false, true, _) => CreateMode::PersistentSequential,
            (false, false, true) => CreateMode::Container,
            (false, false, false) => CreateMode::Persistent,
        });
    };
    let Ok(ttl) = ttl.parse::<i64>() else {
        return Err(Failure::new("-t argument must be a long value"));
    };
    if ephemeral {
        return Err(Failure::new("TTLs cannot be used with Ephemeral znodes"));
    }
    if container {
        return Err(Failure::new("TTLs cannot be used with Container znodes"));
    }
    /// 40 bits of milliseconds.
    const TTL_MAX: i64 = 0xff_ffff_ffff;
    if ttl <= 0 || ttl > TTL_MAX {
        return Err(Failure::new(format!(
            "ttl must be positive and cannot be larger than: {TTL_MAX}"
        )));
    }
    Ok(if sequential { CreateMode::TtlSequential(ttl) } else { CreateMode::Ttl(ttl) })
}

/// Reads `scheme:id:perms,...`; says what it cannot read, and goes on without it.
fn parse_acl(screen: &Screen, text: &str) -> Vec<Acl> {
    let mut acls = Vec::new();
    for part in text.split(',') {
        let (Some(first), Some(last)) = (part.find(':'), part.rfind(':')) else {
            screen.complain(&format!("{part} does not have the form scheme:id:perm"));
            continue;
        };
        if first == last {
            screen.complain(&format!("{part} does not have the form scheme:id:perm"));
            continue;
        }
        let mut bits = 0;
        for letter in part[last + 1..].chars() {
            match letter {
                'r' => bits |= perms::READ,
                'w' => bits |= perms::WRITE,
                'c' => bits |= perms::CREATE,
                'd' => bits |= perms::DELETE,
                'a' => bits |= perms::ADMIN,
                letter => screen.complain(&format!("Unknown perm type: {letter}")),
            }
        }
        acls.push(Acl { perms: bits, id: Id::new(&part[..first], &part[first + 1..last]) });
    }
    acls
}

fn perm_letters(bits: i32) -> String {
    let letters = [
        (perms::CREATE, 'c'),
        (perms::DELETE, 'd'),
        (perms::READ, 'r'),
        (perms::WRITE, 'w'),
        (perms::ADMIN, 'a'),
    ];
    letters.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect()
}

fn delete(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &["v"], 2)?;
    if parsed.words.len() > 2 {
        shell.screen.complain(
            "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.",
        );
    }
    let version = version_of(&parsed)?;
    let path = path_of(&parsed)?;
    shell.client(path)?.delete(path, version).map_err(|error| failure(error, path))
}

fn delete_all(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &["b"], 2)?;
    let batch = match parsed.value("b").map(str::parse::<i32>) {
        None => DELETE_BATCH,
        Some(Ok(batch)) => usize::try_from(batch).unwrap_or(0),
        Some(Err(_)) => return Err(Failure::new("-b argument must be an int value")),
    };
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    let mut paths = Vec::new();
    let mut queue = VecDeque::from([path.to_owned()]);
    while let Some(path) = queue.pop_front() {
        let (names, _) =
            client.get_children(&path, false).map_err(|error| failure(error, &path))?;
        let parent = if path == "/" { "" } else { &path };
        queue.extend(names.iter().map(|name| format!("{parent}/{name}")));
        paths.push(path);
    }
    // Leaves first.
    paths.reverse();
    let mut all_done = true;
    for paths in paths.chunks(batch.max(1)) {
        let delete = |path: &String| Op::Delete { path: path.clone(), version: -1 };
        let ops: Vec<Op> = paths.iter().map(delete).collect();
        let results = client.multi(&ops).map_err(|error| failure(error, path))?;
        all_done &= results.iter().all(|result| *result == OpResult::Done);
    }
    if !all_done {
        screen.complain("Failed to delete some node(s) in the subtree!");
    }
    Ok(())
}

fn stat(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["w"], &[], 2)?;
    let parsed = deprecated_watch(shell, words, parsed)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    match client.exists(path, parsed.has("w")).map_err(|error| failure(error, path))? {
        Some(stat) => {
            print_stat(&screen, &stat);
            Ok(())
        }
        None => Err(failure(ClientError::Refused(Refusal::NoNode), path)),
    }
}

fn get_acl(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["s"], &[], 2)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let (acls, stat) = shell.client(path)?.get_acl(path).map_err(|error| failure(error, path))?;
    for acl in acls {
        let Id { scheme, id } = &acl.id;
        screen.say(&format!("'{scheme},'{id}\n: {}", perm_letters(acl.perms)));
    }
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

fn set_acl(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["s", "R"], &["v"], 3)?;
    let screen = shell.screen.clone();
    let acls = parse_acl(&screen, &parsed.words[2]);
    let version = version_of(&parsed)?;
    let path = path_of(&parsed)?;
    if acls.is_empty() {
        return Err(no_acl());
    }
    let client = shell.client(path)?;
    if parsed.has("R") {
        return walk(client, path, false, &mut |path| {
            if let Err(error) = client.set_acl(path, &acls, version) {
                screen.print(&match error {
                    ClientError::Refused(refusal) => keeper(refusal, path),
                    error => failure(error, path).text,
                });
            }
        });
    }
    let stat = client.set_acl(path, &acls, version).map_err(|error| failure(error, path))?;
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

fn sync(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 2)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    match shell.client(path)?.sync(path) {
        Ok(()) => screen.say("Sync is OK"),
        Err(ClientError::Refused(refusal)) => {
            screen.say(&format!("Sync has failed. rc={}", refusal.code()));
        }
        Err(_) => {
            let code = Refusal::ConnectionLoss.code();
            screen.say(&format!("Sync has failed. rc={code}"));
        }
    }
    Ok(())
}

fn add_auth(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 2)?;
    let auth = parsed.words.get(2).map(String::as_bytes);
    let screen = shell.screen.clone();
    match shell.client("")?.add_auth(&parsed.words[1], auth) {
        // Java's shell does not wait for the answer, so a single command ends without it.
        Err(ClientError::Refused(Refusal::AuthFailed)) if !shell.is_interactive => Ok(()),
        Err(ClientError::Refused(Refusal::AuthFailed)) => {
            screen.tell(&WatchedEvent { state: "AuthFailed", kind: "None", path: None });
            shell.close();
            Ok(())
        }
        Err(error) => Err(failure(error, "")),
        Ok(()) => Ok(()),
    }
}

fn add_watch(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = parse(words, &[], &["m"]).map_err(Failure::new)?;
    let mode = parsed.value("m").unwrap_or("PERSISTENT_RECURSIVE").to_uppercase();
    let recursive = match mode.as_str() {
        "PERSISTENT" => false,
        "PERSISTENT_RECURSIVE" => true,
        _ => return Err(usage("addWatch")),
    };
    if parsed.words.len() != 2 {
        return Err(usage("addWatch"));
    }
    let path = path_of(&parsed)?;
    shell.client(path)?.add_watch(path, recursive).map_err(|error| failure(error, path))
}

fn remove_watches(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["c", "d", "a", "l"], &[], 2)?;
    let path = path_of(&parsed)?;
    let kind = match (parsed.has("c"), parsed.has("d")) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    shell.client(path)?.remove_watches(path, kind).map_err(|error| match error {
        ClientError::Refused(refusal) => Failure::new(keeper(refusal, path)),
        error => failure(error, path),
    })
}

fn get_ephemerals(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 1)?;
    let prefix = match parsed.words.len() {
        1 => "/",
        _ => path_of(&parsed)?,
    };
    let screen = shell.screen.clone();
    let paths =
        shell.client(prefix)?.get_ephemerals(prefix).map_err(|error| failure(error, prefix))?;
    screen.say(&format!("[{}]", paths.join(", ")));
    Ok(())
}

fn get_all_children_number(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 2)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let count =
        shell.client(path)?.get_all_children_number(path).map_err(|error| failure(error, path))?;
    screen.say(&count.to_string());
    Ok(())
}

fn who_am_i(shell: &mut Shell) -> Result<(), Failure> {
    let screen = shell.screen.clone();
    let ids = shell.client("")?.who_am_i().map_err(|error| failure(error, ""))?;
    screen.say("Auth scheme: User");
    for id in ids {
        screen.say(&format!("{}: {}", id.scheme, id.id));
    }
    Ok(())
}

fn config(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    const PATH: &str = "/zookeeper/config";
    let parsed = read(words, &["s", "w", "c"], &[], 1)?;
    let screen = shell.screen.clone();
    let client = shell.client(PATH)?;
    let (data, stat) =
        client.get_data(PATH, parsed.has("w")).map_err(|error| failure(error, PATH))?;
    let text = String::from_utf8_lossy(data.as_deref().unwrap_or(b"null")).into_owned();
    if parsed.has("c") {
        // Servers' client addresses stand behind a semicolon; one node names none.
        let clients: Vec<&str> =
            text.lines().filter_map(|line| line.split_once(';')).map(|(_, at)| at).collect();
        let version = text.lines().find_map(|line| line.strip_prefix("version="));
        screen.say(&format!("{} {}", version.unwrap_or_default(), clients.join(",")));
    } else {
        screen.say(&text);
    }
    if parsed.has("s") {
        print_stat(&screen, &stat);
    }
    Ok(())
}

/// One node has no members to change: the server says no.
fn reconfig(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &["s"], &["v", "file", "members", "add", "remove"], 1)?;
    if !["file", "members", "add", "remove"].iter().any(|option| parsed.has(option)) {
        return Err(usage("reconfig"));
    }
    shell.client("")?.reconfig().map_err(|error| failure(error, ""))
}

fn version(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 1)?;
    if parsed.words.len() > 1 {
        return Err(usage("version"));
    }
    shell.screen.say(&format!("ZooKeeper CLI version: {VERSION}"));
    Ok(())
}
