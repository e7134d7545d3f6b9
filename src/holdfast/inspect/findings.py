"""Findings and progress of a verification.

Pure. Owns the distinction between damage (exit code 2), leftovers that a broker will remove, and
record batches that a client sent in a form that cannot be read.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import NamedTuple

FINDINGS_COMPARED = 100
"""How many of the latest findings a new one is compared with, to drop repetitions. All problems of
one object are found close together."""


class Weight(enum.Enum):
    """How serious a finding is."""

    HARM = "harm"
    """Damage: bytes are not those that were written, or records are missing."""
    LEFT_OVER = "left over"
    """Nothing names the object. Usually a broker stopped between two steps, and sweeps it later."""
    UNREADABLE = "unreadable"
    """A record batch is as its producer sent it, and its records cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one object."""

    weight: Weight
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


class Mark(NamedTuple):
    """How far a verification is."""

    findings: int
    objects: int
    bytes: int


class Findings:
    """All findings of a verification, each only once, and how much has been read."""

    def __init__(self, on_progress: Callable[["Findings"], None] | None = None) -> None:
        self.found: list[Finding] = []
        self.objects = 0
        self.bytes = 0
        self.bytes_expected = 0
        self.skipped = 0
        """Number of objects not read, because a broker kept replacing them."""
        self._on_progress = on_progress

    def harm(self, key: str, problem: str) -> None:
        self._add(Finding(Weight.HARM, key, problem.removeprefix(f"{key}: ")))

    def left_over(self, key: str, problem: str) -> None:
        self._add(Finding(Weight.LEFT_OVER, key, problem))

    def unreadable(self, key: str, problem: str) -> None:
        self._add(Finding(Weight.UNREADABLE, key, problem))

    def _add(self, finding: Finding) -> None:
        if finding not in self.found[-FINDINGS_COMPARED:]:
            self.found.append(finding)

    def read(self, size_bytes: int) -> None:
        """Count one more object as read, and report progress."""
        self.objects += 1
        self.bytes += size_bytes
        if self._on_progress is not None:
            self._on_progress(self)

    def mark(self) -> Mark:
        """Return how far the verification is, for `return_to`."""
        return Mark(len(self.found), self.objects, self.bytes)

    def return_to(self, mark: Mark) -> None:
        """Forget what was found and counted since a mark: those objects are read again."""
        del self.found[mark.findings :]
        self.objects, self.bytes = mark.objects, mark.bytes

    def of(self, weight: Weight) -> list[Finding]:
        return [finding for finding in self.found if finding.weight is weight]
