"""Runs the cases and prints a line for each; `run --help` says how. The exit code is 1 when one fails."""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import cases  # noqa: E402
import clients  # noqa: E402
import fields  # noqa: E402
import znodes  # noqa: E402
from cluster import APACHE_BIN, ROOT, Cluster, Failure  # noqa: E402

SHORT_BYTES = 3_000_000
FULL_BYTES = 100_000_000
# For clients in the modes of old versions.
OLD_BYTES_MAX = 10_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description="Real clients, each reading what another one wrote.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help=f"some cases with {SHORT_BYTES // 1_000_000} MB (the default)")
    size.add_argument("--full", action="store_true", help=f"every case, with {FULL_BYTES // 1_000_000} MB")
    parser.add_argument("--zookeeper", choices=["standalone", "apache"], default="standalone")
    parser.add_argument("--only", default="", help="cases whose line matches this regular expression")
    parser.add_argument("--bytes", type=int, help="size of the file")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    options = parser.parse_args()
    if options.zookeeper == "apache" and not APACHE_BIN.exists():
        print(f"{APACHE_BIN} is missing: install the package zookeeper", file=sys.stderr)
        return 1

    # So that the servers are stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="odradek-clients-"))
    size = options.bytes or (FULL_BYTES if options.full else SHORT_BYTES)
    modern = write_source(folder / "source.txt", size)
    old = modern if size <= OLD_BYTES_MAX else write_source(folder / "source-old.txt", OLD_BYTES_MAX)
    runner = Runner(options, folder, modern, old)
    print(f"{modern.size} bytes ({old.size} for old clients), ZooKeeper {options.zookeeper}, in {folder}", flush=True)
    failed = 1
    try:
        failed = runner.run()
    finally:
        if options.keep or failed:
            print(f"everything is in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if failed else 0


def write_source(path: Path, size: int) -> cases.Source:
    """A real text: the sources of the crates in Cargo's cache, without empty lines, over and over until it is long enough."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    files = sorted(cargo.glob("registry/src/*/*/**/*.rs")) or sorted(ROOT.glob("src/**/*.rs"))
    left = size
    with open(path, "wb") as target:
        while left > 0:
            for file in files:
                text = b"".join(line for line in file.read_bytes().splitlines(keepends=True) if line.strip() and line.endswith(b"\n"))
                target.write(text)
                left -= len(text)
                if left <= 0:
                    break
    return cases.Source(path)


class Runner:
    def __init__(self, options: argparse.Namespace, folder: Path, modern: cases.Source, old: cases.Source):
        self.options = options
        self.folder = folder
        self.modern = modern
        self.old = old
        self.cluster = Cluster(folder, options.zookeeper)
        self.printing = threading.Lock()
        self.count = 0
        self.failed: list[str] = []

    def run(self) -> int:
        """Gives how many cases failed."""
        todo = []
        for number, case in enumerate(cases.bulk_cases(not self.options.full)):
            source = self.modern if case.is_modern() else self.old
            todo.append((str(case), partial(cases.run_bulk, case, source, self.cluster, f"bulk-{number}", self.folder)))
        for sender in clients.MODERN:
            if sender.sends:
                name = f"{sender.name:>17} -> every reader   fields and times"
                todo.append((name, partial(fields.run, sender, self.cluster, f"fields-{sender.name}", self.folder)))
        if APACHE_BIN.exists():
            todo.append(("zkCli.sh shows the znodes", partial(znodes.run, self.cluster, "shown", self.folder)))
        todo = [(name, act) for name, act in todo if re.search(self.options.only, " ".join(name.split()))]
        if not todo:
            print("no such case")
            return 1

        begin = time.monotonic()
        try:
            self.cluster.start()
            # The znodes are looked at alone, while no topic of another case is there.
            apart = [one for one in todo if one[0].startswith("zkCli")]
            for name, act in apart:
                self.run_case(name, act)
            pool = ThreadPoolExecutor(self.options.jobs)
            try:
                list(pool.map(lambda one: self.run_case(*one), [one for one in todo if one not in apart]))
            finally:
                # Told to end, it does not begin the rest.
                pool.shutdown(wait=False, cancel_futures=True)
        except Failure as failure:
            self.failed.append("start")
            print(f"FAIL  start: {failure}")
        finally:
            try:
                self.cluster.stop()
            except Failure as failure:
                self.failed.append("stop")
                print(f"FAIL  stop: {failure}")
        print(f"{self.count} of {len(todo)} cases ran in {time.monotonic() - begin:.0f} s; failed: {len(self.failed)}")
        for name in self.failed:
            print(f"  {' '.join(name.split())}")
        return len(self.failed)

    def run_case(self, name: str, act) -> None:
        begin = time.monotonic()
        try:
            outcome = f"ok    {name}  {act()}"
        except Failure as failure:
            outcome = f"FAIL  {name}  {failure}"
        except Exception as error:  # A case that breaks is a case that fails; the others go on.
            outcome = f"FAIL  {name}  {error!r}\n{traceback.format_exc()}"
        with self.printing:
            self.count += 1
            if outcome.startswith("FAIL"):
                self.failed.append(name)
            print(f"{outcome}  ({time.monotonic() - begin:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
