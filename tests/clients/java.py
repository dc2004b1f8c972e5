"""Programs of Kafka in a JVM of their own, whose output tells how far they are."""

import re
import signal
import subprocess
import time
from pathlib import Path

from cluster import Failure

# Short lives: what the compiler of the JVM gains comes too late.
OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.out.target=System.err
"""


class Program:
    """One main class. `out` is what it prints, `log` what its libraries log; both go on over its lives."""

    def __init__(self, name: str, folder: Path, classpath: str, words: list):
        self.name = name
        self.out = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        log4j = folder / "log4j.properties"
        log4j.write_text(LOG4J)
        self.command = ["java", *OPTIONS, f"-Dlog4j.configuration=file:{log4j}", "-cp", classpath, *map(str, words)]
        self.process = None
        self.out.touch()

    def start(self) -> None:
        self.seen = self.out.stat().st_size
        with open(self.out, "ab") as out, open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=log, stdin=subprocess.DEVNULL)

    def mark(self) -> None:
        """What was printed so far does not count for `wait_for`."""
        self.seen = self.out.stat().st_size

    def printed(self) -> str:
        with open(self.out, errors="replace") as out:
            out.seek(self.seen)
            return out.read()

    def wait_for(self, pattern: str, seconds: float, unless=lambda: False) -> None:
        deadline = time.monotonic() + seconds
        while not (re.search(pattern, self.printed()) or unless()):
            if self.process.poll() is not None and not re.search(pattern, self.printed()):
                raise Failure(f"{self.name} ended with {self.process.returncode}, and did not say '{pattern}': {self.log}")
            if time.monotonic() > deadline:
                raise Failure(f"{self.name} did not say '{pattern}' within {seconds:.0f} s: {self.out}, {self.log}")
            time.sleep(0.1)

    def wait(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} does not end within {seconds:.0f} s: {self.out}, {self.log}") from None

    def stop(self, sent: signal.Signals = signal.SIGTERM, seconds: float = 120) -> None:
        """Ends it. One that ended by itself is a failure."""
        if self.process.poll() is not None:
            raise Failure(f"{self.name} ended by itself with {self.process.returncode}: {self.out}, {self.log}")
        self.process.send_signal(sent)
        self.wait(seconds)

    def clear(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Steps:
    """A line for each step that is through, with the time since the last one."""

    def __init__(self):
        self.last = time.monotonic()

    def done(self, text: str) -> None:
        now = time.monotonic()
        print(f"{now - self.last:>6.1f} s  {text}", flush=True)
        self.last = now
