"""Where facts may become durable before they are in the store: the interface of a journal.

A lane always puts its objects in the store; a journal makes some facts durable sooner. The local
disk (`holdfast.lane.spool`) is one. Another one has to do what `Journal` says, and nothing else in
a lane changes.
"""

from collections.abc import Sequence
from typing import Protocol

from holdfast.errors import RetryError
from holdfast.identifiers import LaneNumber
from holdfast.lane.entry import Buffer, EntryHeader


class JournalFailed(RetryError):
    """The journal does not take facts now. What was written earlier is still there."""


class Journal(Protocol):
    """The frames of one claim, in order, until their facts are in the store."""

    writes: int
    """The number of durable writes."""

    async def open(self) -> None:
        """Make the journal exist, so that an empty one does not look like a lost one."""
        ...

    async def write(
        self,
        facts: bytes,
        payload: Sequence[Buffer],
        *,
        written_ms: int,
        after: LaneNumber | None = None,
    ) -> EntryHeader:
        """Make a frame durable. Raises JournalFailed, and then the frame was never written.

        `after`: the number of the lane object that the frame follows, if it is not durable yet.
        """
        ...

    def next_part(self) -> list[str]:
        """Begin a new part for later frames, and return the names of the complete parts."""
        ...

    async def drop(self, parts: Sequence[str]) -> None:
        """Delete parts whose frames are all in the store."""
        ...
