"""The landing chain of one partition: each object begins where the previous one ends.

Owns following the chain and landing records in it. The key of an object follows from its first
offset, it is created only if absent, and its facts block says its last offset. A writer follows the
chain to its end and creates the next object there. A writer that finds the key taken follows the
chain further and drops what others have landed. So objects of different writers, with different
batch boundaries, tile the log. Must never create an object at any other offset, and never say that
an offset has landed if no object covers it.

A cold start may take its position from a listing. A listed object was created at the end of a chain
that reached up to it, so everything before it has landed. Objects created after the listing are
found by following the chain. An old listing costs reads, never correctness.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.columnar.arrow import RecordBatch
from holdfast.environment import Environment
from holdfast.errors import CallError, CorruptObject
from holdfast.identifiers import WriterId, topic_name_problem
from holdfast.landing.blocks import encode_block
from holdfast.landing.facts import Facts, checksum
from holdfast.landing.formats.interface import Encoded, Format, Unfit
from holdfast.landing.keys import KeyTemplate, offset_in
from holdfast.landing.newest import NUMBER_MAX, greatest
from holdfast.landing.objects import create, read_facts
from holdfast.landing.origin import ChainOrigin, agree_on_origin, read_origin
from holdfast.landing.packing import ObjectBounds, PackedObject, Packer
from holdfast.store.interface import Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The whole range has landed: all offsets below next_offset may be committed."""

    created: tuple[Facts, ...]
    found: tuple[Facts, ...]
    """Objects of other writers, or of an earlier run of this one, that were followed on the way."""
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLanded:
    """Not everything has landed, and a retry would not help. The reason names the remedy."""

    reason: str
    created: tuple[Facts, ...] = ()
    found: tuple[Facts, ...] = ()
    next_offset: int | None = None
    """Offsets below it have landed. None if the chain was not followed."""


class Chain:
    """One partition's landed objects in a store, for one format and one key template."""

    def __init__(
        self,
        store: Store,
        topic: str,
        partition: int,
        *,
        format: Format,
        environment: Environment,
        template: KeyTemplate | None = None,
        writer_id: WriterId | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        problem = topic_name_problem(topic)
        if problem is not None or partition < 0:
            raise CallError(
                f"{topic!r}-{partition} cannot have a chain:"
                f" {problem or 'the partition is negative'}"
            )
        self.topic = topic
        self.partition = partition
        self._store = store
        self._format = format
        self._template = template or KeyTemplate()
        self._environment = environment
        self._writer_id = (writer_id or environment.new_writer_id()).hex()
        self._backoff = backoff

    def key(self, offset: int) -> str:
        """Return the key of the object that begins at an offset."""
        return self._template.key(self.topic, self.partition, offset, self._format.extension)

    async def origin(self) -> ChainOrigin | None:
        """Return how the chain began, or None if it has not begun."""
        key = self._template.origin_key(self.topic, self.partition)
        return await read_origin(self._store, key, environment=self._environment)

    async def facts_at(self, offset: int) -> Facts | None:
        """Return the facts of the object that begins at an offset, or None if there is none."""
        key = self.key(offset)
        facts = await read_facts(self._store, key, environment=self._environment)
        if facts is not None:
            self._check_place(key, offset, facts)
        return facts

    async def follow(self, from_offset: int) -> AsyncIterator[Facts]:
        """Yield the facts of each object from this offset to the end of the chain."""
        while (facts := await self.facts_at(from_offset)) is not None:
            yield facts
            from_offset = facts.next_offset

    async def locate(self, offset: int = NUMBER_MAX) -> int | None:
        """Find by listing the greatest first offset up to `offset`. None if there is none."""
        prefix = self._template.prefix(self.topic, self.partition)

        async def page(after: int, limit: int) -> Sequence[int]:
            numbers: list[int] = []
            last_key = self.key(after) if after >= 0 else ""
            while len(numbers) < limit:
                look = partial(self._store.list, prefix, after=last_key, limit=limit)
                rows = await patiently(look, environment=self._environment)
                found = (offset_in(row.key, prefix, self._format.extension) for row in rows)
                numbers.extend(number for number in found if number is not None)
                if len(rows) < limit:
                    break
                last_key = rows[-1].key
            return numbers[:limit]

        return await greatest(page, at_most=offset)

    async def next_offset(self) -> int | None:
        """Return the end of the chain, the first offset that has not landed.

        None without a chain.
        """
        origin = await self.origin()
        if origin is None:
            return None
        position = await self.locate()
        position = origin.offset if position is None else position
        async for facts in self.follow(position):
            position = facts.next_offset
        return position

    async def begin(self, offset: int) -> int:
        """Return the end of the chain. A chain that does not exist begins at this offset."""
        await agree_on_origin(
            self._store,
            self._new_origin(offset),
            environment=self._environment,
            deadline_seconds=None,
        )
        end = await self.next_offset()
        return offset if end is None else end

    async def land(
        self,
        batches: Iterable[RecordBatch],
        *,
        start_offset: int,
        end_offset: int,
        bounds: ObjectBounds | None = None,
        cover_hole: bool = False,
        deadline_seconds: float | None = None,
    ) -> Landed | NotLanded:
        """Land [start_offset, end_offset), skipping what has landed; safe to repeat at any time.

        The batches hold every record of that range, in order, with any boundaries. Offsets without
        a record (markers, compaction by key) are covered as well. If the chain ends before
        start_offset, the call is refused. With cover_hole, which says that the records in between
        are gone for good, the next object covers the hole as well. Raises StoreUnavailable if a
        create has no certain answer within deadline_seconds; call again with the same range.
        """
        if not 0 <= start_offset <= end_offset:
            raise CallError(f"{self}: offsets {start_offset} to {end_offset} are not a range")
        run = _Landing(self, deadline_seconds)
        position = await self._position(run, start_offset, cover_hole=cover_hole)
        if isinstance(position, NotLanded):
            return position
        packer = Packer(position=position, end_offset=end_offset, bounds=bounds or ObjectBounds())
        if position < end_offset:
            for batch in batches:
                unfit = self._format.check(batch)
                if unfit is not None:
                    return run.refused(_unfit_reason(self, unfit), packer.position)
                packer.add(batch)
                while (cut := packer.full()) is not None:
                    packer.move_to(await run.put(cut))
                if packer.position >= end_offset:
                    break
        while packer.position < end_offset:
            packer.move_to(await run.put(packer.rest()))
        return Landed(
            created=tuple(run.created), found=tuple(run.found), next_offset=packer.position
        )

    async def _position(
        self, run: "_Landing", start_offset: int, *, cover_hole: bool
    ) -> int | NotLanded:
        """Return the end of the chain, followed from as near to start_offset as possible."""
        origin = await agree_on_origin(
            self._store,
            self._new_origin(start_offset),
            environment=self._environment,
            deadline_seconds=run.deadline_seconds,
        )
        if start_offset < origin.offset:
            return NotLanded(
                reason=f"{self}: cannot land from offset {start_offset}, because the chain begins"
                f" at offset {origin.offset}: start at {origin.offset}, or land under another"
                " prefix"
            )
        position = await run.follow(start_offset)
        if position == start_offset > origin.offset:
            before = await self.locate(start_offset)
            position = await run.follow(origin.offset if before is None else before)
        if position < start_offset and not cover_hole:
            return NotLanded(
                reason=f"{self}: cannot land from offset {start_offset}, because the chain ends at"
                f" {position}: offsets {position} to {start_offset - 1} would be missing. Start at"
                f" {position}, or set cover_hole if the log no longer has these records",
                found=tuple(run.found),
                next_offset=position,
            )
        return position

    def _new_origin(self, offset: int) -> ChainOrigin:
        return ChainOrigin(
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            format=self._format.name,
            extension=self._format.extension,
            template=self._template.text,
            writer_id=self._writer_id,
            created_ms=self._environment.now_ms(),
        )

    async def create(self, cut: PackedObject, deadline_seconds: float | None) -> tuple[Facts, bool]:
        """Put an object at the end of the chain.

        Return its facts and True, or the winner's and False.
        """
        about = self.described(cut.first_offset, cut.last_offset, cut.rows)
        return await self.place(
            self._format.encode(cut.batches, about),
            first_offset=cut.first_offset,
            last_offset=cut.last_offset,
            records=cut.rows,
            deadline_seconds=deadline_seconds,
        )

    async def place(
        self,
        encoded: Encoded,
        *,
        first_offset: int,
        last_offset: int,
        records: int,
        deadline_seconds: float | None = None,
    ) -> tuple[Facts, bool]:
        """Put an encoded file into the chain. Return its facts and True, or the winner's and False.

        first_offset must be the end of the chain as it was followed: an object anywhere else would
        start a second chain. If no answer came, it is safe to call again with the same file.
        """
        if not 0 <= first_offset <= last_offset or records < 0:
            raise CallError(
                f"{self}: an object cannot have {records} records at offsets"
                f" {first_offset}..{last_offset}"
            )
        facts = Facts(
            topic=self.topic,
            partition=self.partition,
            first_offset=first_offset,
            last_offset=last_offset,
            records=records,
            writer_id=self._writer_id,
            format=self._format.name,
            body_bytes=encoded.body_bytes,
            body_crc=encoded.body_crc,
            after_bytes=len(encoded.after),
            after_crc=checksum([encoded.after]),
        )
        block = encode_block(facts)
        key = self.key(first_offset)
        winner = await create(
            self._store,
            key,
            (*encoded.body, block, encoded.after),
            block,
            environment=self._environment,
            backoff=self._backoff,
            deadline_seconds=deadline_seconds,
        )
        if winner is None:
            return facts, True
        self._check_place(key, first_offset, winner)
        return winner, False

    def described(self, first_offset: int, last_offset: int, records: int) -> dict[str, str]:
        """Return names and numbers, as text, that a format may show to other tools."""
        return {
            "holdfast.topic": self.topic,
            "holdfast.partition": str(self.partition),
            "holdfast.first_offset": str(first_offset),
            "holdfast.last_offset": str(last_offset),
            "holdfast.records": str(records),
        }

    def _check_place(self, key: str, offset: int, facts: Facts) -> None:
        if (facts.topic, facts.partition, facts.first_offset) != (
            self.topic,
            self.partition,
            offset,
        ):
            raise CorruptObject(
                f"{key}: it holds {facts.topic}-{facts.partition} from offset"
                f" {facts.first_offset}: it was copied here from another place; remove it"
            )

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} in {self._store.url}"


class _Landing:
    """One call of land: the objects that it created and those that it found."""

    def __init__(self, chain: Chain, deadline_seconds: float | None) -> None:
        self.created: list[Facts] = []
        self.found: list[Facts] = []
        self.deadline_seconds = deadline_seconds
        self._chain = chain

    async def follow(self, position: int) -> int:
        async for facts in self._chain.follow(position):
            self.found.append(facts)
            position = facts.next_offset
        return position

    async def put(self, cut: PackedObject) -> int:
        """Put the next object, or find another writer's there. Return the new end of the chain."""
        facts, is_ours = await self._chain.create(cut, self.deadline_seconds)
        if is_ours:
            self.created.append(facts)
            return facts.next_offset
        self.found.append(facts)
        return await self.follow(facts.next_offset)

    def refused(self, reason: str, position: int) -> NotLanded:
        return NotLanded(
            reason=reason,
            created=tuple(self.created),
            found=tuple(self.found),
            next_offset=position,
        )


def _unfit_reason(chain: Chain, unfit: Unfit) -> str:
    return f"{chain}: the record at offset {unfit.offset} cannot be landed: {unfit.problem}"
