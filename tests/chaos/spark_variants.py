"""Sinks with a planted bug each, for the driver program only: the checker must find every one.

Owns the bugs. Each is a ledger that does one thing wrongly, as somebody who does not know why it is
done so might do it; the rest of the pipeline is the product's own.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.keyed_state.pinned import RunInfo, decode_pinned, encode_pinned
from holdfast.keyed_state.run_file import _FIELDS
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, Entry, MicroBatch
from holdfast.landing.ledger_rules import Commit
from holdfast.spark.ledger.checkpoint import open_checkpoint
from holdfast.spark.ledger.job import Job
from holdfast.spark.ledger.ledger_sink import LedgerSink


class Planted(Ledger):
    """A ledger that publishes without a look at what is there."""

    root = Path()

    async def publish(self, batch: MicroBatch, effects: Effects) -> Committed:
        entry = self._entry(batch, effects, self.next_number)
        await self._publish(entry, None)
        return Committed(entry=entry)


class EntryFirst(Planted):
    """Offsets are committed first, state and output in an entry of their own afterwards."""

    async def plan(self, batch: MicroBatch) -> Any:
        decision = await super().plan(batch)
        if isinstance(decision, Commit) and self.head is not None:
            await self.publish(batch, Effects(state=self.head.state))
        return decision

    async def commit(self, batch: MicroBatch, effects: Effects, **_: Any) -> Any:
        return await self.publish(batch, effects)


class LeftoverState(Planted):
    """State is whatever lies in the store, as in seed 002, and not what the ledger names."""

    @property
    def head(self) -> Entry | None:
        head = super().head
        if head is None or not head.state:
            return head
        pinned = decode_pinned(head.state)
        changed: dict[int, list[RunInfo]] = {}
        newest = re.compile(rf"{head.n + 1:020d}-.*")
        for path in sorted((self.root / "state" / self.sink_id).rglob("*-*")):
            if newest.fullmatch(path.name):
                bucket = int(path.parent.name)
                known = changed.setdefault(bucket, list(pinned.runs[bucket]))
                known.append(_info(str(path.relative_to(self.root)), path.read_bytes()))
        more = pinned.with_runs(changed, event_time_watermark_ms=pinned.event_time_watermark_ms)
        facts = {name: getattr(head, name) for name in head.__struct_fields__}
        return Entry(**{**facts, "state": encode_pinned(more)})


class Unasked(Planted):
    """Every micro-batch that runs is published, whatever the ledger says of it."""

    async def plan(self, batch: MicroBatch) -> Any:
        await self.refresh()
        return Commit(n=self.next_number)

    async def commit(self, batch: MicroBatch, effects: Effects, **_: Any) -> Any:
        return await self.publish(batch, effects)


VARIANTS: Mapping[str, type[Planted]] = {
    "entry first": EntryFirst,
    "leftover state": LeftoverState,
    "unasked": Unasked,
}


class PlantedSink(LedgerSink):
    """The product's sink on such a ledger."""

    variant: type[Planted]
    planted: Planted | None = None

    def ledger(self) -> Ledger:
        if self.planted is None:
            real = super().ledger()
            self.planted = self.variant(
                real._store, real.sink_id, environment=real._environment, head=real._head
            )
            self.planted.root = Path(self.job.output.store)
        return self.planted


def start_variant(built: Any, name: str, checkpoint: str, trigger: dict[str, str]) -> Any:
    """As Pipeline.start, with another ledger."""
    job = Job(output=built.output, operation=built.operation)
    sink = PlantedSink(job, open_checkpoint(built.stream.sparkSession, checkpoint))
    sink.variant = VARIANTS[name]
    writer = built.stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def _info(name: str, data: bytes) -> RunInfo:
    # Kind, name, seed and body size go before, as the run's header has them.
    *_, rows, _, crc, _, earliest, median, latest = _FIELDS.unpack_from(data)
    return RunInfo(
        name=name,
        rows=rows,
        bytes=len(data),
        crc=crc,
        time_min_ms=earliest,
        time_median_ms=median,
        time_max_ms=latest,
    )
