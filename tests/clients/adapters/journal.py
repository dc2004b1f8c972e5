"""What a member of a group writes down: a line for each thing that happens, in one write, so that SIGKILL leaves all that came before.

    TIME gained GENERATION NEW ALL     partitions that it was just given, and all that it has now; the generation is - where it is unknown
    TIME lost PARTITIONS               it no longer has them
    TIME got PARTITION OFFSET VALUE
    TIME committing OFFSETS            `partition:offset` between commas; then one of
    TIME committed OFFSETS
    TIME refused OFFSETS REASON
    TIME ended                         kcat alone: a process of it did, and another one may follow
    TIME left                          it ends politely

Partitions stand between commas, or are - for none. Times are microseconds of the clock that all processes of a machine share.
"""

import signal
import sys
import time

# A busy machine must not look like a dead member.
HEARTBEATS_IN_SESSION = 6
# librdkafka: a broker that has just started may not know the topic yet, on any Kafka, and it is asked again only after this.
METADATA_MS = 1000


def listed(partitions):
    return ",".join(str(partition) for partition in sorted(partitions)) or "-"


class Member:
    """The journal of one consumer, with what it has and what it has yet to commit. It is to stop when `stopping` is true."""

    def __init__(self, options):
        self.file = open(options.journal, "ab", buffering=0)
        self.owned = set()
        self.uncommitted = {}
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopping = True

    def write(self, *lines):
        now = time.monotonic_ns() // 1000
        self.file.write("".join(f"{now} {line}\n" for line in lines).encode())

    def gained(self, generation, partitions):
        self.owned |= set(partitions)
        self.write(f"gained {'-' if generation is None or generation < 0 else generation} {listed(partitions)} {listed(self.owned)}")

    def lost(self, partitions):
        self.owned -= set(partitions)
        for partition in partitions:
            self.uncommitted.pop(partition, None)
        self.write(f"lost {listed(partitions)}")

    def got(self, records):
        """Partition, offset, value of each."""
        records = list(records)
        self.write(*(f"got {partition} {offset} {value.decode()}" for partition, offset, value in records))
        for partition, offset, _ in records:
            self.uncommitted[partition] = offset + 1

    def commit(self, act):
        """Calls `act` with the offsets that are not committed yet. What it raises is written down, and tried again later."""
        if offsets := self.committing():
            try:
                act(offsets)
            except Exception as error:
                self.refused(offsets, error)
            else:
                self.committed(offsets)

    def committing(self):
        offsets = dict(self.uncommitted)
        if offsets:
            self.write(f"committing {pairs(offsets)}")
        return offsets

    def committed(self, offsets):
        self.write(f"committed {pairs(offsets)}")
        for partition, offset in offsets.items():
            if self.uncommitted.get(partition) == offset:
                del self.uncommitted[partition]

    def refused(self, offsets, error):
        self.write(f"refused {pairs(offsets)} {named(error)}")

    def left(self):
        self.write("left")
        sys.exit(0)


def named(error):
    """One word for it: librdkafka has one exception for all, with its error within."""
    within = error.args[0] if error.args else None
    return within.name() if callable(getattr(within, "name", None)) else type(error).__name__


def pairs(offsets):
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
