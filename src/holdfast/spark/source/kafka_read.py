"""Reads one range of any Kafka on an executor: decodes one fetch while the next is in flight.

Owns the memory bound (two fetches), the deadline for waiting out restarts and leader changes, and
what an OFFSET_OUT_OF_RANGE means. Must never skip an offset silently.
"""

from collections.abc import Iterator
from concurrent.futures import Future

from holdfast.client.admin import EARLIEST, LATEST, list_offset
from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.fetch import PartitionFetch, PartitionToFetch, fetch_partition
from holdfast.client.refusals import BrokerUnavailable, RequestRefused
from holdfast.columnar.arrow import RecordBatch
from holdfast.columnar.decode import decode_rest
from holdfast.columnar.unreadable import Unreadable
from holdfast.protocol.api import ErrorCode
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import ROWS_PER_BATCH, DataLoss, KafkaWhere, Range
from holdfast.spark.source.kafka_input import TopicPatience, check_id, check_ids


def read_kafka_range(wanted: Range, where: KafkaWhere) -> Iterator[RecordBatch | Unreadable]:
    """Yield the records of a range of a Kafka topic."""
    reading = _KafkaRange(wanted, where)
    coming = reading.start(wanted.start_offset)
    try:
        while coming is not None:
            fetched = coming.result()
            next_offset = reading.next_offset(fetched)
            coming = reading.start(next_offset)
            if len(fetched.batches):
                yield from _decoded(wanted, where, fetched)
    finally:
        if coming is not None:
            coming.cancel()


def _decoded(
    wanted: Range, where: KafkaWhere, fetched: PartitionFetch
) -> Iterator[RecordBatch | Unreadable]:
    aborted = [(row.producer_id, row.first_offset) for row in fetched.aborted]
    return decode_rest(
        [fetched.batches],
        topic=wanted.topic,
        partition=wanted.partition,
        start_offset=max(wanted.start_offset, fetched.fetch_offset),
        end_offset=wanted.end_offset,
        include_headers=wanted.include_headers,
        read_committed_aborted=aborted if where.read_committed else None,
        rows_per_batch=ROWS_PER_BATCH,
    )


class _KafkaRange:
    """The state of one range while it is read."""

    def __init__(self, wanted: Range, where: KafkaWhere) -> None:
        self._wanted = wanted
        self._where = where
        self._worker = worker()
        self._cluster: Cluster = self._worker.cluster(where.client)
        self._name = str(wanted.topic_partition)
        self._quiet_since: float | None = None

    def start(self, offset: int) -> "Future[PartitionFetch] | None":
        """Start the fetch at an offset. Return None at the end of the range."""
        if offset >= self._wanted.end_offset:
            return None
        return self._worker.submit(self._fetch(offset))

    def next_offset(self, fetched: PartitionFetch) -> int:
        """Return the offset of the next fetch; raise if nothing has come for too long."""
        offset = fetched.next_offset
        if offset > fetched.fetch_offset:
            self._quiet_since = None
            return offset
        now = self._worker.environment.monotonic()
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        quiet_ms = (now - self._quiet_since) * 1000
        if quiet_ms < self._where.client.deadline_ms:
            return offset
        end = self._wanted.end_offset
        readable = fetched.high_watermark
        if self._where.read_committed:
            readable = fetched.last_stable_offset
        if readable >= end:
            raise BrokerUnavailable(
                f"{self._name}: nothing came from offset {offset} on for {quiet_ms:.0f} ms, though"
                f" the log goes on to {readable}"
            )
        if self._wanted.fail_on_data_loss:
            raise DataLoss(
                f"{self._name}: offsets {max(offset, readable)} to {end - 1} are not there: the log"
                f" can be read up to {readable}"
            )
        return end

    async def _fetch(self, offset: int) -> PartitionFetch:
        wanted, cluster = self._wanted, self._cluster

        async def attempt() -> PartitionFetch:
            leader = await cluster.leader(wanted.topic, wanted.partition)
            return await self._ask(await cluster.broker(leader.node_id), leader, offset)

        if offset == wanted.start_offset:
            # Once per range: before Fetch v13 only metadata shows that the topic was recreated.
            await check_ids(cluster, [wanted.topic_partition])
        try:
            return await cluster.patiently(
                TopicPatience(cluster, wanted.topic).around(attempt),
                f"fetch {self._name} at offset {offset}",
                topic=wanted.topic,
            )
        except RequestRefused as refused:
            if refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self._out_of_range(offset)

    async def _ask(
        self, connection: BrokerConnection, leader: PartitionLeader, offset: int
    ) -> PartitionFetch:
        wanted, client = self._wanted, self._where.client
        check_id(wanted.topic, wanted.topic_id, leader.topic_id)
        return await fetch_partition(
            connection,
            leader,
            PartitionToFetch(wanted.topic, wanted.partition, offset, client.fetch_bytes_max),
            max_wait_ms=client.fetch_wait_ms_max,
            read_committed=self._where.read_committed,
            timeout_ms=client.request_timeout_ms + client.fetch_wait_ms_max,
        )

    async def _out_of_range(self, offset: int) -> PartitionFetch:
        """Raise DataLoss for what is gone, or skip it if `fail_on_data_loss` is false."""
        wanted = self._wanted
        ends = [
            (await list_offset(self._cluster, wanted.topic, wanted.partition, at=at)).offset
            for at in (EARLIEST, LATEST)
        ]
        earliest, latest = ends
        if wanted.fail_on_data_loss:
            gone = (
                f"offsets {offset} to {min(wanted.end_offset, earliest) - 1} are gone: the log"
                if offset < earliest
                else f"offsets {offset} to {wanted.end_offset - 1} are not there: the log"
            )
            raise DataLoss(f"{self._name}: {gone} has offsets {earliest} to {latest - 1}")
        on = earliest if offset < earliest else wanted.end_offset
        return PartitionFetch(on, memoryview(b""), latest, latest, earliest, ())
