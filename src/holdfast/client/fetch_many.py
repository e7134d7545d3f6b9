"""Record batches of many partitions from one broker, by one Fetch without a session.

Owns the request and the reading of its answer. What the answer says of leaders is told to the
cluster, so that its next `leader()` knows. Must never move an offset, or ask twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.client.cluster import Cluster
from holdfast.client.fetch import Fetched
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition


class Wanted(NamedTuple):
    """From where one partition is to be fetched, and how much at most."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class LeaderHint(NamedTuple):
    """Who leads now, as the broker that does not said (KIP-951)."""

    node_id: int
    leader_epoch: int


class Unfetched(NamedTuple):
    """Why there are no batches. NONE: only because another replica is to be asked."""

    code: ErrorCode
    leader: LeaderHint | None = None
    preferred_replica: int | None = None


async def fetch_many(
    cluster: Cluster,
    node_id: int,
    wanted: Sequence[Wanted],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 16 * 1024 * 1024,
    read_committed: bool = False,
    rack: str | None = None,
) -> dict[TopicPartition, Fetched | Unfetched]:
    """One answer for each partition; RetryError where the broker as a whole gives none."""
    raise NotImplementedError
