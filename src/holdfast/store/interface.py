"""The five operations that Holdfast asks of an object store, and what their answers mean.

Owns the vocabulary only. An adapter never retries a conditional create by itself: a library's
retry would turn our own success into a conflict. What an adapter cannot tell, it must not guess:
an outcome that is not certain is StoreUnavailable.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
Buffers = Sequence[Buffer]
"""A body as the buffers that it is made of, in order; an adapter joins them only if it must.

The caller must not change them until the call has ended, nor after a cancel.
"""


class CreateAnswer(enum.Enum):
    """What the store said to a create. All but CREATED leave open who wrote what is there."""

    CREATED = "created"
    EXISTS = "exists"
    """Something has this key: perhaps our own earlier try."""
    CONFLICT = "conflict"
    """409: another conditional write is under way; says nothing about what is there. Try again."""


class ObjectEntry(NamedTuple):
    """One row of a listing."""

    key: str
    size: int
    modified_ms: int
    """Wall clock of the store, for people and for grace periods; never for safety."""


class Store(Protocol):
    """A flat space of immutable objects. Keys are relative, with '/' between parts."""

    @property
    def url(self) -> str:
        """The address as a person wrote it, without secrets."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether a round trip costs tens of milliseconds and a request costs money."""
        ...

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        """Write the object only if the key is free; durable when it says CREATED, or EXISTS.

        Raises StoreUnavailable where the outcome is unknown: the object may be there, or appear
        later. So may one whose call was cancelled.
        """
        ...

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes from start: `length` of them, fewer where the object ends, all where None.

        Raises ObjectNotFound, or StoreUnavailable. A start at or past the end gives b"".
        """
        ...

    async def size(self, key: str) -> int | None:
        """The object's size in bytes, or None where there is no such object."""
        ...

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        """At most `limit` entries with keys that start with prefix and are greater than `after`.

        Sorted by the bytes of the whole key. The prefix may end in the middle of a part.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects; one that is not there is no error."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
