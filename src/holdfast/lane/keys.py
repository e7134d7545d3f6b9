"""The keys of a lane's objects: the entries, the snapshots, the floor.

Pure. Numbers have twenty digits, so that the order of keys is the order of numbers.
"""

from holdfast.identifiers import LaneId, LaneNumber

ENTRIES_PREFIX = "lanes/"
"""The prefix of the entries of all lanes."""


def entry_prefix(lane: LaneId) -> str:
    return f"{ENTRIES_PREFIX}{lane:04d}/"


def entry_key(lane: LaneId, number: int) -> str:
    return f"{ENTRIES_PREFIX}{lane:04d}/{number:020d}"


def snapshot_prefix(lane: LaneId) -> str:
    return f"snapshots/{lane:04d}/"


def snapshot_key(lane: LaneId, number: int) -> str:
    return f"snapshots/{lane:04d}/{number:020d}"


def floor_prefix(lane: LaneId) -> str:
    return f"floors/{lane:04d}/"


def floor_key(lane: LaneId, number: int) -> str:
    return f"floors/{lane:04d}/{number:020d}"


def number_in(key: str) -> LaneNumber | None:
    """Return the number that a key ends with; None if the key is not one of ours."""
    name = key.rsplit("/", 1)[-1]
    return LaneNumber(int(name)) if len(name) == 20 and name.isascii() and name.isdigit() else None
