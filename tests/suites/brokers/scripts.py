"""A folder like Kafka's own, with `bin/*.sh` on top of its jars: Maven has no scripts."""

import importlib.machinery
import importlib.util
from pathlib import Path

from cluster import BIN, kafka_command

TESTS = Path(__file__).resolve().parents[2]


def kafka_home(folder: Path, version: str, options: tuple[str, ...]) -> Path:
    """The tools are those of 3.9.1, the broker that of `version`."""
    # What the clusters of the client suites have; `cluster` is a program without an extension.
    loader = importlib.machinery.SourceFileLoader("suites_cluster", str(TESTS / "suites" / "cluster"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("suites_cluster", loader))
    loader.exec_module(module)
    module.kafka_folder(folder)
    start = folder / "bin" / "kafka-server-start.sh"
    java, *words = kafka_command("kafka.Kafka", version, options)
    command = " ".join([java, '"-Dkafka.logs.dir=$LOG_DIR"', *(f"'{word}'" for word in words)])
    start.write_text('#!/usr/bin/env bash\n[ "$1" = -daemon ] || { echo "only with -daemon" >&2; exit 1; }\nshift\nmkdir -p "$LOG_DIR"\n'
                     f'nohup {command} "$@" > "$LOG_DIR/kafkaServer.out" 2>&1 < /dev/null &\n')
    start.chmod(0o755)
    # It looks for the same processes as Kafka's.
    (folder / "bin" / "kafka-server-stop.sh").symlink_to(BIN / "kafka-server-stop.sh")
    return folder
