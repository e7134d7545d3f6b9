"""Commits one micro-batch to topics, in one transaction that also carries the sink's position.

Runs on the driver. Owns the order of steps: read the position; take over the transactional id,
which fences every other driver; read the position again; write; commit records and position
together. A driver can commit only if no other has taken over since. So what it read after its
takeover is still true when it commits. Must never write before that second read.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from holdfast.addresses import is_local_address, local_path
from holdfast.client.cluster import Cluster
from holdfast.client.groups import GroupOffset, committed_positions
from holdfast.client.refusals import OutcomeUnknown, RequestRefused
from holdfast.client.transactions import FENCED, ClientTransaction, begin_transaction
from holdfast.errors import HoldfastError, StopError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.spark.topic.options import TopicOptions
from holdfast.spark.topic.position import (
    Known,
    Note,
    Position,
    PositionRefused,
    WriteRecords,
    decide,
    from_text,
    to_text,
)
from holdfast.spark.topic.rows import Staged

TRIES = 3
ABORT_S_MAX = 5.0


class TopicSinkRefused(StopError):
    """The sink does not take this micro-batch: going on would duplicate or skip records."""


class TopicCommit:
    """Commits the micro-batches of one sink to one cluster."""

    def __init__(
        self, cluster: Cluster, options: TopicOptions, *, at: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._at = at
        """A function that gets the name of each step, before the step is taken."""
        self._place = TopicPartition(options.position_topic, 0)

    async def commit(self, staged: Sequence[Staged], batch: Position) -> bool:
        """Commit the micro-batch once. Return False if it was in the topics already."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(staged, batch)
            except OutcomeUnknown:
                # The next read of the position shows the outcome. The records are still at hand.
                if tries == TRIES:
                    raise
            except RequestRefused as refused:
                if not _is_fenced(refused):
                    raise
                if tries == TRIES:
                    raise TopicSinkRefused(
                        f"sink {self._options.sink_id}: another driver took its transactional id"
                        f" over {TRIES} times while micro-batch {batch.batch_id} was written, which"
                        f" was not published here ({refused}). What to do: stop all drivers but"
                        " one, and start that one again; if there is but one, it writes for longer"
                        " than kafka.transaction.timeout.ms: raise that, or lower"
                        " maxOffsetsPerTrigger"
                    ) from refused

    async def _once(self, staged: Sequence[Staged], batch: Position) -> bool:
        # A driver that is refused anyway must not fence the one that works.
        self._at("look")
        if await self._is_over(batch):
            return False
        self._at("begin")
        transaction = await begin_transaction(
            self._cluster,
            self._options.transactional_id,
            timeout_ms=self._options.transaction_timeout_ms,
        )
        self._at("look again")
        decision = self._decided(await self._known(stable=True), batch)
        if isinstance(decision, Known):
            return False
        try:
            await self._write(
                transaction, staged if isinstance(decision, WriteRecords) else (), batch
            )
        except BaseException as error:
            if not _is_fenced(error):
                await give_up(transaction)
            raise
        self._at("end")
        await transaction.commit()
        self._at("ended")
        return True

    async def _is_over(self, batch: Position) -> bool:
        """True if the micro-batch is committed already. This read does not wait, so it may be old.

        The position only grows. If it is at this micro-batch, or at one of another query, that
        cannot change any more. Raises TopicSinkRefused as `_decided` does.
        """
        known = await self._known(stable=False)
        if known is None:
            return False
        if known.query_id == batch.query_id and known.batch_id < batch.batch_id:
            return False
        return isinstance(self._decided(known, batch), Known)

    def _decided(self, known: Position | None, batch: Position) -> WriteRecords | Note | Known:
        decision = decide(
            known,
            batch,
            sink_id=self._options.sink_id,
            committed_batch=self._options.committed_batch,
        )
        if isinstance(decision, PositionRefused):
            raise TopicSinkRefused(decision.message)
        return decision

    async def _known(self, *, stable: bool) -> Position | None:
        found = await committed_positions(
            self._cluster, self._options.group_id, [self._place], stable=stable
        )
        kept = found.get(self._place)
        if kept is None:
            return None
        known = from_text(kept.metadata)
        if known is None:
            raise TopicSinkRefused(
                f"the group {self._options.group_id} has an offset that is no position of a sink:"
                f" {kept.metadata[:200]!r}. Another release, or another program, has committed it;"
                " use another sinkId"
            )
        return known

    async def _write(
        self, transaction: ClientTransaction, staged: Sequence[Staged], batch: Position
    ) -> None:
        await write_staged(transaction, staged, at=self._at)
        self._at("offsets")
        kept = GroupOffset(batch.batch_id + 1, to_text(batch))
        await transaction.commit_offsets(self._options.group_id, {self._place: kept})


async def write_staged(
    transaction: ClientTransaction, staged: Sequence[Staged], *, at: Callable[[str], None]
) -> None:
    """Write all record batches of all tasks in one transaction, and leave it open."""
    by_partition: dict[TopicPartition, list[bytearray]] = {}
    for one in staged:
        by_partition.setdefault(one.where, []).append(one.batch)
    at("add")
    await transaction.add_partitions(list(by_partition))
    at("produce")
    await _all_of(transaction.produce(where, batches) for where, batches in by_partition.items())


async def give_up(transaction: ClientTransaction) -> None:
    """Try to abort, so that readers of committed records need not wait for a timeout."""
    with contextlib.suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(ABORT_S_MAX):
            await transaction.abort()


async def _all_of(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently. If one raises, stop the others before raising its error."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _is_fenced(error: BaseException) -> bool:
    return isinstance(error, RequestRefused) and error.code in FENCED


def planned_offsets(checkpoint: str | None, batch_id: int) -> str:
    """Return a digest of a micro-batch's file in Spark's offset log; empty if it is out of reach.

    Spark writes that file once, before the micro-batch runs, and uses it again if the micro-batch
    is repeated.
    """
    if not checkpoint or not is_local_address(checkpoint):
        return ""
    try:
        body = (local_path(checkpoint) / "offsets" / str(batch_id)).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(body).hexdigest()[:32]
