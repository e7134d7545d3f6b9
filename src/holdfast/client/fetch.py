"""Fetch of one partition from one offset: the record batches, and the records a consumer sees.

Owns the one builder of Fetch requests (without a session), and the rules for what counts in the
response for a partition: no truncated batch at the end, nothing before the offset, no control
records, and no aborted records for read_committed. Must never move an offset by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable, raise_for
from holdfast.errors import CorruptObject
from holdfast.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast.records.batch import HEADER_BYTES, BatchHeader, parse_header, walk
from holdfast.records.record import UNCOMPRESSED_BYTES_MAX, Record, decode_batch

NO_SESSION_EPOCH = -1
NAMES_UNTIL = 12
"""The last version of Fetch that names topics; later ones use topic ids."""
NO_TOPIC_ID = UUID(int=0)
CONTROL_TYPE_ABORT = 0


class PartitionToFetch(NamedTuple):
    """A partition to fetch: from which offset, and how many bytes at most."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class PartitionFetch(NamedTuple):
    """The response for one partition. `batches` are complete, back to back, as in the log."""

    fetch_offset: int
    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction]

    @property
    def next_offset(self) -> int:
        """The offset to fetch next; the same offset if nothing came."""
        offset = self.fetch_offset
        for _, header in walk(self.batches):
            offset = max(offset, header.last_offset + 1)
        return offset


async def fetch(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 8 * 1024 * 1024,
    read_committed: bool = False,
    deadline_ms: int | None = None,
) -> PartitionFetch:
    """Fetch from the leader; Refused (OFFSET_OUT_OF_RANGE) if the log has no such offset."""

    wanted = PartitionToFetch(topic, partition, offset, max_bytes)

    async def ask(connection: BrokerConnection, leader: PartitionLeader) -> PartitionFetch:
        return await fetch_partition(
            connection,
            leader,
            wanted,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            read_committed=read_committed,
            timeout_ms=cluster.request_timeout_ms + max_wait_ms,
        )

    return await cluster.ask_leader(topic, partition, ask, deadline_ms=deadline_ms)


async def fetch_partition(
    connection: BrokerConnection,
    leader: PartitionLeader,
    wanted: PartitionToFetch,
    *,
    max_wait_ms: int,
    min_bytes: int = 1,
    read_committed: bool,
    timeout_ms: int,
) -> PartitionFetch:
    """Fetch from the leader, once; Refused (OFFSET_OUT_OF_RANGE) if the log has no such offset."""
    request = fetch_request(
        [(wanted, leader)],
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=wanted.max_bytes,
        read_committed=read_committed,
    )
    _, response = await send_fetch(connection, request, timeout_ms=timeout_ms)
    name = f"{wanted.topic}-{wanted.partition}"
    what = f"fetch {name} at offset {wanted.offset}"
    raise_for(response.error_code, what)
    for row in (row for found in response.responses for row in found.partitions):
        if row.partition_index == wanted.partition:
            raise_for(row.error_code, what)
            return fetched_row(row, wanted.offset)
    raise BrokerUnavailable(f"{connection.address} says nothing of {name}")


def fetch_request(
    wanted: Iterable[tuple[PartitionToFetch, PartitionLeader]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
    rack: str | None = None,
) -> FetchRequest:
    """Return a request without a session, for partitions and what metadata says of their leaders.

    The same topic may come many times; all its partitions have the same topic id.
    """
    topics: dict[str, FetchTopic] = {}
    for row, leader in wanted:
        topic = topics.setdefault(
            row.topic, FetchTopic(topic=row.topic, topic_id=leader.topic_id, partitions=[])
        )
        topic.partitions.append(
            FetchPartition(
                partition=row.partition,
                current_leader_epoch=leader.leader_epoch,
                fetch_offset=row.offset,
                partition_max_bytes=row.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_epoch=NO_SESSION_EPOCH,
        topics=list(topics.values()),
        rack_id=rack or "",
    )


async def send_fetch(
    connection: BrokerConnection, request: FetchRequest, *, timeout_ms: int
) -> tuple[int, FetchResponse]:
    """Return the version used and the response. Names topics if the id of one is not known."""
    version = connection.version_for(FetchRequest)
    if any(topic.topic_id == NO_TOPIC_ID for topic in request.topics):
        version = min(version, NAMES_UNTIL)
    response = await connection.request(
        request, FetchResponse, version=version, timeout_ms=timeout_ms
    )
    return version, response


def fetched_row(row: PartitionData, offset: int) -> PartitionFetch:
    """Return a response's row of one partition as Fetched; `offset` is the one asked for."""
    buffers = list(row.records or ())
    whole = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
    return PartitionFetch(
        offset,
        without_cut_batch(whole),
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        row.aborted_transactions or (),
    )


def without_cut_batch(buffer: memoryview) -> memoryview:
    """Return the complete batches: the byte limit of a response may cut the last batch short."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        size_bytes = parse_header(buffer, position).size_bytes
        if not HEADER_BYTES <= size_bytes <= len(buffer) - position:
            # An impossible length is left in place, so that `walk` reports it as corrupt.
            return buffer if size_bytes < HEADER_BYTES else buffer[:position]
        position += size_bytes
    return buffer[:position]


def records_of(
    fetched: PartitionFetch,
    *,
    read_committed: bool = False,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
    on_unreadable: Callable[[BatchHeader, CorruptObject], None] | None = None,
) -> Iterator[Record]:
    """Yield the records from the fetch offset on, as a consumer of that isolation level sees them.

    A batch that cannot be read is passed to `on_unreadable` and left out. Without `on_unreadable`
    it raises CorruptObject.
    """
    for start, header in _visible(fetched, read_committed=read_committed):
        batch = fetched.batches[start : start + header.size_bytes]
        try:
            records = decode_batch(batch, uncompressed_bytes_max=uncompressed_bytes_max)
        except CorruptObject as error:
            if on_unreadable is None:
                raise
            on_unreadable(header, error)
            continue
        for record in records:
            if record.offset >= fetched.fetch_offset:
                yield record


def _visible(fetched: PartitionFetch, *, read_committed: bool) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch, without control and (if asked) aborted batches."""
    pending = sorted(fetched.aborted, key=lambda row: row.first_offset) if read_committed else []
    aborted: set[int] = set()
    for start, header in walk(fetched.batches):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted.add(pending.pop(0).producer_id)
        if header.is_control:
            batch = fetched.batches[start : start + header.size_bytes]
            if header.producer_id in aborted and _is_abort_marker(batch):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield start, header


def _is_abort_marker(batch: memoryview) -> bool:
    """True if the key of the control record, a version and a type of two bytes each, is ABORT."""
    for record in decode_batch(batch):
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big") == CONTROL_TYPE_ABORT
    return False
