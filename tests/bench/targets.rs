//! The brokers under measurement: ours, and a real Kafka where the peer is at hand.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use common::clock;
use tests::ports::quiet_port;

use crate::process::{Process, cpu_of_threads};

/// A broker that serves, and what stands behind it.
pub(crate) struct Target {
    /// For the table.
    pub(crate) name: &'static str,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its process.
    pub(crate) pid: u32,
    ours: Option<Ours>,
    kafka: Option<KafkaPeer>,
}

struct Ours {
    broker: Process,
    _zookeeper: Process,
    directory: PathBuf,
}

struct KafkaPeer {
    peer: PathBuf,
    directory: PathBuf,
}

impl Drop for KafkaPeer {
    fn drop(&mut self) {
        for part in ["broker", "zookeeper"] {
            // Best effort: the machine is only left with a process more.
            let _ = Command::new(&self.peer).arg("stop").arg(self.directory.join(part)).status();
        }
    }
}

/// What both brokers are set to. They look often, and from the start, for what retention may delete (see
/// `requests::create_topic`): memory that a virtual machine has not used yet costs its kernel several times as much to write
/// to. A group does not wait for more members.
const SETTINGS: &[&str] = &[
    "log.initial.task.delay.ms=500",
    "log.retention.check.interval.ms=1000",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
];

/// These settings, and the common ones that they do not set.
fn with_common<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    let key = |setting: &str| setting.split('=').next().map(str::to_owned);
    let is_set = |common: &&str| settings.iter().any(|setting| key(setting) == key(common));
    let common = SETTINGS.iter().copied().filter(|common| !is_set(common));
    settings.iter().copied().chain(common).collect()
}

/// A port of this machine.
pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Tries to connect until it works or 60 seconds are over.
pub(crate) fn wait_for(
    address: SocketAddr,
    is_up: &dyn Fn(SocketAddr) -> bool,
) -> Result<(), String> {
    let deadline = clock::now() + Duration::from_secs(60);
    while clock::now() < deadline {
        if is_up(address) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(format!("{address} does not answer"))
}

/// Whether something accepts connections.
pub(crate) fn listens(address: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

impl Target {
    /// Starts our ZooKeeper and broker from the release binary, on empty folders under `directory`.
    pub(crate) fn ours(
        binary: &Path,
        directory: &Path,
        is_up: &dyn Fn(SocketAddr) -> bool,
    ) -> Result<Target, String> {
        Target::ours_with(binary, directory, is_up, &[])
    }

    /// As `ours`, with settings that go before the common ones.
    pub(crate) fn ours_with(
        binary: &Path,
        directory: &Path,
        is_up: &dyn Fn(SocketAddr) -> bool,
        settings: &[&str],
    ) -> Result<Target, String> {
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        let (zookeeper_port, port) = (quiet_port(), quiet_port());
        let zookeeper = start_zookeeper(binary, directory, zookeeper_port)?;
        let text = format!(
            "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect=127.0.0.1:{zookeeper_port}\nlog.dirs={}\n{}\n",
            directory.join("data").display(),
            with_common(settings).join("\n")
        );
        fs::write(directory.join("server.properties"), text).map_err(|error| error.to_string())?;
        let broker = start_broker(binary, directory)?;
        wait_for(address(port), is_up)?;
        let pid = broker.pid();
        let ours = Ours { broker, _zookeeper: zookeeper, directory: directory.to_owned() };
        Ok(Target { name: "odradek", address: address(port), pid, ours: Some(ours), kafka: None })
    }

    /// Starts a real Kafka 3.9.1 by the peer script.
    pub(crate) fn kafka(peer: &Path, directory: &Path) -> Result<Target, String> {
        Target::kafka_with(peer, directory, &[])
    }

    /// As `kafka`, with settings that go before the common ones.
    pub(crate) fn kafka_with(
        peer: &Path,
        directory: &Path,
        settings: &[&str],
    ) -> Result<Target, String> {
        let (zookeeper_port, port) = (quiet_port(), quiet_port());
        let run = |arguments: &[&str]| -> Result<(), String> {
            let status = Command::new(peer).args(arguments).status();
            let status = status.map_err(|error| format!("{}: {error}", peer.display()))?;
            if status.success() { Ok(()) } else { Err(format!("{}: {status}", peer.display())) }
        };
        let kafka = KafkaPeer { peer: peer.to_owned(), directory: directory.to_owned() };
        let part = |name: &str| directory.join(name).display().to_string();
        run(&["zookeeper", &part("zookeeper"), &zookeeper_port.to_string()])?;
        let connect = format!("127.0.0.1:{zookeeper_port}");
        let (directory_of_broker, port_text) = (part("broker"), port.to_string());
        let broker = ["broker", &directory_of_broker, &port_text, &connect, "1"];
        run(&[&broker[..], &with_common(settings)].concat())?;
        let pid = fs::read_to_string(directory.join("broker/pid")).unwrap_or_default();
        let pid = pid.trim().parse().map_err(|_| "no pid of Kafka".to_owned())?;
        let kafka = Some(kafka);
        Ok(Target { name: "kafka 3.9.1", address: address(port), pid, ours: None, kafka })
    }

    /// Whether this is Kafka, which needs a warm-up.
    pub(crate) fn is_kafka(&self) -> bool {
        self.kafka.is_some()
    }

    /// Ends our broker, by SIGTERM or SIGKILL, and starts it on the same folders. Gives the seconds from exec to the
    /// first answer, and the CPU seconds up to then.
    pub(crate) fn restart(
        &mut self,
        binary: &Path,
        kill: bool,
        is_up: &dyn Fn(SocketAddr) -> bool,
    ) -> Result<(f64, f64), String> {
        let ours = self.ours.as_mut().ok_or("only our broker is restarted")?;
        if kill {
            ours.broker.kill();
        } else {
            ours.broker.terminate();
        }
        let directory = ours.directory.clone();
        let began = clock::now();
        ours.broker = start_broker(binary, &directory)?;
        self.pid = ours.broker.pid();
        wait_for(self.address, is_up)?;
        Ok((began.elapsed().as_secs_f64(), cpu_of_threads(self.pid)))
    }
}

/// Starts our ZooKeeper on an empty folder under `directory`, and waits until it listens.
pub(crate) fn start_zookeeper(
    binary: &Path,
    directory: &Path,
    port: u16,
) -> Result<Process, String> {
    let properties = directory.join("zookeeper.properties");
    let text = format!(
        "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        directory.join("zookeeper").display()
    );
    fs::write(&properties, text).map_err(|error| error.to_string())?;
    let mut command = tool(binary, directory);
    command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(properties);
    let zookeeper = Process::start(command, &directory.join("zookeeper.out"))?;
    wait_for(address(port), &listens)?;
    Ok(zookeeper)
}

/// Our binary, which keeps its own logs under `directory`.
pub(crate) fn tool(binary: &Path, directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env("LOG_DIR", directory.join("logs")).current_dir(directory);
    command
}

fn start_broker(binary: &Path, directory: &Path) -> Result<Process, String> {
    let mut command = tool(binary, directory);
    command.arg("kafka.Kafka").arg(directory.join("server.properties"));
    Process::start(command, &directory.join("broker.out"))
}
