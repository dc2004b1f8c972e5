"""Three brokers whose links, ZooKeeper and lives are disturbed under load, and what they have to show for it afterwards.

    run [CASE...] [--short] [--brokers ours|kafka|ours,kafka,ours] [--zookeeper ours|apache|ensemble] [--kafka-version 3.9.1|3.0.0] [--seed N]

Without names, all cases that the form and the ZooKeeper allow. README.md says what each layer is, cases.py what each case does.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
sys.path[1:1] = [str(folder) for folder in (TESTS / "clients", TESTS / "clients" / "adapters", TESTS / "suites", TESTS / "suites" / "zookeeper")]

import cases  # noqa: E402, F401
import kinds  # noqa: E402, F401
from case import CASES, Case, Run  # noqa: E402
from cluster import Failure  # noqa: E402
from confluent_kafka import KafkaException  # noqa: E402
from kafka.errors import KafkaError  # noqa: E402
from load import Load  # noqa: E402
from nodes import Cluster, Layout  # noqa: E402
from support import Expired, Lost  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--short", action="store_true", help="fewer cases, and less of each")
    parser.add_argument("--brokers", default="ours", help="ours, kafka, upgraded (Kafka 3.9.1, whatever --kafka-version says), or three of them between commas (ours)")
    parser.add_argument("--zookeeper", choices=["ours", "apache", "ensemble"], default="ours")
    parser.add_argument("--kafka-version", choices=["3.9.1", "3.0.0"], default="3.9.1", help="of brokers that are Kafka's, and what all speak to each other")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where each case has its own")
    parser.add_argument("--keep", action="store_true", help="leave the folders")
    options = parser.parse_args()
    brokers = tuple(options.brokers.split(",")) if "," in options.brokers else (options.brokers,) * 3
    if len(brokers) != 3 or not set(brokers) <= {"ours", "kafka", "upgraded"}:
        parser.error("--brokers: ours, kafka, upgraded, or three of them between commas")
    if unknown := set(options.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    # So that everything is stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    layout = Layout(brokers, options.kafka_version, options.zookeeper)
    chosen = [CASES[name] for name in options.cases] or [
        one for one in CASES.values() if (one.short or not options.short) and (options.zookeeper == "ensemble" or not one.ensemble)]
    print(f"seed {options.seed}, brokers {','.join(brokers)}, ZooKeeper {options.zookeeper}", flush=True)
    begin = time.monotonic()
    failed = [one.name for one in chosen if not passes(one, layout, options)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases passed, {time.monotonic() - begin:.0f} s"
          + (f"; failed: {' '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def passes(case: Case, layout: Layout, options: argparse.Namespace) -> bool:
    print(f"{case.name}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"brokers-{case.name}-", dir=options.folder))
    cluster = Cluster(folder, layout, case.begins_as)
    load = Load(cluster, **(case.load or {}))
    begin = time.monotonic()
    try:
        with cluster.running():
            run = Run(cluster, load, random.Random(f"{options.seed} {case.name}"), options.short, begin)
            load.start()
            run.say(f"the cluster is up; controller {cluster.controller()}")
            case.act(run)
            for line in load.finish():
                run.say(line)
    except (Failure, KafkaException, KafkaError, OSError, Lost, Expired, ValueError) as failure:
        words = [f"--brokers {','.join(layout.brokers)}", f"--zookeeper {layout.zookeeper}", f"--kafka-version {layout.version}", f"--seed {options.seed}"]
        print(f"FAIL  {case.name}: {type(failure).__name__}: {failure}\n      everything is in {folder}; again: tests/suites/brokers/run {case.name} {' '.join(words)}"
              + (" --short" if options.short else ""), flush=True)
        return False
    finally:
        load.clear()
    if not options.keep:
        shutil.rmtree(folder)
    print(f"ok    {case.name}, {time.monotonic() - begin:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
