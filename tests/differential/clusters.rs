//! Starts a Kafka and ours with equal configuration, each on its own fresh ZooKeeper.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use common::clock;
use tests::ports::quiet_port;

/// What both are told beside addresses and directories. Nothing expires while the run lasts.
const SETTINGS: &[&str] = &[
    "broker.rack=r1",
    "log.retention.ms=-1",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
];

/// Both brokers; they end with this value.
pub(crate) struct Clusters {
    pub(crate) kafka: SocketAddr,
    pub(crate) ours: SocketAddr,
    peer: PathBuf,
    directory: PathBuf,
    processes: Vec<Child>,
}

impl Clusters {
    /// Starts both under a directory, at the same time, with settings beside the usual ones.
    pub(crate) fn start(
        peer: &Path,
        binary: &Path,
        directory: &Path,
        settings: &[String],
    ) -> Result<Clusters, String> {
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        let ports = [(); 4].map(|()| quiet_port());
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let mut clusters = Clusters {
            kafka: address(ports[1]),
            ours: address(ports[3]),
            peer: peer.to_owned(),
            directory: directory.to_owned(),
            processes: Vec::new(),
        };
        let settings: Vec<&str> =
            SETTINGS.iter().copied().chain(settings.iter().map(String::as_str)).collect();
        let kafka = std::thread::scope(|scope| {
            let kafka = scope.spawn(|| start_kafka(peer, directory, &ports[..2], &settings));
            let ours = start_ours(binary, directory, &ports[2..], &settings);
            (kafka.join().map_err(|_| "the thread that starts Kafka".to_owned()), ours)
        });
        let (kafka, ours) = kafka;
        clusters.processes = ours?;
        kafka??;
        Ok(clusters)
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        for part in ["kafka", "kafka-zookeeper"] {
            // Best effort: the machine is only left with a process more.
            let _ = Command::new(&self.peer).arg("stop").arg(self.directory.join(part)).status();
        }
        for process in self.processes.iter_mut().rev() {
            // It may have ended already.
            let _ = process.kill();
            // Nothing is left to do where waiting fails.
            let _ = process.wait();
        }
        // What stays of a directory is no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `ports` are ZooKeeper's and the broker's.
fn start_kafka(
    peer: &Path,
    directory: &Path,
    ports: &[u16],
    settings: &[&str],
) -> Result<(), String> {
    let (zookeeper, port) = (ports[0], ports[1]);
    let run = |arguments: &[&str]| -> Result<(), String> {
        let status = Command::new(peer).args(arguments).status();
        let status = status.map_err(|error| format!("{}: {error}", peer.display()))?;
        if status.success() { Ok(()) } else { Err(format!("{}: {status}", peer.display())) }
    };
    let part = |name: &str| directory.join(name).display().to_string();
    run(&["zookeeper", &part("kafka-zookeeper"), &zookeeper.to_string()])?;
    let (connect, port) = (format!("127.0.0.1:{zookeeper}"), port.to_string());
    let (kafka, mut arguments) = (part("kafka"), vec!["broker"]);
    arguments.extend([kafka.as_str(), port.as_str(), connect.as_str(), "1"]);
    arguments.extend(settings);
    run(&arguments)
}

fn start_ours(
    binary: &Path,
    directory: &Path,
    ports: &[u16],
    settings: &[&str],
) -> Result<Vec<Child>, String> {
    let (zookeeper, port) = (ports[0], ports[1]);
    let ours = directory.join("ours");
    fs::create_dir_all(&ours).map_err(|error| error.to_string())?;
    let write = |name: &str, text: String| {
        let path = ours.join(name);
        fs::write(&path, text).map_err(|error| error.to_string()).map(|()| path)
    };
    let data = ours.join("zookeeper").display().to_string();
    let properties = write(
        "zookeeper.properties",
        format!(
            "dataDir={data}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        ),
    )?;
    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let mut processes = vec![spawn(binary, &ours, main, &properties, "zookeeper.out")?];
    wait_for(zookeeper)?;
    let data = ours.join("data").display().to_string();
    // The lines that the peer writes for Kafka.
    let properties = write(
        "server.properties",
        format!(
            "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect=127.0.0.1:{zookeeper}\nlog.dirs={data}\n\
             offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n{}\n",
            settings.join("\n")
        ),
    )?;
    processes.push(spawn(binary, &ours, "kafka.Kafka", &properties, "broker.out")?);
    wait_for(port)?;
    Ok(processes)
}

fn spawn(
    binary: &Path,
    directory: &Path,
    class: &str,
    properties: &Path,
    output: &str,
) -> Result<Child, String> {
    let failed = |error: std::io::Error| format!("{class}: {error}");
    let file = fs::File::create(directory.join(output)).map_err(failed)?;
    let errors = file.try_clone().map_err(failed)?;
    let mut command = Command::new(binary);
    command.args([class, &properties.display().to_string()]);
    command.env("LOG_DIR", directory.join("logs")).current_dir(directory);
    command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().map_err(failed)
}

fn wait_for(port: u16) -> Result<(), String> {
    let deadline = clock::now() + Duration::from_secs(60);
    while clock::now() < deadline {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("port {port} does not answer"))
}
