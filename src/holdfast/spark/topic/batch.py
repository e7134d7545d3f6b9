"""The sink of `df.write.format("holdfast")`: all rows into topics, in one transaction.

Tasks encode their rows as record batches and hand them to the driver, which writes them and commits
once. Readers of committed records see all of the write, or nothing. Spark may run a task again,
because tasks write nothing. Another call of save() writes the rows again: a batch has no position
by which it could be recognised. Owns the order of steps on the driver. Must never leave a
transaction open that it can still abort.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from holdfast.client.transactions import begin_transaction
from holdfast.columnar.arrow import RecordBatch
from holdfast.errors import InvariantViolation
from holdfast.spark.runtime.worker import worker
from holdfast.spark.topic.commit import give_up, write_staged
from holdfast.spark.topic.options import TopicOptions
from holdfast.spark.topic.rows import Staged
from holdfast.spark.topic.sink import encode_rows

LOGGER = logging.getLogger("holdfast.spark.topic")


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """The record batches that one task made of its rows."""

    task: int
    staged: Sequence[Staged]


class TopicBatchWriter(DataSourceArrowWriter):
    """The writer of one call of save()."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        return StagedRows(task, encode_rows(iterator, self._options, task=task))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        tasks = [cast(StagedRows, one) for one in messages if one is not None]
        if len(tasks) != len(messages):
            raise InvariantViolation(f"{len(tasks)} of {len(messages)} tasks told what they made")
        staged = [one for each in sorted(tasks, key=lambda t: t.task) for one in each.staged]
        if staged:
            worker().run(self._write(staged))
        LOGGER.info("batch_written records=%d", sum(one.records for one in staged))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks wrote nothing, and a commit that fails gives up its transaction."""

    async def _write(self, staged: Sequence[Staged]) -> None:
        options = self._options
        cluster = worker().cluster(options.client)
        transaction = await begin_transaction(
            cluster, options.transactional_id, timeout_ms=options.transaction_timeout_ms
        )
        try:
            await write_staged(transaction, staged, at=self.at)
        except BaseException:
            await give_up(transaction)
            raise
        await transaction.commit()

    def at(self, step: str) -> None:
        """Log a step of the write, before it is taken."""
        LOGGER.debug(
            "topic_batch transactional_id=%s step=%s", self._options.transactional_id, step
        )
