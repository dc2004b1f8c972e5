"""The checks of `run`, `kill`, `groups`, `transactions` and `connect` find what they look for: each is shown something wrong."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "adapters"))

import cases  # noqa: E402
import clients  # noqa: E402
import connect  # noqa: E402
import fields  # noqa: E402
import group_checks  # noqa: E402
import kill  # noqa: E402
import payload  # noqa: E402
import transactions  # noqa: E402
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


class Groups(unittest.TestCase):
    """Two members and a partition of five records: the first has it for three of them, then the second."""

    FIRST = ["1 gained 1 0 0", "2 got 0 0 0-0", "2 got 0 1 0-1", "3 committing 0:2", "4 committed 0:2", "5 got 0 2 0-2"]
    SECOND = ["10 gained 2 0 0", "11 got 0 2 0-2", "11 got 0 3 0-3", "11 got 0 4 0-4", "12 committing 0:5", "13 committed 0:5"]

    def judge(self, first=FIRST, second=SECOND, ends=(5,), committed=(5,), owner="b", kcat=False):
        return group_checks.judge(
            [group_checks.Journal("a", "a", list(first), kcat), group_checks.Journal("b", owner, list(second))], list(ends), list(committed))

    def refuses(self, said, *words, **more):
        with self.assertRaisesRegex(Failure, said):
            self.judge(*words, **more)

    def test_what_is_right(self):
        self.assertIn("5 records, all there, 1 of them again", self.judge())
        self.judge([*self.FIRST, "6 committing 0:3", "14 refused 0:3 UnknownMemberIdError", "15 lost 0", "16 left"])

    def test_lost_records(self):
        self.refuses("1 of 6 records came to nobody", ends=(6,), committed=(6,))
        self.refuses("4 is committed in the end, not 5", committed=(4,))
        without = [line for line in self.SECOND if line != "11 got 0 3 0-3"]
        self.refuses("offset 4 of partition 0 after 2", second=without)

    def test_records_that_are_others(self):
        self.refuses("0-3 at offset 2", [*self.FIRST[:-1], "5 got 0 2 0-3"])
        self.refuses("which it does not have", [*self.FIRST, "6 lost 0", "7 got 0 3 0-3"])
        self.refuses("offset 2 of partition 0 after 2", [*self.FIRST, "6 got 0 2 0-2"])

    def test_starts(self):
        below = ["10 gained 2 0 0", "11 got 0 1 0-1", *self.SECOND[1:]]
        self.refuses("begins at 1, though a had committed 2", second=below)
        # The commit was acknowledged only after the partition changed hands, so nobody knows.
        self.judge([line.replace("4 committed", "10 committed") for line in self.FIRST], below)
        beyond = ["10 gained 2 0 0", "11 got 0 3 0-3", "11 got 0 4 0-4", *self.SECOND[4:]]
        self.refuses("begins at 3, though at most 2", second=beyond)
        self.judge([*self.FIRST, "6 committing 0:3"], beyond)

    def test_who_lost_a_partition_commits_no_more(self):
        self.refuses("b committed 5 at 13|a committed 3 at 21, after b", [*self.FIRST, "20 committing 0:3", "21 committed 0:3"])
        late = [*self.FIRST, "6 committing 0:3", "7 committed 0:3", "20 got 0 3 0-3", "20 got 0 4 0-4", "20 committing 0:5",
                "21 committed 0:5"]
        second = ["10 gained 2 0 0", "11 got 0 3 0-3", "11 got 0 4 0-4", "12 committing 0:5", "13 committed 0:5"]
        self.refuses("though it was b's", late, second)

    def test_one_owner_in_a_generation(self):
        second = ["10 gained 1 0 0", *self.SECOND[1:]]
        self.refuses("two owners in generation 1", second=second)
        # A static member that came back.
        self.judge(second=second, owner="a")
        self.judge(second=["10 gained - 0 0", *self.SECOND[1:]])

    def test_kcat_swallows_one_record(self):
        first = [line for line in self.FIRST if "commit" not in line] + ["6 lost 0", "7 ended", "8 left"]
        beyond = ["10 gained 2 0 0", "11 got 0 4 0-4", *self.SECOND[4:]]
        self.assertIn("but 1 that kcat swallowed", self.judge(first, beyond, kcat=True))
        far = ["10 gained 2 0 0", "11 got 0 5 0-5", *self.SECOND[4:]]
        self.refuses("1 of 6 records came to nobody, the first 4", first, far, kcat=True, ends=(6,), committed=(6,))

    def test_offsets_seen_from_outside(self):
        group_checks.check_seen_offsets([[0, 0], [1, 0], [1, 5]])
        with self.assertRaisesRegex(Failure, "partition 1: 4 is committed, after 5"):
            group_checks.check_seen_offsets([[1, 5], [2, 4]])

    def test_a_torn_line_is_left_out(self):
        self.assertEqual(group_checks.whole_lines("1 got 0 0 0-0\n2 got 0"), ["1 got 0 0 0-0"])


class Transactions(unittest.TestCase):
    COMMITTED = [[(0, b"0-0"), (5, b"0-1")], [(0, b"1-0")]]
    UNCOMMITTED = [[(0, b"0-0"), (2, b"aborted-0-1"), (5, b"0-1")], [(0, b"1-0")]]
    LINES = ["1 begin 1", "2 committed", "3 begin 1", "4 aborting 0:2", "5 aborted"]

    def refuses(self, said, committed=COMMITTED, uncommitted=UNCOMMITTED, ends=(2, 1), lines=LINES):
        with self.assertRaisesRegex(Failure, said):
            transactions.judge(committed, uncommitted, list(ends), lines)

    def test_what_must_hold(self):
        said = transactions.judge(self.COMMITTED, self.UNCOMMITTED, [2, 1], self.LINES)
        self.assertIn("3 records, each once and in order; 1 more with read_uncommitted", said)
        zero, one = self.COMMITTED
        self.refuses("partition 0 has 1 records of 2; number 1 is \\[\\]", [zero[:1], one])
        self.refuses("partition 0 has 3 records of 2", [[*zero, (6, b"0-1")], one])
        self.refuses("number 0 is", [[(0, b"0-1"), (5, b"0-0")], one])
        self.refuses("number 1 is \\[b'aborted", [[zero[0], (2, b"aborted-0-1"), zero[1]], one])
        self.refuses("partition 1 has 1 records of 2", ends=(2, 2))
        self.refuses("with read_committed alone", uncommitted=[self.UNCOMMITTED[0][1:], one])
        self.refuses("out of order", uncommitted=[self.UNCOMMITTED[0][::-1], one])
        self.refuses("aborted record at 2", uncommitted=self.COMMITTED)
        self.refuses("nothing was shown", lines=self.LINES[:2])


class Connect(unittest.TestCase):
    def test_lines(self):
        lines = ["0 a", "1 b", "2 c"]
        self.assertEqual(connect.compare("sink", "0 a\n1 b\n2 c\n", lines), 0)
        self.assertEqual(connect.compare("sink", "0 a\n1 b\n0 a\n1 b\n2 c\n", lines), 2)
        for wrong in ("0 a\n1 b\n", "1 b\n0 a\n2 c\n", "0 a\n1 \n1 b\n2 c\n", "0 a\n1 b\n2 c\n3 d\n", ""):
            with self.assertRaises(Failure):
                connect.compare("sink", wrong, lines)


if __name__ == "__main__":
    unittest.main()
