"""Kills the broker with SIGKILL at random moments under load, and looks at what is left.

Two producers in processes of their own write to several partitions with acks=all, one idempotent, one not, while the broker is
killed and started again at once on the same directories; now and then it is killed while it still recovers. Afterwards: no
acknowledged record is missing or at another offset, none is out of order within its partition, none is torn, and none is there
twice, but for the producer without idempotence. Produce requests that had no answer at each kill are counted at a relay.
"""

import argparse
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import payload  # noqa: E402
import program  # noqa: E402
from clients import HOME, MODERN  # noqa: E402
from cluster import Cluster, Failure  # noqa: E402
from ports import quiet_port  # noqa: E402
from relay import Relay  # noqa: E402

import common  # noqa: E402

TOPIC = "survivors"
PARTITIONS = 6
KINDS = ("idempotent", "plain")
# From when the broker accepts connections.
LIFE_SECONDS_MAX = 2
# One kill of so many comes while the broker is still starting.
EARLY_OF = 5
EARLY_SECONDS_MAX = 0.05


def main() -> int:
    parser = program.arguments(__doc__, seed=True, broker=False)
    parser.add_argument("--times", type=int, default=50)
    options = parser.parse_args()
    title = f"{options.times} kills, seed {options.seed}"
    return program.run("kill", title, options, lambda folder: run(options, folder))


def run(options: argparse.Namespace, folder: Path) -> None:
    relay_port = quiet_port()
    # Small segments, so that kills also meet rolls, new indexes and producer snapshots.
    cluster = Cluster(folder, options.zookeeper, {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay_port}", "log.segment.bytes": 1 << 20, "log.index.interval.bytes": 1024,
        "log.retention.check.interval.ms": 1000,
    })
    relay = Relay(relay_port, cluster.port)
    producers: list[subprocess.Popen] = []
    try:
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS)
        producers += [start_producer(folder, f"127.0.0.1:{relay_port}", sender, kind) for sender, kind in enumerate(KINDS)]
        kill_often(options, cluster, relay, producers)
        for producer in producers:
            producer.send_signal(signal.SIGTERM)
        for producer, kind in zip(producers, KINDS):
            if producer.wait(150) != 0:
                raise Failure(f"the {kind} producer: {(folder / f'{kind}.out').read_text().strip()}")
        look(cluster, folder)
    finally:
        for producer in producers:
            if producer.poll() is None:
                producer.kill()
                producer.wait()
        cluster.stop()


def start_producer(folder: Path, bootstrap: str, sender: int, kind: str) -> subprocess.Popen:
    program = Path(__file__).resolve().parent / "kill_producer.py"
    words = [HOME / "venv" / "bin" / "python", "-B", program, bootstrap, TOPIC, PARTITIONS, sender, kind, folder / f"{kind}.journal"]
    with open(folder / f"{kind}.out", "wb") as output:
        return subprocess.Popen(list(map(str, words)), stdout=output, stderr=output, stdin=subprocess.DEVNULL)


def kill_often(options: argparse.Namespace, cluster: Cluster, relay: Relay, producers: list[subprocess.Popen]) -> None:
    chance = random.Random(options.seed)
    under_load = early = total = 0
    time.sleep(2)
    for number in range(1, options.times + 1):
        is_early = chance.randrange(EARLY_OF) == 0
        life = chance.uniform(0, EARLY_SECONDS_MAX if is_early else LIFE_SECONDS_MAX)
        time.sleep(life)
        before = relay.unanswered
        cluster.broker.stop(signal.SIGKILL)
        begin = time.monotonic()
        cluster.broker.start()
        if chance.randrange(EARLY_OF) != 0:
            cluster.broker.wait_until_it_accepts()
            state = f"accepts after {1000 * (time.monotonic() - begin):.0f} ms"
        else:
            early += 1
            state = "is killed again while it starts"
        # The relay learns of the end a moment later.
        time.sleep(0.02)
        unanswered = relay.unanswered - before
        total += unanswered
        under_load += unanswered > 0
        print(f"kill {number:>3} after {life:.2f} s, {unanswered:>2} requests unanswered, the broker {state}", flush=True)
        for producer, kind in zip(producers, KINDS):
            if producer.poll() is not None:
                raise Failure(f"the {kind} producer ended during the run with {producer.returncode}")
    cluster.broker.wait_until_it_accepts()
    time.sleep(2)
    print(f"{options.times} kills, {early} of them at a start; {total} produce requests unanswered, at {under_load} of the kills")
    if under_load == 0:
        raise Failure("no kill met a request under way, so nothing was shown")


def look(cluster: Cluster, folder: Path) -> None:
    """Reads everything back and holds it against the journals."""
    reader = next(client for client in MODERN if client.name == "confluent")
    output = folder / "read.frames"
    reader.run("consume", 300, "--bootstrap", cluster.bootstrap, "--topic", TOPIC, "--partitions", PARTITIONS, "--output", output)
    found = stamps(output)
    for sender, kind in enumerate(KINDS):
        acknowledged = [tuple(map(int, line.split())) for line in (folder / f"{kind}.journal").read_text().splitlines()]
        duplicates = judge(found, sender, kind, acknowledged)
        print(f"{kind}: {len(acknowledged)} records acknowledged, all there, whole and in order; {duplicates} duplicates")


def stamps(output: Path) -> dict[payload.Stamp, list[int]]:
    """The offsets at which each stamp was read."""
    found: dict[payload.Stamp, list[int]] = {}
    next_offset = [0] * PARTITIONS
    for partition, offset, _, _, value in common.frames(str(output)):
        if offset != next_offset[partition]:
            raise Failure(f"partition {partition}: offset {offset} where {next_offset[partition]} should be")
        next_offset[partition] += 1
        stamp = payload.decode(value)
        if stamp is None or stamp.partition != partition:
            raise Failure(f"partition {partition}, offset {offset} is torn: {stamp}, {value!r:.100}")
        found.setdefault(stamp, []).append(offset)
    return found


def judge(found: dict[payload.Stamp, list[int]], sender: int, kind: str, acknowledged: list[tuple[int, int, int]]) -> int:
    """Holds what was read against one producer's journal: partition, sequence, offset. Gives the number of duplicates."""
    if not acknowledged:
        raise Failure(f"{kind}: nothing was acknowledged")
    for partition, sequence, offset in acknowledged:
        if offset not in found.get(payload.Stamp(sender, partition, sequence), ()):
            raise Failure(f"{kind}: acknowledged {sequence} of partition {partition} is not at offset {offset}")
    duplicates = 0
    for partition in range(PARTITIONS):
        offsets = sorted((stamp.sequence, offsets) for stamp, offsets in found.items() if stamp[:2] == (sender, partition))
        if [sequence for sequence, _ in offsets] != list(range(len(offsets))):
            raise Failure(f"{kind}: partition {partition} has a gap")
        firsts = [of_one[0] for _, of_one in offsets]
        if firsts != sorted(firsts):
            raise Failure(f"{kind}: partition {partition} is out of order")
        duplicates += sum(len(of_one) - 1 for _, of_one in offsets)
    if duplicates and kind == "idempotent":
        raise Failure(f"{duplicates} records of the idempotent producer are there twice")
    return duplicates


if __name__ == "__main__":
    sys.exit(main())
