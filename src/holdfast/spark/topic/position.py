"""How far a sink into topics is: its position, and the rule that compares it with a micro-batch.

Pure. Owns the position's text and the rule. The text is committed beside an offset, in the same
transaction as the records, so it can be neither ahead of them nor behind. Must never let a
micro-batch run that may be in the topics already, nor skip one that may not be. If neither is
certain, a person is asked.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The newest micro-batch that is in the topics."""

    query_id: str
    batch_id: int
    offsets: str
    """A digest of its plan in Spark's offset log; empty if it could not be read."""


class WriteRecords(NamedTuple):
    """The decision to write the records of the micro-batch, and the position with them."""


class Note(NamedTuple):
    """The decision to write the position alone: a person has said that the records are there."""


class Known(NamedTuple):
    """The decision to write nothing: the micro-batch is there, and its position too."""


class PositionRefused(NamedTuple):
    """The decision to stop, because neither is certain. The message names the remedy."""

    message: str


def to_text(position: Position) -> str:
    """Return the metadata for the committed offset, far below Kafka's limit of 4096 bytes."""
    return json.dumps({"version": VERSION, **asdict(position)}, sort_keys=True)


def from_text(text: str) -> Position | None:
    """Return the position that `to_text` wrote, or None if the text is anything else."""
    try:
        fields = cast("dict[str, Any]", json.loads(text))
        if fields["version"] != VERSION:
            return None
        return Position(
            query_id=str(fields["query_id"]),
            batch_id=int(fields["batch_id"]),
            offsets=str(fields["offsets"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def decide(
    known: Position | None, batch: Position, *, sink_id: str, committed_batch: int | None
) -> WriteRecords | Note | Known | PositionRefused:
    """Decide what to do with a micro-batch.

    Spark runs the last micro-batch again if it may not have finished.
    """
    if known is None:
        return _unknown(batch, sink_id, committed_batch)
    here = f"sink {sink_id} has micro-batch {known.batch_id} of query {known.query_id}"
    if known.query_id != batch.query_id:
        return PositionRefused(
            f"{here}, and this is another query, {batch.query_id}: its checkpoint folder is new,"
            " or not the one of before, so records could come twice or never. What to do: put the"
            " old checkpoint folder back; or have this query begin where that one ended"
            " (startingOffsets), and give it another sinkId"
        )
    if batch.batch_id == known.batch_id + 1:
        return WriteRecords()
    if batch.batch_id == known.batch_id:
        if batch.offsets and known.offsets and batch.offsets != known.offsets:
            return PositionRefused(
                f"{here}, and the checkpoint has planned a micro-batch of the same number anew:"
                f" it was restored from an old copy. {_OLD_COPY}"
            )
        return Known()
    if batch.batch_id < known.batch_id:
        return PositionRefused(
            f"{here}, and this is micro-batch {batch.batch_id}: the checkpoint was restored from"
            f" an old copy, or another driver has gone on meanwhile. {_OLD_COPY}"
        )
    return PositionRefused(
        f"{here}, and this is micro-batch {batch.batch_id}: those between are missing in the"
        " topics, as if the cluster had been restored from an old copy. What to do: put the"
        " checkpoint of that time back; or write to a new topic with another sinkId and an empty"
        " checkpoint folder"
    )


_OLD_COPY = (
    "Nothing was written. What to do: stop all drivers but the newest; if there is none, use an"
    " empty checkpoint folder and another sinkId, and have the query begin where the last"
    " micro-batch ended (startingOffsets)"
)


def _unknown(
    batch: Position, sink_id: str, committed_batch: int | None
) -> WriteRecords | Note | PositionRefused:
    if committed_batch is not None and committed_batch == batch.batch_id:
        return Note()
    if batch.batch_id == 0 or committed_batch == batch.batch_id - 1:
        return WriteRecords()
    return PositionRefused(
        f"sink {sink_id} has no position in the cluster, and this is micro-batch"
        f" {batch.batch_id}: it may be in the topics or not. The position is an offset of the"
        " group holdfast-sink-" + sink_id + ", and Kafka forgets one that was not renewed for"
        " offsets.retention.minutes (7 days); or the query had another sink before. What to do:"
        f" look whether the records of micro-batch {batch.batch_id} are in the topic, and set the"
        f" option committedBatch to {batch.batch_id} if they are, to {batch.batch_id - 1} if not"
    )
