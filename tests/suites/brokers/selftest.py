"""The checks find what they look for: a history is shown to them that is right, then with one thing wrong after the other."""

import tempfile
import unittest
from pathlib import Path

import judge
import segments

# A producer without transactions and one with: 7 is committed, 8 is aborted, nobody knows of 9. Two partitions; two replicas, two readers,
# and one that follows along.
PRODUCERS = """
1 p produces t idempotent
1 x produces t transactional
2 p sent 0 0
2 p sent 0 1
2 p sent 1 0
3 p acked 0 0 0
3 p acked 0 1 1
3 p acked 1 0 0
4 x begins 7
4 x sent 0 0 7
4 x sent 1 0 7
5 x acked 0 0 2
5 x acked 1 0 1
5 x commits 7
6 x committed 7
7 x begins 8
7 x sent 0 1 8
8 x acked 0 1 4
8 x aborts 8
8 x aborted 8
9 x begins 9
9 x sent 0 2 9
9 x commits 9
"""
P0 = "read 0 0 p/0/0|read 0 1 p/0/1|read 0 2 x/0/0/7|marker 0 3 commit 5|read 0 4 x/0/1/8|marker 0 5 abort 5"
P1 = "read 1 0 p/1/0|read 1 1 x/1/0/7|marker 1 2 commit 5"
REPLICA = f"start 0 0|batch 0 0 1 aa 0 1 0 0|{P0}|end 0 6|start 1 0|batch 1 0 0 bb 0 1 0 0|{P1}|end 1 3"


def said(name: str, first: str, text: str) -> list[str]:
    return [f"20 {name} {line}" for line in [first, *text.split("|")]]


def of_reader(isolation: str) -> str:
    lines = [line for line in f"{P0}|{P1}".split("|") if line.startswith("read") and (isolation != "read_committed" or "/8" not in line)]
    return "|".join([*lines, "end 0 6", "end 1 3"])


def history() -> list[str]:
    return [
        *PRODUCERS.strip().split("\n"),
        *said("b1", "reads t replica", REPLICA), *said("b2", "reads t replica", REPLICA),
        *said("c", "reads t read_committed", of_reader("read_committed")), *said("u", "reads t read_uncommitted", of_reader("read_uncommitted")),
        *said("f", "follows t read_committed", "read 0 0 p/0/0|read 0 1 p/0/1"),
    ]


class Judge(unittest.TestCase):
    def refuses(self, kind: str, *changes: tuple[str, str | None]) -> None:
        """`changes`: a line, and what stands in its place (None: nothing)."""
        lines = history()
        for line, other in changes:
            self.assertIn(line, lines)
            at = lines.index(line)
            lines[at : at + 1] = other.split("|") if other else []
        breaches, _ = judge.judge(lines)
        self.assertTrue(any(f": {kind}: " in breach for breach in breaches), f"{kind} is not in {breaches}")

    def everywhere(self, line: str, other: str | None) -> list[tuple[str, str | None]]:
        return [(f"20 {name} {line}", other and f"20 {name} {other}") for name in ("b1", "b2", "c", "u", "f") if f"20 {name} {line}" in history()]

    def test_what_is_right(self):
        breaches, summary = judge.judge(history())
        self.assertEqual(breaches, [])
        self.assertIn("7 sent by idempotent, transactional, 6 acknowledged, 3 transactions", summary[0])

    def test_lost(self):
        self.refuses("an acknowledged record is missing", *self.everywhere("read 1 0 p/1/0", None))
        self.refuses("an observer misses a record", ("20 b2 read 1 0 p/1/0", None))
        self.refuses("an observer misses a record", ("20 c read 0 1 p/0/1", None))
        self.refuses("an observer misses a record", ("20 f read 0 0 p/0/0", None))
        self.refuses("a record before others is missing", *self.everywhere("read 0 0 p/0/0", None), ("3 p acked 0 0 0", None))
        self.refuses("an acknowledged record is missing", *self.everywhere("read 1 0 p/1/0", None), ("3 p acked 1 0 0", "3 p acked 1 0 -"))
        self.refuses("an acknowledged record is elsewhere", ("3 p acked 1 0 0", "3 p acked 1 0 1"))

    def test_two_values(self):
        self.refuses("an offset has two values", ("20 b2 read 0 1 p/0/1", "20 b2 read 0 1 x/0/0/7"))
        self.refuses("an offset has two values", ("20 f read 0 1 p/0/1", "20 f read 0 1 x/0/0/7"))
        self.refuses("an offset has two values", ("20 b2 read 0 1 p/0/1", "20 b2 marker 0 1 commit 5"))

    def test_order(self):
        swapped = self.everywhere("read 0 0 p/0/0", "read 0 0 p/0/1") + self.everywhere("read 0 1 p/0/1", "read 0 1 p/0/0")
        # From the last line on, so that the first of each pair is not taken for its second.
        self.refuses("records are out of order", *swapped[5:], *swapped[:5])
        self.refuses("an observer went back", ("20 f read 0 1 p/0/1", "20 f read 0 1 p/0/1|20 f read 0 0 p/0/0"))

    def test_twice(self):
        self.refuses("a record is there twice", *self.everywhere("read 0 2 x/0/0/7", "read 0 2 p/0/1"))

    def test_gaps(self):
        self.refuses("nobody has anything at an offset", ("20 b1 marker 0 3 commit 5", None), ("20 b2 marker 0 3 commit 5", None))

    def test_strays(self):
        self.refuses("a record that nobody sent there", ("20 u end 0 6", "20 u read 0 6 q/0/0|20 u end 0 6"))
        self.refuses("a record that nobody sent there", *self.everywhere("read 1 0 p/1/0", "read 1 0 p/0/0"))

    def test_transactions(self):
        self.refuses("an aborted record is visible", ("20 c read 0 1 p/0/1", "20 c read 0 1 p/0/1|20 c read 0 4 x/0/1/8"))
        self.refuses("a part of a transaction is visible", ("20 c read 1 1 x/1/0/7", None))
        self.refuses("a part of a transaction is visible", ("20 c read 1 1 x/1/0/7", None), ("6 x committed 7", None))
        # Never asked to be committed.
        self.refuses("an aborted record is visible", ("5 x commits 7", None), ("6 x committed 7", None))
        self.refuses("observers come to different ends", ("20 c end 0 6", "20 c end 0 4"))

    def test_replicas(self):
        self.refuses("replicas differ", ("20 b2 batch 0 0 1 aa 0 1 0 0", "20 b2 batch 0 0 1 ab 0 1 0 0"))
        self.refuses("replicas differ", ("20 b2 marker 0 3 commit 5", "20 b2 marker 0 3 abort 5"))
        self.refuses("observers come to different ends", ("20 b2 end 1 3", "20 b2 end 1 2"))

    def test_who_gives_up(self):
        self.refuses("a client gave up", ("3 p acked 1 0 0", "3 p acked 1 0 0|4 p fatal OUT_OF_ORDER"))
        self.refuses("an observer was refused", ("20 u end 0 6", "20 u error OFFSET_OUT_OF_RANGE|20 u end 0 6"))

    def test_a_producer_with_two_lives(self):
        lives = ["1 p produces t idempotent", "2 p sent 0 0", "3 p sent 0 1", "4 p sent 0 2", "5 p acked 0 0 0", "6 p produces t idempotent",
                 "7 p sent 0 3", "8 p acked 0 3 1"]
        read = said("u", "reads t read_uncommitted", "read 0 0 p/0/0|read 0 1 p/0/3|end 0 2")
        self.assertEqual(judge.judge(lives + read)[0], [])
        lives.remove("6 p produces t idempotent")
        self.assertIn("p/0/1, one of 2 before number 3", judge.judge(lives + read)[0][0])

    def test_what_a_plain_producer_may(self):
        lines = [line.replace("idempotent", "plain") for line in history()]
        for name in ("b1", "b2", "u", "c"):
            lines.insert(lines.index(f"20 {name} read 1 1 x/1/0/7") + 1, f"20 {name} read 1 3 p/1/0")
        lines = [line.replace("end 1 3", "end 1 4") for line in lines]
        self.assertEqual(judge.judge(lines)[0], [])


class Segments(unittest.TestCase):
    def test_a_segment_with_half_a_batch_at_its_end(self):
        def record(delta, value):
            body = b"\0\0" + bytes([2 * delta]) + b"\x01" + bytes([2 * len(value)]) + value + b"\0"
            return bytes([2 * len(body)]) + body

        body = record(0, b"a/0/0") + record(1, b"a/0/1")
        batch = segments.HEADER.pack(3, 49 + len(body), 7, 2, 0xAB, 0, 1, 0, 0, -1, -1, -1, 2) + body
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "00000000000000000003.log").write_bytes(batch + batch[:30])
            self.assertEqual(segments.lines(Path(folder), 0), [
                "start 0 3", "batch 0 3 4 000000ab 7 -1 -1 -1", "read 0 3 a/0/0", "read 0 4 a/0/1", "end 0 5"])


if __name__ == "__main__":
    unittest.main()
