"""What a coordinator's decisions lead to: facts, and answers to requests that may have waited.

Pure. A coordinator is handed an Outbox and knows nothing of sockets, futures or the store.
"""

import dataclasses
from typing import NewType, Protocol

from holdfast.groups.facts import GroupFact
from holdfast.protocol.message import Message

Token = NewType("Token", int)
"""A request that is to be answered: now, or when others have come."""


class Outbox(Protocol):
    """Where decisions go."""

    def decide(self, fact: GroupFact) -> None:
        """The fact is true from here on: it is applied when this returns, and durable later."""
        ...

    def answer(self, token: Token, response: Message) -> None:
        """To be sent when all that was decided about its group is durable."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """How groups are run; the names are Kafka's."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
