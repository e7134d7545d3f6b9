"""Dead letters: records that the sink's format cannot hold, stored whole and with a reason.

Owns their place and shape: a separate chain of envelopes with a column `reason`, under `_dead/` and
the key template of the sink. A record batch that cannot be read is one dead letter, with its bytes
as they are. Dead letters land before the object that covers their offsets, so every record is in
one of the two. A chain of dead letters also covers the offsets between them. A record that it
covers but does not hold was judged fit by the writer of that object. Must never report a record as
landed that is not in an object.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.columnar.unreadable import Unreadable
from holdfast.environment import Environment
from holdfast.errors import CallError
from holdfast.identifiers import WriterId
from holdfast.landing.arrow import batches_of, offsets_of
from holdfast.landing.chain import Chain, Landed, NotLanded
from holdfast.landing.formats.envelope import REASON
from holdfast.landing.formats.interface import Unfit
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.keys import KeyTemplate
from holdfast.landing.landed import DEAD_PREFIX, read_object
from holdfast.store.interface import Store
from holdfast.store.put_if_absent import Backoff

DETAIL = ": "
"""Separates a reason from details of one record, which are left out when reasons are counted."""
UNREADABLE = "its record batch cannot be read"
TIME_MS_MAX = (2**63 - 1) // 1000
"""The latest time that a column of microseconds can hold."""


def dead_template(template: KeyTemplate) -> KeyTemplate:
    """Return the key template for the dead letters of a sink with this template."""
    return KeyTemplate(f"{DEAD_PREFIX}{template.text}")


def dead_batch(batch: RecordBatch, unfits: Sequence[Unfit]) -> RecordBatch:
    """Return the unfit records of a batch, whole, each with its reason.

    The batch must have all columns of the log, headers included. A batch that was decoded for a
    format that needs fewer columns must be decoded again.
    """
    schema: Any = SCHEMA_WITH_HEADERS
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise CallError(f"dead letters need all columns, but {', '.join(missing)} was not decoded")
    offsets = offsets_of(batch)
    wanted = np.array([unfit.offset for unfit in unfits], np.int64)
    rows = np.searchsorted(offsets, wanted)
    if bool(np.any(rows >= len(offsets))) or not np.array_equal(offsets[rows], wanted):
        raise CallError(f"some of the {len(unfits)} unfit records are not in the record batch")
    taken = cast(Any, batch).select(schema.names).take(pa.array(rows))
    reasons = pa.array([unfit.problem for unfit in unfits], pa.string())
    return taken.append_column(pa.field(REASON, pa.string()), reasons)


def dead_record_batch(
    found: Unreadable, *, topic: str, partition: int, first_offset: int
) -> RecordBatch:
    """Return one row for a record batch that cannot be read.

    The value is the whole batch, as the log has it. Headers say which offsets it covers.
    """
    header = found.header
    told = {"holdfast.first_offset": first_offset, "holdfast.last_offset": found.last_offset}
    row = {
        "key": None,
        "value": bytes(found.batch),
        "topic": topic,
        "partition": partition,
        "offset": first_offset,
        "timestamp": min(max(header.max_timestamp, -TIME_MS_MAX), TIME_MS_MAX) * 1000,
        "timestampType": int(header.is_log_append_time),
        "headers": [{"key": name, "value": str(n).encode()} for name, n in told.items()],
        REASON: f"{UNREADABLE}{DETAIL}{found.problem}",
    }
    schema: Any = SCHEMA_WITH_HEADERS
    return batches_of([row], schema.append(pa.field(REASON, pa.string())))


class DeadLetters:
    """The dead letters of one partition of a sink."""

    def __init__(
        self,
        store: Store,
        topic: str,
        partition: int,
        *,
        template: KeyTemplate,
        environment: Environment,
        writer_id: WriterId | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.chain = Chain(
            store,
            topic,
            partition,
            format=JsonLines("envelope"),
            environment=environment,
            template=dead_template(template),
            writer_id=writer_id,
            backoff=backoff,
        )
        self._store = store
        self._environment = environment

    async def land(
        self,
        batches: Sequence[RecordBatch],
        *,
        start_offset: int,
        deadline_seconds: float | None = None,
    ) -> Landed | NotLanded:
        """Land what dead_batch returned, in order; safe to repeat.

        start_offset is the end of the sink's main chain: every record from there up to the last of
        these has been judged. The call is refused if the chain of dead letters covers one of them
        but does not hold it. Then another member judged that record fit, so the members have
        different settings.
        """
        offsets = [int(offset) for batch in batches for offset in offsets_of(batch)]
        if not offsets:
            raise CallError(f"{self.chain}: there are no dead letters to land")
        if offsets[0] < start_offset:
            raise CallError(
                f"{self.chain}: the dead letter at offset {offsets[0]} is before the start"
                f" {start_offset}"
            )
        outcome = await self.chain.land(
            batches,
            start_offset=start_offset,
            end_offset=offsets[-1] + 1,
            cover_hole=True,
            deadline_seconds=deadline_seconds,
        )
        if isinstance(outcome, NotLanded):
            return outcome
        lost = await self._covered_and_not_held(outcome, offsets)
        if lost is None:
            return outcome
        return NotLanded(
            reason=f"{self.chain}: this member cannot land the record at offset {lost}, but another"
            " member of the sink could: give all members the same format, layout, require_json and"
            " record_bytes",
            created=outcome.created,
            found=outcome.found,
            next_offset=outcome.next_offset,
        )

    async def _covered_and_not_held(self, outcome: Landed, offsets: Sequence[int]) -> int | None:
        """Return the first of our dead letters that another's object covers but does not hold."""
        for facts in outcome.found:
            inside = [n for n in offsets if facts.first_offset <= n <= facts.last_offset]
            if not inside:
                continue
            key = self.chain.key(facts.first_offset)
            held = await read_object(self._store, key, environment=self._environment)
            numbers = {int(offset) for batch in held for offset in offsets_of(batch)}
            for offset in inside:
                if offset not in numbers:
                    return offset
        return None


async def reasons_in(store: Store, key: str, *, environment: Environment) -> Counter[str]:
    """Count the dead letters of an object by reason."""
    counts: Counter[str] = Counter()
    for batch in await read_object(store, key, environment=environment):
        if REASON in batch.schema.names:
            for reason in batch.column(REASON).to_pylist():
                counts[reason.split(DETAIL)[0]] += 1
    return counts
