"""What must hold for the journals of a group's members (adapters/journal.py), all of one topic whose values are `partition-offset`.

A *run* is one member's time with one partition: from `gained` to `lost`, or to its end. Between runs a record comes a second time only
where no commit of it had been acknowledged when the later run began:

- every record comes, with its own value;
- a run's records have no gap and no repetition;
- a run begins at or above every offset whose commit was acknowledged before it, and at or below the highest that anybody had tried to
  commit (kcat tries all that it gives out, and may swallow one more when it leaves);
- acknowledged commits of a partition do not go back, and those of two runs do not alternate: who lost a partition commits no more;
- members that tell their generation: in one generation a partition has one owner;
- in the end all is committed.
"""

from collections import Counter
from dataclasses import dataclass, field

from cluster import Failure

# Before every offset, and for members that do not tell.
UNKNOWN = "-"


@dataclass
class Run:
    member: str
    partition: int
    gained: int
    # Offset of each record, and when it came.
    offsets: list[int] = field(default_factory=list)
    first_at: int = 0


@dataclass
class Commit:
    member: str
    partition: int
    offset: int
    began: int
    # None when it was refused, or nobody knows.
    ended: int | None
    run: int


@dataclass
class Journal:
    """What one member wrote. `owner` is the same for the lives of a static member."""

    name: str
    owner: str
    lines: list[str]
    commits_by_itself: bool = False


@dataclass
class Story:
    runs: list[Run] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    refused: Counter = field(default_factory=Counter)
    # kcat takes a message, and then looks whether it was told to end: for each process of it, where that message would be.
    swallowed: list[set[tuple[int, int]]] = field(default_factory=list)


def whole_lines(text: str) -> list[str]:
    """A killed member may have left a line without its end."""
    return text.split("\n")[:-1]


def numbers(listed: str) -> list[int]:
    return [] if listed == UNKNOWN else [int(number) for number in listed.split(",")]


def told(journals: list[Journal]) -> Story:
    """Puts the lines of all members together. What does not make sense within one journal is a failure."""
    story = Story()
    for journal in journals:
        current: dict[int, int] = {}
        under_way: list[Commit] = []
        for line in journal.lines:
            time, event, *words = line.split(" ")
            time = int(time)
            if event == "gained":
                for partition in numbers(words[1]):
                    current[partition] = len(story.runs)
                    story.runs.append(Run(journal.name, partition, time))
            elif event == "lost":
                for partition in numbers(words[0]):
                    current.pop(partition, None)
            elif event == "got":
                partition, offset = int(words[0]), int(words[1])
                if words[2] != f"{partition}-{offset}":
                    raise Failure(f"{journal.name}: {words[2]} at offset {offset} of partition {partition}")
                if partition not in current:
                    raise Failure(f"{journal.name}: a record of partition {partition}, which it does not have, at {time}")
                run = story.runs[current[partition]]
                if run.offsets and offset != run.offsets[-1] + 1:
                    raise Failure(f"{journal.name}: offset {offset} of partition {partition} after {run.offsets[-1]}, at {time}")
                run.first_at = run.first_at or time
                run.offsets.append(offset)
                if journal.commits_by_itself:
                    # It is before its journal, which learns through a pipe.
                    story.commits.append(Commit(journal.name, partition, offset + 1, run.gained, None, current[partition]))
            elif event == "committing":
                under_way = [Commit(journal.name, *map(int, pair.split(":")), time, None, -1) for pair in words[0].split(",")]
                for commit in under_way:
                    commit.run = current.get(commit.partition, -1)
                story.commits += under_way
            elif event == "committed":
                for commit in under_way:
                    commit.ended = time
            elif event == "refused":
                story.refused[" ".join(words[1:])] += 1
            elif event == "ended":
                last = {run.partition: (number, run) for number, run in enumerate(story.runs) if run.member == journal.name and run.offsets}
                story.swallowed.append({(partition, run.offsets[-1] + 1) for partition, (_, run) in last.items()})
                story.commits += [Commit(journal.name, partition, run.offsets[-1] + 2, run.gained, None, number)
                                  for partition, (number, run) in last.items()]
    return story


def judge(journals: list[Journal], ends: list[int], committed: list[int]) -> str:
    """`ends` and `committed`: of each partition, at the end. Gives a line for the summary."""
    story = told(journals)
    came = repeated = 0
    swallowed = list(story.swallowed)
    for partition, end in enumerate(ends):
        runs = sorted((run for run in story.runs if run.partition == partition and run.offsets), key=lambda run: run.first_at)
        seen = {offset for run in runs for offset in run.offsets}
        missing = [offset for offset in range(end) if offset not in seen]
        for offset in list(missing):
            # One for each at most.
            if by := next((some for some in swallowed if (partition, offset) in some), None):
                swallowed.remove(by)
                missing.remove(offset)
        if missing:
            raise Failure(f"partition {partition}: {len(missing)} of {end} records came to nobody, the first {missing[0]}")
        came += len(seen)
        repeated += sum(len(run.offsets) for run in runs) - len(seen)
        commits = [commit for commit in story.commits if commit.partition == partition]
        check_starts(runs, commits)
        check_commits(commits)
        if committed[partition] != end:
            raise Failure(f"partition {partition}: {committed[partition]} is committed in the end, not {end}")
    generations = check_generations(journals)
    acknowledged = sum(commit.ended is not None for commit in story.commits)
    refused = ", ".join(f"{count} {reason}" for reason, count in story.refused.most_common(3))
    lost_by_kcat = len(story.swallowed) - len(swallowed)
    but = f" but {lost_by_kcat} that kcat swallowed" if lost_by_kcat else ""
    return (f"{came} records, all there{but}, {repeated} of them again after a loss; {len(story.runs)} times a partition was taken over, "
            f"{generations} generations; {acknowledged} commits acknowledged, refused: {refused or 'none'}")


def check_starts(runs: list[Run], commits: list[Commit]) -> None:
    for run in runs:
        first = run.offsets[0]
        known = [commit for commit in commits if commit.ended is not None and commit.ended < run.gained]
        least = max(known, key=lambda commit: commit.offset, default=None)
        if least is not None and first < least.offset:
            raise Failure(f"{run.member}: partition {run.partition} begins at {first}, though {least.member} had committed {least.offset} "
                          f"at {least.ended}, before {run.gained}")
        most = max((commit.offset for commit in commits if commit.began < run.first_at), default=0)
        if first > most:
            raise Failure(f"{run.member}: partition {run.partition} begins at {first}, though at most {most} was committed by {run.first_at}")


def check_commits(commits: list[Commit]) -> None:
    """Those that were acknowledged, in the order of the clock where it has one: a commit that ended before another one began."""
    done = [commit for commit in commits if commit.ended is not None]
    ended = sorted(done, key=lambda commit: commit.ended)
    highest: Commit | None = None
    number = 0
    for commit in sorted(done, key=lambda commit: commit.began):
        while ended[number].ended < commit.began:
            if highest is None or ended[number].offset > highest.offset:
                highest = ended[number]
            number += 1
        if highest is not None and highest.offset > commit.offset:
            raise Failure(f"partition {commit.partition}: {commit.member} committed {commit.offset} at {commit.ended}, after "
                          f"{highest.member} had committed {highest.offset} at {highest.ended}")
    # When each run first committed, and the commit of another run that came after it.
    open_since: dict[int, int] = {}
    follower: dict[int, Commit] = {}
    for commit in ended:
        if commit.run in follower and follower[commit.run].ended < commit.began:
            other = follower[commit.run]
            raise Failure(f"partition {commit.partition}: {commit.member} committed {commit.offset} at {commit.ended}, though it was "
                          f"{other.member}'s since {other.ended}")
        for run in [run for run, since in open_since.items() if run != commit.run and since < commit.began]:
            follower[run] = commit
            del open_since[run]
        if commit.run not in follower:
            open_since.setdefault(commit.run, commit.ended)


def check_generations(journals: list[Journal]) -> int:
    owners: dict[tuple[int, int], str] = {}
    generations = set()
    for journal in journals:
        for line in journal.lines:
            _, event, *words = line.split(" ")
            if event != "gained" or words[0] == UNKNOWN:
                continue
            generations.add(int(words[0]))
            for partition in numbers(words[2]):
                owner = owners.setdefault((int(words[0]), partition), journal.owner)
                if owner != journal.owner:
                    raise Failure(f"partition {partition} has two owners in generation {words[0]}: {owner} and {journal.owner}")
    return len(generations)


def check_seen_offsets(seen: list[list[int]]) -> None:
    """Committed offsets as another client saw them, one time after the other."""
    for before, after in zip(seen, seen[1:]):
        for partition, pair in enumerate(zip(before, after)):
            if pair[1] < pair[0]:
                raise Failure(f"partition {partition}: {pair[1]} is committed, after {pair[0]}")
