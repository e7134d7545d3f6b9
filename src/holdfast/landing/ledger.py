"""The ledger of a sink: a chain of committed micro-batches, one object for each number.

Owns finding the newest entry and publishing the next one. To publish is one put-if-absent of entry
n. If several drivers try, one wins, and the others read the winner's entry and decide again.
Entries are never deleted, because a number that became free could be won a second time. Must never
publish on top of an entry other than the one that the micro-batch ran on.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.environment import Environment
from holdfast.errors import CallError, ObjectNotFound, StoreUnavailable
from holdfast.landing.data_files import sink_id_problem
from holdfast.landing.ledger_entry import (
    NO_HASH,
    Effects,
    Entry,
    Head,
    LedgerEntryKind,
    MicroBatch,
    OutputFile,
    check_effects,
    check_link,
    decode_entry,
    encode_entry,
    entry_key,
    entry_prefix,
)
from holdfast.landing.ledger_rules import (
    AlreadyCommitted,
    Commit,
    CommitRefused,
    Decision,
    decide,
    overtaken,
)
from holdfast.landing.ledger_summary import BLOCK, write_summary
from holdfast.landing.newest import greatest
from holdfast.landing.parallel import each
from holdfast.landing.sealed import hash_in
from holdfast.quantities import is_number
from holdfast.store.interface import Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Backoff, Lost, put_if_absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The effects are visible, all at once and for ever."""

    entry: Entry


class Ledger:
    """The ledger of one sink, as this process last saw it."""

    def __init__(
        self,
        store: Store,
        sink_id: str,
        *,
        environment: Environment,
        head: Head | None,
        backoff: Backoff | None = None,
    ) -> None:
        self.sink_id = sink_id
        self._store = store
        self._environment = environment
        self._writer_id = environment.new_writer_id().hex()
        self._head = head
        self._backoff = backoff

    @staticmethod
    async def open(
        store: Store, sink_id: str, *, environment: Environment, backoff: Backoff | None = None
    ) -> "Ledger":
        """Find the newest entry: get a position from listings, then probe the next numbers."""
        problem = sink_id_problem(sink_id)
        if problem is not None:
            raise CallError(problem)
        n = await newest_number(store, sink_id, environment=environment)
        head = None
        if n is not None:
            head = await read_entry(store, sink_id, n, environment=environment)
            if head is None:
                raise ObjectNotFound(
                    f"the ledger entry {entry_key(sink_id, n)} is missing in {store.url}: entries"
                    " must never be deleted; restore it"
                )
        ledger = Ledger(store, sink_id, environment=environment, head=head, backoff=backoff)
        await ledger.refresh()
        return ledger

    @property
    def store(self) -> Store:
        """The store that holds the ledger and the files that it names."""
        return self._store

    @property
    def environment(self) -> Environment:
        return self._environment

    @property
    def head(self) -> Entry | None:
        """The newest entry that was seen, with the position and the pinned state."""
        return None if self._head is None else self._head.entry

    @property
    def head_hash(self) -> str:
        """The previous_hash that the next entry must have."""
        return NO_HASH if self._head is None else self._head.hash

    @property
    def next_number(self) -> int:
        return 0 if self._head is None else self._head.entry.n + 1

    async def refresh(self) -> Entry | None:
        """Read the entries that others have committed.

        If there are none, this is one small read.
        """
        while True:
            following = await read_entry(
                self._store, self.sink_id, self.next_number, environment=self._environment
            )
            if following is None:
                return self.head
            check_link(self.head_hash, following)
            self._head = following

    async def plan(self, batch: MicroBatch) -> Decision:
        """Decide before a micro-batch runs: skip a replay, refuse early, or learn its number."""
        await self.refresh()
        return decide(self.head, batch)

    async def commit(
        self,
        batch: MicroBatch,
        effects: Effects,
        *,
        n: int,
        deadline_seconds: float | None = None,
    ) -> Committed | AlreadyCommitted | CommitRefused:
        """Publish the effects of a micro-batch as entry n, the number that plan gave before it ran.

        AlreadyCommitted means that the effects of an earlier run of the same micro-batch count, and
        these files do not. Raises StoreUnavailable if there is no certain answer within
        deadline_seconds. Then call again with the same arguments, and delete no file until there is
        an answer.
        """
        check_effects(effects, sink_id=self.sink_id, n=n)
        while True:
            decision = decide(self.head, batch)
            if not isinstance(decision, Commit) or decision.n != n:
                await self.refresh()
                decision = decide(self.head, batch)
            if not isinstance(decision, Commit):
                return decision
            if decision.n != n:
                return _wrong_number(self.head, n)
            entry = self._entry(batch, effects, n)
            if await self._publish(entry, deadline_seconds):
                return Committed(entry=entry)

    async def rewrite(
        self,
        *,
        removed: Sequence[str],
        files: Sequence[OutputFile],
        n: int,
        metadata: dict[str, str] | None = None,
        deadline_seconds: float | None = None,
    ) -> Committed | CommitRefused:
        """Replace files with others that hold the same rows, as entry n. The position stays."""
        await self.refresh()
        head = self.head
        if head is None or head.n + 1 != n:
            return _wrong_number(head, n)
        effects = Effects(files=tuple(files), metadata=metadata or {})
        check_effects(effects, sink_id=self.sink_id, n=n)
        entry = Entry(
            sink_id=self.sink_id,
            n=n,
            previous_hash=self.head_hash,
            writer_id=self._writer_id,
            kind=LedgerEntryKind.REWRITE,
            query_id=head.query_id,
            batch_id=head.batch_id,
            sources=head.sources,
            files=effects.files,
            removed=tuple(removed),
            state=head.state,
            event_time_watermark_ms=head.event_time_watermark_ms,
            metadata=dict(effects.metadata),
            committed_ms=self._environment.now_ms(),
        )
        if await self._publish(entry, deadline_seconds):
            return Committed(entry=entry)
        return _wrong_number(self.head, n)

    async def entries(self, from_number: int = 0) -> AsyncIterator[Entry]:
        """Yield the entries up to the newest that was seen.

        Each is checked against the previous one.
        """
        before: str | None = NO_HASH if from_number == 0 else None
        for n in range(from_number, self.next_number):
            found = await read_entry(self._store, self.sink_id, n, environment=self._environment)
            if found is None:
                raise ObjectNotFound(
                    f"the ledger entry {entry_key(self.sink_id, n)} is missing in"
                    f" {self._store.url}: restore it"
                )
            if before is not None:
                check_link(before, found)
            before = found.hash
            yield found.entry

    async def _publish(self, entry: Entry, deadline_seconds: float | None) -> bool:
        """True if our entry is at its number.

        Otherwise read the winner and all entries after it.
        """
        body = encode_entry(entry)

        def is_ours(found: bytes) -> bool:
            decode_entry(found, sink_id=self.sink_id, n=entry.n)
            return found == body

        outcome = await put_if_absent(
            self._store,
            entry_key(self.sink_id, entry.n),
            (body,),
            is_ours=is_ours,
            identify_bytes=None,
            environment=self._environment,
            backoff=self._backoff,
            deadline_seconds=deadline_seconds,
        )
        if isinstance(outcome, Lost):
            winner = decode_entry(outcome.body, sink_id=self.sink_id, n=entry.n)
            check_link(self.head_hash, winner)
            self._head = winner
            await self.refresh()
            return False
        self._head = Head(entry=entry, hash=hash_in(body))
        if (entry.n + 1) % BLOCK == 0:
            await self._summarise(entry.n)
        return True

    async def _summarise(self, last: int) -> None:
        """Write the summary of a full block. Without it readers only read more."""
        try:
            read = partial(read_entry, self._store, self.sink_id, environment=self._environment)
            heads = await each(read, range(last + 1 - BLOCK, last + 1))
            whole = [head for head in heads if head is not None]
            if len(whole) == BLOCK:
                await write_summary(self._store, self.sink_id, whole, environment=self._environment)
        except StoreUnavailable:
            return

    def _entry(self, batch: MicroBatch, effects: Effects, n: int) -> Entry:
        return Entry(
            sink_id=self.sink_id,
            n=n,
            previous_hash=self.head_hash,
            writer_id=self._writer_id,
            kind=LedgerEntryKind.MICRO_BATCH,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            sources=batch.sources,
            files=effects.files,
            state=effects.state,
            counts=dict(effects.counts),
            event_time_watermark_ms=effects.event_time_watermark_ms,
            metadata=dict(effects.metadata),
            committed_ms=self._environment.now_ms(),
        )


def _wrong_number(head: Entry | None, n: int) -> CommitRefused:
    if head is None or head.n < n - 1:
        last = "none" if head is None else str(head.n)
        raise CallError(
            f"ledger entry {n} cannot be committed: the newest entry is {last}; call plan first"
        )
    return overtaken(head, n)


async def newest_number(store: Store, sink_id: str, *, environment: Environment) -> int | None:
    """Return the greatest number in a listing, from which probing starts, or None."""
    prefix = entry_prefix(sink_id)

    async def page(after: int, limit: int) -> Sequence[int]:
        last_key = entry_key(sink_id, after) if after >= 0 else ""
        rows = await patiently(
            lambda: store.list(prefix, after=last_key, limit=limit), environment=environment
        )
        names = (row.key.removeprefix(prefix) for row in rows)
        return [int(name) for name in names if len(name) == 20 and is_number(name)]

    return await greatest(page)


async def read_entry(
    store: Store, sink_id: str, n: int, *, environment: Environment
) -> Head | None:
    """Return entry n, checked, or None if it is not there now."""

    async def read() -> Head | None:
        try:
            body = await store.read(entry_key(sink_id, n))
        except ObjectNotFound:
            return None
        return decode_entry(body, sink_id=sink_id, n=n)

    return await patiently(read, environment=environment)
