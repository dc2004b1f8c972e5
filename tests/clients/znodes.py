"""Apache ZooKeeper's own shell, zkCli.sh, shows the znodes that Kafka's tools expect."""

import json
import subprocess
from pathlib import Path

import clients

from cluster import APACHE_BIN, Cluster, Failure

# Kafka's document for each path, by its fields; None where the node has no document.
EXPECTED = {
    "/cluster/id": {"version", "id"},
    "/brokers/ids/0": {"features", "listener_security_protocol_map", "endpoints", "jmx_port", "port", "host", "version", "timestamp"},
    "/brokers/topics/{topic}": {"removing_replicas", "partitions", "topic_id", "adding_replicas", "version"},
    "/brokers/topics/{topic}/partitions/0/state": {"controller_epoch", "leader", "version", "leader_epoch", "isr"},
    "/controller": {"version", "brokerid", "timestamp", "kraftControllerEpoch"},
    "/config/topics/{topic}": {"version", "config"},
    "/feature": {"version", "features", "status"},
    "/latest_producer_id_block": {"version", "broker", "block_start", "block_end"},
    "/controller_epoch": None,
    "/consumers": None,
    "/brokers/seqid": None,
    "/brokers/topics/{topic}/partitions/0": None,
    "/config/changes": None,
    "/config/clients": None,
    "/config/users": None,
    "/config/brokers": None,
    "/config/ips": None,
    "/admin/delete_topics": None,
    "/isr_change_notification": None,
    "/log_dir_event_notification": None,
}


def run(cluster: Cluster, topic: str, folder: Path) -> str:
    cluster.create_topic(topic, 1, max_message_bytes=2_000_000)
    # An idempotent producer, so that a block of producer ids is taken.
    (folder / "line.txt").write_text("a line\n")
    java = next(client for client in clients.MODERN if client.name == "java")
    java.run("produce", 60, "--bootstrap", cluster.bootstrap, "--topic", topic, "--codec", "none", "--split", "lines",
             "--input", folder / "line.txt")
    paths = {path.format(topic=topic): fields for path, fields in EXPECTED.items()}
    shown = zk_cli(cluster, [f"get {path}" for path in paths] + ["ls /config/topics", "stat /brokers/ids/0"])
    documents = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    with_fields = {path: fields for path, fields in paths.items() if fields}
    if len(documents) != len(with_fields):
        raise Failure(f"zkCli.sh shows {len(documents)} documents, not {len(with_fields)}: {shown[-1000:]}")
    for (path, fields), document in zip(with_fields.items(), documents):
        if set(document) != fields:
            raise Failure(f"{path} has the fields {sorted(document)}, Kafka's has {sorted(fields)}")
    if f"[{topic}]" not in shown:
        raise Failure(f"zkCli.sh ls /config/topics does not show {topic} alone: {shown[-1000:]}")
    if "ephemeralOwner = 0x0" in shown or "ephemeralOwner = 0x" not in shown:
        raise Failure(f"/brokers/ids/0 is not ephemeral: {shown[-1000:]}")
    cluster.delete_topic(topic)
    return f"{len(paths)} znodes"


def zk_cli(cluster: Cluster, commands: list[str]) -> str:
    """What the shell prints for the commands. One session for all, since a JVM takes a second to start."""
    command = [str(APACHE_BIN / "zkCli.sh"), "-server", cluster.zookeeper_connect]
    ran = subprocess.run(command, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=60, check=False)
    missing = [line for line in (ran.stdout + ran.stderr).splitlines() if "Node does not exist" in line]
    if ran.returncode != 0 or missing:
        raise Failure(f"zkCli.sh ended with {ran.returncode}: {' '.join(missing) or ran.stderr.strip()[-300:]}")
    return ran.stdout
