"""What the output of a dedup with counts must be, from its input's log alone.

Owns the comparison: pure functions on records as readers see them. Knows nothing of Streams, of
transactions or of brokers.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SHOWN_MAX = 5


class Seen(NamedTuple):
    """A record as a reader of a topic sees it."""

    partition: int
    offset: int
    key: str
    value: str


def identity(value: str) -> tuple[str, int]:
    """The id and the copy of an input's record."""
    parsed = json.loads(value)
    return parsed["id"], parsed["copy"]


def bucket(name: str) -> str:
    return name[-2:]


def check_input(log: Iterable[Seen], acked: Mapping[tuple[int, int], tuple[str, int]]) -> list[str]:
    """The input's log is what its producer was told, no more and no less."""
    found = {(seen.partition, seen.offset): identity(seen.value) for seen in log}
    wrong = [where for where in found.keys() | acked.keys() if found.get(where) != acked.get(where)]
    return [_told("the input is not what was acknowledged", wrong)] if wrong else []


def check_dedup(log: Iterable[Seen], output: Iterable[Seen]) -> list[str]:
    """Each id of the input is in the output once, as one of its records."""
    records = {identity(seen.value) for seen in log}
    ids = {name for name, _ in records}
    rows = list(output)
    times = Counter(row.key for row in rows)
    problems = {
        "lost": sorted(ids - times.keys()),
        "doubled": sorted(name for name, count in times.items() if count > 1),
        "phantom": [
            row
            for row in rows
            if identity(row.value) not in records or identity(row.value)[0] != row.key
        ],
    }
    return [_told(what, found) for what, found in problems.items() if found]


def check_counts(log: Iterable[Seen], counts: Iterable[Seen]) -> list[str]:
    """The counts of each bucket are 1, 2, 3 and so on, up to its records, each once, in order."""
    wanted = Counter(bucket(identity(seen.value)[0]) for seen in log)
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in counts:
        found[row.key].append(int(row.value))
    wrong = [
        f"{name}: {_first_wrong(found[name], wanted[name])}"
        for name in sorted(wanted.keys() | found.keys())
        if found[name] != list(range(1, wanted[name] + 1))
    ]
    return [_told("wrong count", wrong)] if wrong else []


def _first_wrong(counts: Sequence[int], records: int) -> str:
    for place, count in enumerate(counts, 1):
        if count != place:
            return f"{count} came where {place} was next, of {records}"
    return f"ends at {len(counts)}, of {records}"


def check_followed(followed: Iterable[Seen], whole: Iterable[Seen]) -> list[str]:
    """What a reader saw during the run is there at the end: nothing committed was taken back."""
    there = set(whole)
    gone = [seen for seen in followed if seen not in there]
    return [_told("was read as committed and is gone", gone)] if gone else []


def _told(what: str, found: Sequence[object]) -> str:
    return f"{what}: {len(found)}: {list(found[:SHOWN_MAX])}"
