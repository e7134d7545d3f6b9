"""The five operations that Holdfast needs from an object store, and the meaning of their answers.

Owns the vocabulary only. An adapter must never retry a conditional create by itself: a library's
retry would turn our own success into a conflict. An adapter must never guess: an outcome that is
not certain is StoreUnavailable.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
Buffers = Sequence[Buffer]
"""The buffers of a body, in order. An adapter joins them only if it must.

The caller must not change them before the call has ended. After a cancel it must never do so.
"""


class CreateAnswer(enum.Enum):
    """The store's answer to a create. Only CREATED proves that we wrote the object at the key."""

    CREATED = "created"
    EXISTS = "exists"
    """The key is taken, perhaps by our own earlier try."""
    CONFLICT = "conflict"
    """409: another conditional write is under way. The key may be free or taken: try again."""


class ObjectEntry(NamedTuple):
    """One row of a listing."""

    key: str
    size: int
    modified_ms: int
    """The store's wall clock, for people and for grace periods. Safety must never depend on it."""


class Store(Protocol):
    """A flat space of immutable objects. Keys are relative, with '/' between parts."""

    @property
    def url(self) -> str:
        """The address as a person wrote it, without secrets."""
        ...

    @property
    def is_remote(self) -> bool:
        """True if a round trip costs tens of milliseconds and a request costs money."""
        ...

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        """Create the object if the key is free. After CREATED or EXISTS, the object is durable.

        Raises StoreUnavailable if the outcome is unknown: the object may be there, or appear later.
        The same holds for a call that was cancelled.
        """
        ...

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes from `start`: fewer if the object ends, all if `length` is None.

        Raises ObjectNotFound, or StoreUnavailable. A start at or past the end gives b"".
        """
        ...

    async def size(self, key: str) -> int | None:
        """Return the object's size in bytes; None if there is no such object."""
        ...

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        """Return at most `limit` entries with keys that start with `prefix` and are above `after`.

        They are sorted by the bytes of the whole key. `prefix` may end in the middle of a part.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects. A missing one is not an error."""
        ...

    async def close(self) -> None:
        """Close connections and threads."""
        ...
