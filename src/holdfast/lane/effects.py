"""What follows from the steps of a lane: values, which the lane's one `consume` acts on.

Pure. A lane says what happened; it never knows what a tail, a waiting fetch or a broker is.
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.identifiers import LaneNumber
from holdfast.lane.entry import Buffer, EntryHeader
from holdfast.lane.state import F


class Indexed(NamedTuple):
    """Records are found under a number that cannot be read from the store yet: hold them."""

    number: LaneNumber
    payload: list[Buffer]


class Journaled(NamedTuple, Generic[F]):
    """Facts are published. They are durable in the journal, or in the store if it was faster."""

    facts: Sequence[F]
    is_stored: bool


class Stored(NamedTuple, Generic[F]):
    """An object is in the store, and its facts are published."""

    header: EntryHeader
    facts: Sequence[F]
    payload: list[Buffer]
    frames: Sequence[LaneNumber]
    """The numbers under which facts from the journal were found until now."""


class LaneLost(NamedTuple):
    """This broker has lost the lane, or must not continue it."""

    error: HoldfastError


Effect = Indexed | Journaled[F] | Stored[F] | LaneLost
