//! What the scripts of `bin/` do themselves: finding the binary, starting in the background, stopping, the quickstart.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use tests::ports::quiet_port;

/// A copy of the tree as it is installed: `bin`, `config`, and the binary in `lib`.
struct Installation {
    folder: TempDir,
}

impl Installation {
    fn new() -> Installation {
        let installation = Installation { folder: TempDir::new().unwrap() };
        for name in ["bin", "config"] {
            let from = root().join(name);
            fs::create_dir(installation.path(name)).unwrap();
            for file in fs::read_dir(from).unwrap() {
                let file = file.unwrap().path();
                let to = installation.path(name).join(file.file_name().unwrap());
                fs::copy(&file, to).unwrap();
            }
        }
        fs::create_dir(installation.path("lib")).unwrap();
        symlink(env!("CARGO_BIN_EXE_odradek-commands"), installation.path("lib/odradek")).unwrap();
        installation
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a setting at the end of a properties file, where it wins.
    fn set(&self, file: &str, key: &str, value: &str) {
        let path = self.path(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}\n{key}={value}\n")).unwrap();
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(self.path("bin").join(script));
        command.current_dir(self.folder.path());
        for name in ["ODRADEK_BINARY", "LOG_DIR", "KAFKA_LOG4J_OPTS", "EXTRA_ARGS", "SIGNAL"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Output {
        self.command(script).args(arguments).output().unwrap()
    }

    /// Files with data and ports of this installation's own.
    fn for_quickstart() -> Installation {
        let installation = Installation::new();
        let (zookeeper, broker) = (quiet_port(), quiet_port());
        let data = |name: &str| installation.path(name).display().to_string();
        let (properties, server) = ("config/zookeeper.properties", "config/server.properties");
        installation.set(properties, "clientPort", &zookeeper.to_string());
        installation.set(properties, "dataDir", &data("zookeeper"));
        installation.set(server, "zookeeper.connect", &format!("127.0.0.1:{zookeeper}"));
        installation.set(server, "listeners", &format!("PLAINTEXT://127.0.0.1:{broker}"));
        installation.set(server, "log.dirs", &data("data"));
        installation
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // Whatever a failed test left running; nothing is to be said of it.
        let _ = self.command("kafka-quickstart.sh").arg("--stop").output();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A failure in one line, without a success before it.
fn assert_fails(output: &Output, text: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err(output).contains(text) && err(output).trim().lines().count() == 1, "{output:?}");
}

#[test]
fn the_quickstart_starts_tries_and_stops_both_servers() {
    let installation = Installation::for_quickstart();
    let first = installation.run("kafka-quickstart.sh", &[]);
    assert!(first.status.success(), "{first:?}");
    for line in ["  This is my first event", "  This is my third event", "It works."] {
        assert!(out(&first).contains(line), "{first:?}");
    }
    let again = installation.run("kafka-quickstart.sh", &[]);
    assert!(again.status.success() && out(&again).starts_with("Already running"), "{again:?}");
    // What operators look for in the list of processes.
    let pid = fs::read_to_string(installation.path("logs/quickstart-broker.pid")).unwrap();
    let line = fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap();
    assert!(line.starts_with(b"java\0kafka.Kafka\0"), "{}", String::from_utf8_lossy(&line));
    let stopped = installation.run("kafka-quickstart.sh", &["--stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(out(&stopped).contains("The broker is stopped.\nThe ZooKeeper is stopped."));
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
    let idle = installation.run("kafka-quickstart.sh", &["--stop"]);
    assert!(idle.status.success() && out(&idle).contains("is not running"), "{idle:?}");
}

#[test]
fn the_quickstart_names_what_hinders_it() {
    let installation = Installation::for_quickstart();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    installation.set(
        "config/server.properties",
        "listeners",
        &format!("PLAINTEXT://127.0.0.1:{port}"),
    );
    let output = installation.run("kafka-quickstart.sh", &[]);
    assert_fails(&output, &format!("port {port} is taken by another program"));
    installation.set("config/server.properties", "log.dirs", "/proc/nonsense");
    let output = installation.run("kafka-quickstart.sh", &[]);
    assert_fails(&output, "/proc/nonsense cannot be written to");
}

#[test]
fn the_quickstart_asks_for_a_compiler() {
    let installation = Installation::for_quickstart();
    fs::remove_file(installation.path("lib/odradek")).unwrap();
    let programs = installation.path("programs");
    fs::create_dir(&programs).unwrap();
    for name in
        ["bash", "env", "dirname", "readlink", "sed", "tail", "cat", "tr", "grep", "mkdir", "rm"]
    {
        let found = ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name));
        let found = found.clone().find(|path| path.exists()).unwrap();
        symlink(found, programs.join(name)).unwrap();
    }
    let output =
        installation.command("kafka-quickstart.sh").env("PATH", &programs).output().unwrap();
    assert_fails(&output, "cargo is not there");
    fs::write(programs.join("cargo"), "#!/bin/false\n").unwrap();
    fs::set_permissions(programs.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let output =
        installation.command("kafka-quickstart.sh").env("PATH", &programs).output().unwrap();
    assert_fails(&output, "there is no C compiler");
}

#[test]
fn the_binary_is_found_beside_bin_or_where_the_variable_says() {
    let installation = Installation::new();
    let version = |command: &mut Command| out(&command.arg("--version").output().unwrap());
    assert_eq!(version(&mut installation.command("kafka-topics.sh")), "3.9.1\n");
    // Through a link, from elsewhere.
    let link = installation.path("topics");
    symlink(installation.path("bin/kafka-topics.sh"), &link).unwrap();
    assert_eq!(version(Command::new(&link).current_dir("/")), "3.9.1\n");
    let mut command = installation.command("kafka-topics.sh");
    assert_eq!(
        version(command.env("ODRADEK_BINARY", "/bin/echo")),
        "org.apache.kafka.tools.TopicCommand --version\n"
    );
    fs::remove_file(installation.path("lib/odradek")).unwrap();
    let output = installation.run("kafka-topics.sh", &["--version"]);
    assert_fails(&output, "target/release/odradek is not there");
}

#[test]
fn scripts_without_arguments_say_how_they_are_used() {
    let installation = Installation::new();
    for script in [
        "kafka-run-class.sh",
        "kafka-server-start.sh",
        "zookeeper-server-start.sh",
        "zookeeper-shell.sh",
    ] {
        let output = installation.run(script, &[]);
        assert_eq!(output.status.code(), Some(1), "{script}");
        assert!(out(&output).starts_with("USAGE: "), "{script}: {output:?}");
    }
}

#[test]
fn a_daemon_writes_its_output_to_a_file_and_survives_the_script() {
    let installation = Installation::new();
    let folder = installation.path("elsewhere");
    let mut command = installation.command("kafka-run-class.sh");
    command.env("ODRADEK_BINARY", "/bin/echo").env("LOG_DIR", &folder);
    command.env("KAFKA_LOG4J_OPTS", "-Dlog4j.configuration=file:none");
    let output = command.args(["-name", "some", "-loggc", "-daemon", "a.Class", "word"]).output();
    assert!(output.unwrap().status.success());
    let written = || fs::read_to_string(folder.join("some.out")).unwrap_or_default();
    // The daemon takes the moment that it takes.
    while written().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(written(), "a.Class word\n");
}

/// Runs a stop script with a `ps` that lists these lines, and with a `kill` that only tells.
fn stop(installation: &Installation, script: &str, processes: &str, arguments: &[&str]) -> Output {
    let programs = installation.path("stubs");
    fs::create_dir_all(&programs).unwrap();
    fs::write(installation.path("processes"), processes).unwrap();
    let list = format!("#!/bin/sh\ncat {}\n", installation.path("processes").display());
    fs::write(programs.join("ps"), list).unwrap();
    fs::set_permissions(programs.join("ps"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    // `kill` is a builtin; a function of that name is exported instead.
    let mut command = installation.command(script);
    command.env("PATH", path).env("BASH_FUNC_kill%%", "() { echo \"kill $*\"; }");
    command.args(arguments).output().unwrap()
}

#[test]
fn stop_scripts_find_the_servers_of_ours_and_of_java() {
    let installation = Installation::new();
    fs::write(installation.path("one.properties"), "node.id=1\nprocess.roles=broker\n").unwrap();
    fs::write(installation.path("two.properties"), "node.id=2\n").unwrap();
    let processes = "  101 ?  Sl  0:01 java kafka.Kafka one.properties\n\
                     \u{20} 102 ?  Sl  0:01 /usr/bin/java -Xmx1G -cp x kafka.Kafka two.properties --override a=b\n\
                     \u{20} 103 ?  Sl  0:01 java org.apache.zookeeper.server.quorum.QuorumPeerMain z\n\
                     \u{20} 104 ?  S   0:00 vi kafka.Kafka.txt\n";
    let run = |script, list, arguments: &[&str]| {
        let output = stop(&installation, script, list, arguments);
        (output.status.code(), out(&output))
    };
    let server = "kafka-server-stop.sh";
    let both = (Some(0), "kill -s TERM 101\nkill -s TERM 102\n".to_owned());
    assert_eq!(run(server, processes, &[]), both);
    let second = (Some(0), "kill -s TERM 102\n".to_owned());
    assert_eq!(run(server, processes, &["--node-id=2"]), second);
    let first = (Some(0), "kill -s TERM 101\n".to_owned());
    assert_eq!(run(server, processes, &["--process-role=broker"]), first);
    assert_eq!(run(server, "", &[]), (Some(1), "No kafka server to stop\n".to_owned()));
    let zookeeper = "zookeeper-server-stop.sh";
    assert_eq!(run(zookeeper, processes, &[]), (Some(0), "kill -s TERM 103\n".to_owned()));
    assert_eq!(run(zookeeper, "", &[]), (Some(1), "No zookeeper server to stop\n".to_owned()));
}
