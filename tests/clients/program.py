"""What the checks have in common as commands: options, a folder that is there when they fail, and how they end."""
import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cluster import Failure


def arguments(description: str, seed: bool = False, broker: bool = True) -> argparse.ArgumentParser:
    """The options of all checks, and some of most."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zookeeper", choices=["standalone", "apache"], default="standalone")
    if broker:
        parser.add_argument("--broker", choices=["odradek", "kafka"], default="odradek", help="kafka: hold the checks against a real one")
    if seed:
        parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    return parser


def run(name: str, title: str, options: argparse.Namespace, work: Callable[[Path], None]) -> int:
    """Does the work in a new folder, which stays when it fails. Gives the exit code."""
    # So that everything is stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix=f"odradek-{name}-"))
    print(f"{title}, ZooKeeper {options.zookeeper}, in {folder}", flush=True)
    begin = time.monotonic()
    try:
        work(folder)
    except Failure as failure:
        again = f"; again with --seed {options.seed}" if "seed" in options else ""
        print(f"FAIL  {failure}\neverything is in {folder}{again}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    print(f"ok    {time.monotonic() - begin:.0f} s")
    return 0
