"""Which partitions this member owns, and under which number each was assigned to it.

Pure. Owns the tokens. A token is good as long as the very assignment that made it lasts: whoever
comes back late with one that was released finds it worthless, also where the partition has been
assigned to this member anew. Must never remember a partition that is not held: nothing grows with
the number of rebalances.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.protocol.consumer_protocol import TopicPartition


class Token(NamedTuple):
    """One assignment of one partition to this member."""

    where: TopicPartition
    number: int


class Ownership:
    """The tokens that are good now."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, Token] = {}
        self._last_number = 0

    def take(self, where: TopicPartition) -> Token:
        """The partition was assigned; an older token of it is worthless from now on."""
        self._last_number += 1
        self._held[where] = Token(where, self._last_number)
        return self._held[where]

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are another's, or nobody's."""
        for where in partitions:
            self._held.pop(where, None)

    def holds(self, token: Token) -> bool:
        """Whether the assignment that made this token still lasts."""
        return self._held.get(token.where) == token

    def __len__(self) -> int:
        return len(self._held)
