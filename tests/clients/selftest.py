"""The checks of `run` and `kill` find what they look for: each is shown something wrong."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import cases  # noqa: E402
import clients  # noqa: E402
import fields  # noqa: E402
import kill  # noqa: E402
import payload  # noqa: E402
from cluster import Failure  # noqa: E402

import common  # noqa: E402

LINES = [b"line %d" % number for number in range(20)] + [b"again", b"again"]


class Bulk(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        path = Path(self.folder.name) / "source"
        path.write_bytes(b"".join(line + b"\n" for line in LINES))
        self.source = cases.Source(path)

    def check(self, records, partitions, keyed):
        """`records`: partition, key, value; offsets follow from their order."""
        output = Path(self.folder.name) / "frames"
        ends = [0] * partitions
        with open(output, "wb") as target:
            for partition, key, value in records:
                target.write(common.frame(partition, ends[partition], 0, key, value))
                ends[partition] += 1
        case = cases.Case(clients.MODERN[0], clients.MODERN[2], "none", partitions, keyed, "lines")
        return cases.check_bulk(case, self.source, output)

    def test_one_partition(self):
        right = [(0, None, line) for line in LINES]
        self.check(right, 1, False)
        for wrong in (right[1:], right[:-1], right[::-1], right + right[-1:], [(0, b"key", value) for _, _, value in right]):
            with self.assertRaises(Failure):
                self.check(wrong, 1, False)

    def test_keyed(self):
        right = [(number % 6, b"%d" % number, line) for number, line in enumerate(LINES)]
        self.check(right, 6, True)
        swapped = [(partition, key, LINES[0] if key == b"3" else value) for partition, key, value in right]
        for wrong in (right[1:], right + right[:1], [right[6], *right[:6], *right[7:]], swapped):
            with self.assertRaises(Failure):
                self.check(wrong, 6, True)

    def test_unkeyed_partitions(self):
        right = [(number % 6, None, line) for number, line in enumerate(LINES)]
        self.check(right, 6, False)
        for wrong in (right[1:], right + right[:1], [right[6], *right[:6], *right[7:]], [(0, None, b"other"), *right[1:]]):
            with self.assertRaises(Failure):
                self.check(wrong, 6, False)


class Fields(unittest.TestCase):
    def test_every_field_counts(self):
        [right] = [record for record in fields.records_to_send(1000) if record.value == b"repeated"]
        fields.expect_same([right], [right._replace(offset=7)], "sent", "read")
        for wrong in (
            right._replace(key=None),
            right._replace(value=b""),
            right._replace(timestamp=1),
            right._replace(headers=right.headers[::-1][1:]),
            right._replace(headers=[("a", None), *right.headers[1:]]),
        ):
            with self.assertRaises(Failure):
                fields.expect_same([right], [wrong], "sent", "read")

    def test_the_first_at_a_time_is_by_offset(self):
        records = [common.Record(0, offset, timestamp, None, None, []) for offset, timestamp in enumerate((50, 10, 90, 20))]
        self.assertEqual([fields.first_at(records, 0, timestamp) for timestamp in (0, 50, 51, 90, 91)], [0, 0, 2, 2, -1])


class Kill(unittest.TestCase):
    def judge(self, sequences, acknowledged, kind="idempotent"):
        """`sequences` as they stand in partition 0."""
        found = {}
        for offset, sequence in enumerate(sequences):
            found.setdefault(payload.Stamp(0, 0, sequence), []).append(offset)
        return kill.judge(found, 0, kind, acknowledged)

    def test_what_must_hold(self):
        self.assertEqual(self.judge([0, 1, 2], [(0, 0, 0), (0, 2, 2)]), 0)
        self.assertEqual(self.judge([0, 1, 0, 1, 2], [(0, 0, 2), (0, 2, 4)], "plain"), 2)
        for sequences, acknowledged in (
            ([0, 1], [(0, 2, 2)]),  # missing
            ([0, 1], [(0, 1, 0)]),  # elsewhere
            ([0, 2], [(0, 0, 0)]),  # a gap
            ([1, 0], [(0, 0, 1)]),  # out of order
            ([0, 1, 1], [(0, 0, 0)]),  # twice
            ([0, 1], []),  # nothing to look at
        ):
            with self.assertRaises(Failure):
                self.judge(sequences, acknowledged)

    def test_torn_payloads(self):
        whole = payload.encode(payload.Stamp(1, 2, 3), random.Random(1))
        self.assertEqual(payload.decode(whole), payload.Stamp(1, 2, 3))
        for torn in (None, b"", whole[:-1], whole[1:], whole[:5] + b"\xff" + whole[6:], bytes(len(whole))):
            self.assertIsNone(payload.decode(torn))


if __name__ == "__main__":
    unittest.main()
