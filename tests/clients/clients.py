"""The clients: how each adapter is called, and what its client can do."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster import Failure

HERE = Path(__file__).resolve().parent
ADAPTERS = HERE / "adapters"
HOME = Path(os.environ.get("CLIENTS_HOME", Path.home() / ".cache" / "odradek-clients"))

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEFORE_ZSTD = CODECS[:4]


@dataclass(frozen=True)
class Client:
    """One client in one protocol mode."""

    name: str
    # The library behind it: a consumer is always of another one than the producer.
    library: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    # What it can compress with as a producer; empty for one that does not produce.
    codecs: tuple[str, ...] = CODECS
    consumes: bool = True
    # Reads zstd. What came before fetch version 10 is told that it cannot.
    reads_zstd: bool = True
    # Sends and reads every field, and asks for offsets by time.
    sends: bool = True
    reads: bool = True

    def line(self, command: str, *words: str) -> list[str]:
        return [*self.command, command, *self.options, *map(str, words)]

    def start(self, output: Path, command: str, *words: str) -> subprocess.Popen:
        """Starts one that runs until a signal comes."""
        with open(output, "ab") as target:
            return subprocess.Popen(self.line(command, *words), stdout=target, stderr=target, stdin=subprocess.DEVNULL, env=environment())

    def run(self, command: str, seconds_max: float, *words: str) -> None:
        """Runs one command of the adapter to its end."""
        try:
            ran = subprocess.run(self.line(command, *words), capture_output=True, text=True, errors="replace", timeout=seconds_max,
                                 check=False, env=environment(), stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            said = (late.stderr or b"")[-500:].decode(errors="replace").strip()
            raise Failure(f"{self.name} {command} takes over {seconds_max:.0f} s: {said}") from None
        if ran.returncode != 0:
            said = " | ".join((ran.stderr or ran.stdout).strip().splitlines()[-4:])
            raise Failure(f"{self.name} {command} ended with {ran.returncode}: {said}")


def environment() -> dict[str, str]:
    return os.environ | {"NODE_PATH": str(HOME / "node" / "node_modules"), "NODE_NO_WARNINGS": "1"}


def python(program: str) -> tuple[str, ...]:
    return str(HOME / "venv" / "bin" / "python"), "-B", str(ADAPTERS / program)


def java(version: str, program: str) -> tuple[str, ...]:
    folder = HOME / f"java-{version}"
    return ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/classes:{folder}/libs/*", program)


def old(version: str) -> dict:
    """A mode of before headers and zstd."""
    return {"options": ("--protocol", version), "reads_zstd": False, "sends": False, "reads": False}


MODERN = (
    Client("kcat", "librdkafka", python("kcat.py")),
    Client("confluent", "librdkafka", python("confluent.py")),
    Client("kafka-python", "kafka-python", python("kafka_python.py")),
    Client("aiokafka", "aiokafka", python("aio.py")),
    Client("java", "java", java("3.9.1", "Client")),
    Client("kafkajs", "kafkajs", ("node", str(ADAPTERS / "kafkajs.js")), codecs=("none", "gzip", "snappy"), consumes=False, reads=False),
)

OLD = (
    Client("kcat-0.9", "librdkafka", python("kcat.py"), codecs=("none", "gzip", "snappy"), **old("0.9")),
    Client("kcat-0.10", "librdkafka", python("kcat.py"), codecs=BEFORE_ZSTD, **old("0.10")),
    Client("confluent-0.9", "librdkafka", python("confluent.py"), codecs=("none", "gzip", "snappy"), **old("0.9")),
    Client("confluent-0.10", "librdkafka", python("confluent.py"), codecs=BEFORE_ZSTD, **old("0.10")),
    Client("kafka-python-0.9", "kafka-python", python("kafka_python.py"), codecs=("none", "gzip", "snappy"), **old("0.9")),
    Client("kafka-python-0.10", "kafka-python", python("kafka_python.py"), codecs=BEFORE_ZSTD, **old("0.10")),
    Client("java-0.10.2", "java-old", java("0.10.2.2", "OldClient"), codecs=BEFORE_ZSTD, reads_zstd=False, sends=False, reads=False),
)

ALL = MODERN + OLD
