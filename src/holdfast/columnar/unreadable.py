"""A record batch that is intact and cannot be read.

Apart from the decoder: what only plans or counts must not load compiled code.
"""

from typing import NamedTuple

from holdfast.records.batch import BatchHeader


class Unreadable(NamedTuple):
    """A batch whose CRC is right and whose records cannot be read: its producer sent it so."""

    header: BatchHeader
    batch: memoryview
    """Its bytes, whole."""
    problem: str

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return max(self.header.base_offset, self.header.last_offset)

    def offsets_in(self, start_offset: int, end_offset: int) -> int:
        """How many of its offsets are in a range."""
        first = max(self.base_offset, start_offset)
        return max(0, min(self.last_offset + 1, end_offset) - first)
