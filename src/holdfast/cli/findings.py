"""What a verification found, and how far it has come.

Pure. Owns the difference between damage (exit code 2), leftovers that a broker will remove, and
record batches that a client sent in a form that cannot be read.
"""

import dataclasses
import enum
from collections.abc import Callable

FINDINGS_COMPARED = 100
"""How far back a repeated finding is recognised: one object's problems come together."""


class Weight(enum.Enum):
    """What a finding means."""

    HARM = "harm"
    """Bytes are not those that were written, or records are missing."""
    LEFT_OVER = "left over"
    """Nothing names the object: a broker was stopped between two steps, and sweeps it later."""
    UNREADABLE = "unreadable"
    """A record batch as its producer sent it, whose records cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One object, and what is the matter with it."""

    weight: Weight
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


class Findings:
    """Collects; each object's problems once, whatever way they were found."""

    def __init__(self, on_progress: Callable[["Findings"], None] | None = None) -> None:
        self.found: list[Finding] = []
        self.objects = 0
        self.bytes = 0
        self.bytes_expected = 0
        self.skipped = 0
        """Objects that a broker replaced again and again before they could be read."""
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
        """One more object was read."""
        self.objects += 1
        self.bytes += size_bytes
        if self._on_progress is not None:
            self._on_progress(self)

    def forget_since(self, count: int) -> None:
        """Keep the first `count` findings only: the objects of the others are read again."""
        del self.found[count:]

    def of(self, weight: Weight) -> list[Finding]:
        return [finding for finding in self.found if finding.weight is weight]
