"""Which files of a sink a compaction merges, and what it reports at its end.

Pure. Must never import a module of an extra: the options of `holdfast compact` are read before it
is known whether Spark is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.landing.ledger_entry import OutputFile

TARGET_BYTES = 128 * 1024 * 1024
TARGET_BYTES_MIN = 1024
FULL_SHARE = 0.75
"""A file of this share of the target size stays as it is: merging it would gain little."""
EXTENSIONS = (".parquet", ".jsonl.zst")


class MergeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Files that become one: equal partition values, role and format, in the order of commit."""

    files: tuple[OutputFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction found and did; for a dry run, what it would do."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    merged: int
    """The number of files that were, or would be, replaced."""
    entries: tuple[int, ...] = ()
    """The numbers of the rewrite entries that were published."""
    lost: int = 0
    """How often a micro-batch took the ledger number first."""
    state_runs_deleted: int = 0


def plan_groups(files: Iterable[OutputFile], target_bytes: int) -> list[MergeGroup]:
    """Return what to merge: groups of two files or more, and of about the target at most."""
    alike: dict[tuple[Any, ...], list[OutputFile]] = {}
    for file in files:
        extension = next((end for end in EXTENSIONS if file.path.endswith(end)), None)
        if extension is None or file.bytes >= target_bytes * FULL_SHARE:
            continue
        values = tuple(sorted(file.partition_values.items(), key=lambda item: item[0]))
        alike.setdefault((file.role.value, extension, values), []).append(file)
    groups: list[MergeGroup] = []
    for listed in alike.values():
        held: list[OutputFile] = []
        size = 0
        for file in listed:
            if held and size + file.bytes > target_bytes:
                groups.append(MergeGroup(files=tuple(held)))
                held, size = [], 0
            held.append(file)
            size += file.bytes
        groups.append(MergeGroup(files=tuple(held)))
    return sorted((g for g in groups if len(g.files) > 1), key=lambda g: -len(g.files))
