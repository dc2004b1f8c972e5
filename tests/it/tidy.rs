//! Tidy rules: what the style page asks for and a program can check. Each rule has a test that it can fail.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::source::{Line, Source, has_word};

/// Which crates of ours a crate may use. A new edge is a design decision.
const PERMITTED: &[(Layer, &str, &[&str])] = &[
    (Layer::Words, "common", &[]),
    (Layer::Words, "record", &["common"]),
    (Layer::Words, "protocol", &["common"]),
    (Layer::Words, "metadata", &["common"]),
    (Layer::Words, "security", &[]),
    (Layer::Decisions, "partition", &["common"]),
    (Layer::Decisions, "group_coordinator", &["common"]),
    (Layer::Decisions, "transaction_coordinator", &["common"]),
    (Layer::Decisions, "controller", &["common", "metadata"]),
    (Layer::Hands, "storage", &["common", "record"]),
    (Layer::Hands, "zk", &["common", "metadata", "security"]),
    // What the broker and the simulated cluster do alike with ZooKeeper for the controller.
    (Layer::Hands, "controller_store", &["common", "controller", "metadata", "zk"]),
    (Layer::Hands, "network", &["common", "protocol"]),
    (Layer::Hands, "replication", &["common", "metadata", "partition", "record", "storage"]),
    (
        Layer::Hands,
        "coordinator",
        &[
            "common",
            "group_coordinator",
            "partition",
            "record",
            "replication",
            "storage",
            "transaction_coordinator",
        ],
    ),
    (
        Layer::Edges,
        "server",
        &[
            "common",
            "controller",
            "controller_store",
            "coordinator",
            "group_coordinator",
            "metadata",
            "network",
            "partition",
            "protocol",
            "record",
            "replication",
            "security",
            "storage",
            "transaction_coordinator",
            "zk",
        ],
    ),
    (Layer::Edges, "client", &["common", "network", "protocol", "record"]),
    (Layer::Edges, "zookeeper", &["common", "security"]),
    (
        Layer::Edges,
        "tools",
        &[
            "client",
            "common",
            "metadata",
            "protocol",
            "record",
            "security",
            "server",
            "storage",
            "zk",
            "zookeeper",
        ],
    ),
];

/// Who stands on whom: a crate uses its own layer and those above in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// Types and rules; no input or output.
    Words,
    /// Events in, actions out; no input or output, no runtime, no clock.
    Decisions,
    /// Disk, network, ZooKeeper.
    Hands,
    /// The broker, the library, the commands.
    Edges,
}

/// What may lie at the top of the repository; hidden names may, too, and what `.gitignore` leaves out.
const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "src",
    "config",
    "bin",
    "tests",
    "docker-compose.yml",
    "docs",
];

const LINES_MAX: usize = 1000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the repository: its path from the top, and its text.
struct File {
    path: String,
    text: String,
}

/// Text files under the given folders, but for what others made: recordings and foreign suites.
fn files(folders: &[&str], is_wanted: fn(&str) -> bool) -> Vec<File> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = waiting.pop() {
        let name =
            path.strip_prefix(root()).expect("under the root").to_string_lossy().into_owned();
        if NOT_OURS.contains(&name.as_str()) || name.ends_with("__pycache__") {
            continue;
        }
        if path.is_dir() {
            let entries =
                std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            waiting.extend(entries.map(|entry| entry.expect("a folder that can be read").path()));
        } else if is_wanted(&name) {
            // What is no UTF-8 is no text.
            if let Ok(text) = std::fs::read_to_string(&path) {
                found.push(File { path: name, text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

const NOT_OURS: &[&str] = &["tests/golden", "tests/suites", "tests/peer", "tests/target"];

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// Whether the whole file is tests.
fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.ends_with("tests.rs") || path.contains("/tests/")
}

/// Runs a rule over files, and shows every breach with its place.
fn hold(files: &[File], rule: impl Fn(&File) -> Vec<String>) {
    assert!(!files.is_empty(), "a rule that looks at nothing holds nothing");
    let breaches: Vec<String> = files
        .iter()
        .flat_map(|file| rule(file).into_iter().map(move |breach| format!("{}{breach}", file.path)))
        .collect();
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

/// Breaches at the lines of code that hold one of the words.
fn words_in(lines: &[Line], words: &[&str], why: &str) -> Vec<String> {
    let breach = |line: &Line| {
        let word = words.iter().find(|word| has_word(&line.code, word))?;
        Some(format!(":{}: {word}: {why}", line.number))
    };
    lines.iter().filter_map(breach).collect()
}

// Permissions.

/// A manifest's crates: ours and others', for the program and for its tests.
struct Manifest {
    dependencies: BTreeSet<String>,
    development: BTreeSet<String>,
}

fn manifest(text: &str) -> Manifest {
    let table: toml::Table = toml::from_str(text).expect("a manifest");
    let names = |section: &str| match table.get(section) {
        Some(toml::Value::Table(dependencies)) => dependencies.keys().cloned().collect(),
        _ => BTreeSet::new(),
    };
    Manifest { dependencies: names("dependencies"), development: names("dev-dependencies") }
}

/// What a crate's manifest names and may not.
fn manifest_breaches(name: &str, manifest: &Manifest) -> Vec<String> {
    let Some((layer, _, permitted)) = PERMITTED.iter().find(|row| row.1 == name) else {
        return vec![format!(": crate {name} has no permissions")];
    };
    let ours: BTreeSet<&str> = PERMITTED.iter().map(|row| row.1).collect();
    let named = manifest.dependencies.union(&manifest.development);
    let mut breaches: Vec<String> = named
        .filter(|other| ours.contains(other.as_str()) && !permitted.contains(&other.as_str()))
        .map(|other| format!(": {name} may not use {other}"))
        .collect();
    let keeps_still = *layer <= Layer::Decisions || name == "storage";
    for runtime in ["tokio", "tokio-util", "tokio-rustls", "futures-util"] {
        if keeps_still && manifest.dependencies.contains(runtime) {
            breaches.push(format!(": {name} may not use {runtime}"));
        }
    }
    breaches
}

#[test]
fn crates_use_what_they_may() {
    let manifests = files(&["src"], |path| path.ends_with("/Cargo.toml"));
    assert_eq!(manifests.len(), PERMITTED.len(), "a crate without permissions, or the other way");
    hold(&manifests, |file| {
        let name = file.path.trim_start_matches("src/").trim_end_matches("/Cargo.toml");
        manifest_breaches(name, &manifest(&file.text))
    });
}

#[test]
fn the_permissions_follow_the_layers() {
    let layers: BTreeMap<&str, Layer> = PERMITTED.iter().map(|row| (row.1, row.0)).collect();
    for (layer, name, permitted) in PERMITTED {
        for other in *permitted {
            assert!(layers[other] <= *layer, "{name} uses {other} of a later layer");
        }
    }
}

#[test]
fn a_wrong_edge_is_found() {
    let breaches = |name, text| manifest_breaches(name, &manifest(text));
    assert!(
        breaches("record", "[dependencies]\ncommon.workspace = true\nbytes = \"1\"").is_empty()
    );
    assert_eq!(
        breaches("record", "[dev-dependencies]\nstorage.workspace = true"),
        [": record may not use storage"]
    );
    assert_eq!(
        breaches("storage", "[dependencies]\ntokio = \"1\""),
        [": storage may not use tokio"]
    );
    assert_eq!(breaches("news", ""), [": crate news has no permissions"]);
}

// Input and output, clocks, unsafe.

fn io_breaches(file: &File) -> Vec<String> {
    let name = file.path.trim_start_matches("src/").split('/').next().unwrap_or_default();
    let layer = PERMITTED.iter().find(|row| row.1 == name).map(|row| row.0);
    let source = Source::parse(&file.text);
    let lines = source.without_tests();
    let mut breaches = Vec::new();
    if layer <= Some(Layer::Decisions) && !is_test_file(&file.path) {
        let words = [
            "std::fs",
            "std::process",
            "std::thread",
            "std::env",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "UnixListener",
        ];
        breaches.extend(words_in(lines, &words, "this crate does no input or output"));
    }
    if layer == Some(Layer::Decisions) && !is_test_file(&file.path) {
        breaches.extend(words_in(lines, &["clock"], "this crate is told the time"));
        breaches.extend(words_in(lines, &["tracing"], "this crate logs nothing"));
    }
    breaches
}

#[test]
fn words_and_decisions_do_no_input_or_output() {
    hold(&files(&["src"], is_rust), io_breaches);
}

#[test]
fn input_and_output_are_found() {
    let breaches = |path, text| io_breaches(&file(path, text)).len();
    assert_eq!(breaches("src/record/batch.rs", "use std::fs;"), 1);
    assert_eq!(
        breaches("src/record/batch.rs", "// std::fs\n#[cfg(test)]\nmod tests {\nuse std::fs;"),
        0
    );
    assert_eq!(breaches("src/controller/lib.rs", "common::clock::now()"), 1);
    assert_eq!(breaches("src/storage/log.rs", "use std::fs;"), 0);
}

fn clock_breaches(file: &File) -> Vec<String> {
    if file.path == "src/common/clock.rs" {
        return Vec::new();
    }
    let words = ["Instant::now", "SystemTime::now"];
    words_in(&Source::parse(&file.text).lines, &words, "time comes from common::clock")
}

#[test]
fn time_comes_from_the_clock() {
    hold(&files(&["src", "tests"], is_rust), clock_breaches);
    assert_eq!(clock_breaches(&file("src/x.rs", "let now = Instant::now();")).len(), 1);
    assert_eq!(clock_breaches(&file("src/common/clock.rs", "Instant::now()")).len(), 0);
}

fn unsafe_breaches(file: &File) -> Vec<String> {
    if file.path == "src/storage/mapped.rs" {
        return Vec::new();
    }
    words_in(&Source::parse(&file.text).lines, &["unsafe"], "unsafe lives in storage/mapped.rs")
}

#[test]
fn unsafe_lives_in_one_file() {
    hold(&files(&["src", "tests"], is_rust), unsafe_breaches);
    assert_eq!(unsafe_breaches(&file("src/x.rs", "let x = unsafe { y };")).len(), 1);
    assert_eq!(unsafe_breaches(&file("src/x.rs", "// unsafe\n\"unsafe\"")).len(), 0);
}

// Shape of the repository and its files.

fn strangers<'a>(names: impl Iterator<Item = &'a str>, ignored: &str) -> Vec<&'a str> {
    let is_ignored = |name: &str| ignored.lines().any(|line| line.trim_matches('/') == name);
    names
        .filter(|name| !name.starts_with('.') && !TOP.contains(name) && !is_ignored(name))
        .collect()
}

#[test]
fn the_top_level_is_fixed() {
    let entries = std::fs::read_dir(root()).expect("the root");
    let names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let ignored = std::fs::read_to_string(root().join(".gitignore")).unwrap_or_default();
    assert_eq!(strangers(names.iter().map(String::as_str), &ignored), Vec::<&str>::new());
    assert_eq!(
        strangers([".ci", "src", "target", "scripts"].into_iter(), "/target\n"),
        ["scripts"]
    );
}

fn shape_breaches(file: &File) -> Vec<String> {
    let count = file.text.lines().count();
    let mut breaches = Vec::new();
    if count > LINES_MAX {
        breaches.push(format!(": {count} lines; it has two subjects"));
    }
    if !file.text.starts_with("//!") {
        breaches.push(":1: no //! that says what the file is".to_owned());
    }
    breaches
}

#[test]
fn files_have_one_subject_and_say_which() {
    hold(&files(&["src", "tests"], is_rust), shape_breaches);
    assert_eq!(shape_breaches(&file("x.rs", "//! X.\n")).len(), 0);
    assert_eq!(shape_breaches(&file("x.rs", "use y;\n")).len(), 1);
    assert_eq!(shape_breaches(&file("x.rs", &"//! X.\n".repeat(1001))).len(), 1);
}

// Code.

fn code_breaches(file: &File) -> Vec<String> {
    let source = Source::parse(&file.text);
    let mut breaches = Vec::new();
    // One comment may stand above several such lines.
    let mut is_excused = false;
    for line in &source.lines {
        let drops = line.code.contains("let _ =");
        is_excused = line.has_comment || (drops && is_excused);
        let mut found = |what: &str| breaches.push(format!(":{}: {what}", line.number));
        if ["todo!", "unimplemented!", "dbg!"].iter().any(|word| line.code.contains(word)) {
            found("unfinished");
        }
        if drops && !is_excused {
            found("`let _ =` without a comment that says why it cannot matter");
        }
        let exports = ["pub use ", "pub(crate) use ", "pub(super) use "];
        if exports.iter().any(|word| line.code.trim_start().starts_with(word)) {
            found("a re-export: one name for a thing");
        }
    }
    breaches
}

#[test]
fn code_is_finished_and_drops_no_result_silently() {
    hold(&files(&["src", "tests"], is_rust), code_breaches);
}

#[test]
fn unfinished_code_is_found() {
    let breaches = |text| code_breaches(&file("src/x.rs", text)).len();
    assert_eq!(breaches("todo!()"), 1);
    assert_eq!(breaches("let _ = f();"), 1);
    assert_eq!(breaches("// It cannot matter.\nlet _ = f();\nlet _ = g();"), 0);
    assert_eq!(breaches("// It cannot matter.\nlet _ = f();\nf();\nlet _ = g();"), 1);
    assert_eq!(breaches("let _ = g(); // It cannot matter."), 0);
    assert_eq!(breaches("pub use x::Y;"), 1);
    assert_eq!(breaches("let text = \"todo!\"; // todo!"), 0);
}

fn test_breaches(file: &File) -> Vec<String> {
    let source = Source::parse(&file.text);
    let lines = if is_test_file(&file.path) { &source.lines } else { source.tests() };
    let mut breaches = words_in(lines, &["sleep"], "tests wait for what happens, not for time");
    let ignored = source.lines.iter().filter(|line| line.code.contains("#[ignore"));
    breaches.extend(ignored.map(|line| format!(":{}: an ignored test tests nothing", line.number)));
    breaches
}

#[test]
fn tests_do_not_sleep_and_are_not_ignored() {
    hold(&files(&["src", "tests/it"], is_rust), test_breaches);
}

#[test]
fn a_sleeping_test_is_found() {
    let breaches = |path, text| test_breaches(&file(path, text)).len();
    assert_eq!(breaches("tests/it/x.rs", "sleep(SECOND).await;"), 1);
    assert_eq!(breaches("src/x.rs", "sleep(SECOND).await;"), 0);
    assert_eq!(breaches("src/x.rs", "#[cfg(test)]\nmod tests {\nthread::sleep(SECOND);\n}"), 1);
    assert_eq!(breaches("src/x.rs", "#[test]\n#[ignore]\nfn f() {}"), 1);
}

/// Keys that are said to do nothing, though the code reads them. `documented` is the text of docs/configuration.md.
fn effect_breaches(documented: &str, file: &File) -> Vec<String> {
    let idle = documented.lines().filter(|line| line.contains("| no effect yet |"));
    let keys = idle.filter_map(|line| line.split('`').nth(1));
    let source = Source::parse(&file.text);
    let reads = |key: &str| {
        let field = format!(".{}", key.replace(['.', '-'], "_"));
        source.lines.iter().any(|line| {
            let ends = |at: usize| {
                !line.code[at..].starts_with(|next: char| next == '_' || next.is_alphanumeric())
            };
            line.code.match_indices(&field).any(|(at, _)| ends(at + field.len()))
        })
    };
    keys.filter(|key| reads(key)).map(|key| format!(": {key} has an effect")).collect()
}

#[test]
fn keys_without_effect_are_not_read() {
    let path = root().join("docs/configuration.md");
    let documented = std::fs::read_to_string(path).expect("docs/configuration.md");
    let sources = files(&["src"], |path| is_rust(path) && !path.starts_with("src/common/config/"));
    hold(&sources, |file| effect_breaches(&documented, file));
}

#[test]
fn a_key_with_an_effect_is_found() {
    let documented = "| `a.b` | int | no effect yet | of a |\n| `c.d` | int | works | of c |";
    let breaches = |text| effect_breaches(documented, &file("src/x.rs", text)).len();
    assert_eq!(breaches("let wait = config.a_b;"), 1);
    assert_eq!(breaches("let wait = config.a_b_c + config.c_d;"), 0);
}

// Words that have no place in the repository, taken apart so that this file has none of them.

const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp", "/w/"),
    concat!("../sha", "red"),
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
    concat!("registry.npm", "js.org"),
    concat!("repo1.ma", "ven.org"),
    concat!("files.python", "hosted.org"),
    concat!("claude", "."),
    concat!("TODO", ":"),
    concat!("FIX", "ME"),
];

fn word_breaches(file: &File) -> Vec<String> {
    let numbered = file.text.lines().enumerate();
    let breach = |(index, line): (usize, &str)| {
        let word = FORBIDDEN.iter().find(|word| line.contains(*word))?;
        Some(format!(":{}: {word}", index + 1))
    };
    numbered.filter_map(breach).collect()
}

#[test]
fn nothing_of_this_machine_is_in_the_repository() {
    let mut texts = files(&["src", "tests", "config", "bin", "docs", ".ci"], |_| true);
    texts.extend(files(&["README.md", "Cargo.toml"], |_| true));
    hold(&texts, word_breaches);
    for word in FORBIDDEN {
        assert_eq!(word_breaches(&file("x", &format!("a\nb {word} c"))).len(), 1);
    }
}
