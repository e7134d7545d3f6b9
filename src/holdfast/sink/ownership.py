"""The partitions that this member owns, each with a token that numbers its assignment.

Pure. Owns the tokens. A token is valid only while the assignment that made it lasts. Work that
finishes late, with a released token, has no effect, even if the partition has been assigned to this
member again. Must never remember a partition that is not owned: nothing grows with the number of
rebalances.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.protocol.consumer_protocol import TopicPartition


class Token(NamedTuple):
    """One assignment of one partition to this member."""

    where: TopicPartition
    number: int


class Ownership:
    """The tokens that are valid now."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, Token] = {}
        self._last_number = 0

    def take(self, where: TopicPartition) -> Token:
        """Create the token of a new assignment. An older token of the partition becomes invalid."""
        self._last_number += 1
        self._held[where] = Token(where, self._last_number)
        return self._held[where]

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Make the tokens of these partitions invalid: this member no longer owns them."""
        for where in partitions:
            self._held.pop(where, None)

    def holds(self, token: Token) -> bool:
        """True if the assignment that made this token still lasts."""
        return self._held.get(token.where) == token

    def __len__(self) -> int:
        return len(self._held)
