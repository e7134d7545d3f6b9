"""A record batch that is intact but cannot be read.

Owns its description. Separate from the decoder, because code that only plans or counts must never
load compiled kernels.
"""

from typing import NamedTuple

from holdfast.records.batch import BatchHeader


class Unreadable(NamedTuple):
    """A batch with a correct CRC whose records cannot be read: its producer sent it that way."""

    header: BatchHeader
    batch: memoryview
    """The whole batch, as bytes."""
    problem: str

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return max(self.header.base_offset, self.header.last_offset)

    def offsets_in(self, start_offset: int, end_offset: int) -> int:
        """Return how many of its offsets are in a range."""
        first = max(self.base_offset, start_offset)
        return max(0, min(self.last_offset + 1, end_offset) - first)
