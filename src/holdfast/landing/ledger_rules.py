"""The rule that makes a ledger tile its source: whether a micro-batch may be committed.

Pure. Owns the decision and the text of a refusal. The ledger alone, not a checkpoint, says how far
the source has been processed. A micro-batch is committed only if it begins exactly at the end of
the newest entry. Must never depend on a clock or on the identity of the caller.
"""

import enum
from dataclasses import dataclass

import msgspec

from holdfast.errors import NOT_JSON
from holdfast.landing.ledger_entry import Entry, MicroBatch, SourceRange

SHOWN_MAX = 300


class CommitRefusal(enum.Enum):
    """The cause of a refusal, as far as it can be known."""

    OLD_CHECKPOINT = "checkpoint restored from an old copy, or a driver that was overtaken"
    TWO_DRIVERS = "two drivers on one checkpoint"
    LEDGER_BEHIND = "checkpoint ahead of the ledger"
    CHECKPOINT_DELETED = "checkpoint deleted"
    ANOTHER_QUERY = "another query's checkpoint"
    OVERTAKEN = "another entry came between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Run the micro-batch with files named for n, and commit it as entry n."""

    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The micro-batch is a replay: skip it. Its effects are those of entry n."""

    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """A commit would duplicate or skip records: stop the query and show the message."""

    refusal: CommitRefusal
    message: str


Decision = Commit | AlreadyCommitted | CommitRefused


def decide(head: Entry | None, batch: MicroBatch) -> Decision:
    """Decide what to do with a micro-batch, given the newest entry of the ledger."""
    if head is None:
        return Commit(n=0)
    is_same = (batch.query_id, batch.batch_id) == (head.query_id, head.batch_id)
    if is_same and _same_texts(ends(batch.sources), ends(head.sources)):
        return AlreadyCommitted(n=head.n)
    if _same_texts(tuple(source.start for source in batch.sources), ends(head.sources)):
        return Commit(n=head.n + 1)
    refusal = _why(head, batch)
    return CommitRefused(refusal=refusal, message=_message(refusal, head, batch))


def overtaken(head: Entry, n: int) -> CommitRefused:
    """Refuse a micro-batch that ran on top of an entry that is no longer the newest."""
    return CommitRefused(
        refusal=CommitRefusal.OVERTAKEN,
        message=f"sink {head.sink_id}: this micro-batch was made for ledger entry {n}, but entry"
        f" {head.n} is already there. Its files were not published: run the micro-batch again from"
        " the newest entry",
    )


def ends(sources: tuple[SourceRange, ...]) -> tuple[str | None, ...]:
    """Return the end offsets of all sources."""
    return tuple(source.end for source in sources)


def _same_texts(left: tuple[str | None, ...], right: tuple[str | None, ...]) -> bool:
    return len(left) == len(right) and all(map(_same_offsets, left, right))


def _same_offsets(left: str | None, right: str | None) -> bool:
    if left is None or right is None or left == right:
        return left == right
    try:
        return bool(msgspec.json.decode(left) == msgspec.json.decode(right))
    except NOT_JSON:
        return False


def _why(head: Entry, batch: MicroBatch) -> CommitRefusal:
    if batch.query_id != head.query_id:
        return (
            CommitRefusal.CHECKPOINT_DELETED if batch.batch_id == 0 else CommitRefusal.ANOTHER_QUERY
        )
    if batch.batch_id < head.batch_id:
        return CommitRefusal.OLD_CHECKPOINT
    return (
        CommitRefusal.TWO_DRIVERS
        if batch.batch_id == head.batch_id
        else CommitRefusal.LEDGER_BEHIND
    )


_REMEDIES = {
    CommitRefusal.OLD_CHECKPOINT: (
        "the checkpoint was restored from an old copy, or another driver has continued without"
        " this one. If another driver runs, stop this one. Otherwise start with a new, empty"
        " checkpoint folder and startingOffsets set to the ledger's position"
    ),
    CommitRefusal.TWO_DRIVERS: (
        "two drivers run on one checkpoint, and the other one committed this batch with other end"
        " offsets. Stop one of them; then start with a new, empty checkpoint folder and"
        " startingOffsets set to the ledger's position"
    ),
    CommitRefusal.LEDGER_BEHIND: (
        "the checkpoint is ahead of the ledger: entries were deleted, or the ledger was restored"
        " from an old copy. Restore the whole ledger; or start with a new, empty checkpoint folder"
        " and startingOffsets set to the ledger's position"
    ),
    CommitRefusal.CHECKPOINT_DELETED: (
        "the checkpoint is new (it was deleted, or its folder changed) and does not begin where"
        " the ledger ends. Set startingOffsets to the ledger's position and use an empty"
        " checkpoint folder; or choose another sink id for output from the start"
    ),
    CommitRefusal.ANOTHER_QUERY: (
        "this checkpoint belongs to another query than the one that wrote the ledger last. Give"
        " each query its own sink id; or go back to the checkpoint of the query that the ledger"
        " names"
    ),
    CommitRefusal.OVERTAKEN: "run the micro-batch again",
}


def _message(refusal: CommitRefusal, head: Entry, batch: MicroBatch) -> str:
    starts = _shown(tuple(source.start for source in batch.sources))
    return (
        f"sink {head.sink_id}: checkpoint and ledger disagree, and nothing was published. The"
        f" ledger's position, after entry {head.n} (query {head.query_id}, batch {head.batch_id}),"
        f" is {_shown(ends(head.sources))}; query {batch.query_id}, batch {batch.batch_id} begins"
        f" at {starts} and ends at {_shown(ends(batch.sources))}. What to do: {_REMEDIES[refusal]}."
    )


def _shown(texts: tuple[str | None, ...]) -> str:
    shown = ", ".join("the beginning" if text is None else text for text in texts)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
