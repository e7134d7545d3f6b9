"""The interface of the state that a lane serves.

A fact passes through three steps, the same on the live path and in recovery: `apply` when it is
decided, `index` when the number of its object is known, `publish` when that object is durable.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from holdfast.lane.entry import Buffer, EntryHeader

F = TypeVar("F")
F_contra = TypeVar("F_contra", contravariant=True)


class LaneState(Protocol[F_contra]):
    """The state that a lane's facts build."""

    def apply(self, fact: F_contra) -> None:
        """Apply a decided fact, so that the next decision sees it."""
        ...

    def layout(self, facts: Sequence[F_contra], payloads: Sequence[Buffer | None]) -> list[Buffer]:
        """Return the payload of an object with these facts, in the order in which it is stored."""
        ...

    def index(self, header: EntryHeader, facts: Sequence[F_contra]) -> None:
        """Remember where in object `header.number` the payload of each fact is."""
        ...

    def publish(self, facts: Sequence[F_contra]) -> None:
        """Make the facts of a durable object visible."""
        ...

    def claimed(self, header: EntryHeader, leader_epoch: int) -> None:
        """Note that a new writer owns the lane from `header.number` on."""
        ...

    def encode(self) -> bytes:
        """Return the whole state as bytes, for a snapshot."""
        ...


StateT = TypeVar("StateT", bound=LaneState[Any])
StateT_co = TypeVar("StateT_co", bound=LaneState[Any], covariant=True)


class StateKind(Protocol[StateT_co]):
    """The factory of a state, and the codec of its facts."""

    def empty(self) -> StateT_co: ...

    def decode(self, data: bytes) -> StateT_co: ...

    def encode_facts(self, facts: Sequence[Any]) -> bytes: ...

    def decode_facts(self, data: bytes) -> Sequence[Any]: ...
