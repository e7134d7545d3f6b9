"""Checks the order of records in a partition: by sequence for each producer, and by real time.

Pure. One function for each anomaly.
"""

import itertools

from holdfast.verify.checkers.knowledge import Batch, Knowledge, PartitionKnowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import Outcome

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
SEQUENCE_ERRORS = frozenset((OUT_OF_ORDER, "UNKNOWN_PRODUCER_ID", "DUPLICATE_SEQUENCE_NUMBER"))


def producer_order(knowledge: Knowledge) -> list[Violation]:
    """Find batches of one producer id and epoch whose offsets contradict their sequences.

    A batch at an offset that was given up is not judged: an earlier batch of its producer may be
    sent again and land after it.
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        producers: dict[tuple[int, int], list[tuple[int, int, Batch]]] = {}
        for batch in known.batches:
            offset = _offset_of(known, batch)
            if offset is None or known.is_given_up(offset):
                continue
            if batch.produce.producer_id >= 0:
                key = (batch.produce.producer_id, batch.produce.producer_epoch)
                producers.setdefault(key, []).append((batch.produce.base_sequence, offset, batch))
        for producer, landed in producers.items():
            landed.sort(key=lambda entry: entry[0])
            for (lower, first, one), (higher, second, other) in itertools.pairwise(landed):
                if second < first + len(one.produce.values):
                    found.append(
                        Violation(
                            Anomaly.ORDER,
                            f"{partition}: producer {producer} has sequence {lower} at offset "
                            f"{first}, but sequence {higher} at offset {second}",
                            (one.first_invoked, other.first_invoked),
                        )
                    )
    return found


def batch_torn(knowledge: Knowledge) -> list[Violation]:
    """Find batches whose records are not at consecutive offsets."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        for batch in known.batches:
            seen = [
                (index, min(known.offsets_of[value]))
                for index, value in enumerate(batch.produce.values)
                if len(known.offsets_of.get(value, ())) == 1
            ]
            if len({offset - index for index, offset in seen}) > 1:
                found.append(
                    Violation(
                        Anomaly.ORDER,
                        f"{partition}: the records of batch {batch.identity} are at "
                        f"{[offset for _, offset in seen]}",
                        (batch.first_invoked,),
                    )
                )
    return found


def real_time_order(knowledge: Knowledge) -> list[Violation]:
    """Find batches that were first sent after another one was acked, but lie below it."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        acks = sorted(
            (ack.call.completed, ack.produced.base_offset + len(ack.produce.values))
            for batch in known.batches
            for ack in batch.acks
        )
        position, end, end_event = 0, 0, -1
        for batch in sorted(known.batches, key=lambda batch: batch.first_invoked):
            while position < len(acks) and acks[position][0] < batch.first_invoked:
                event, acked_end = acks[position]
                if acked_end > end:
                    end, end_event = acked_end, event
                position += 1
            offset = _offset_of(known, batch)
            if offset is not None and offset < end:
                found.append(
                    Violation(
                        Anomaly.ORDER,
                        f"{partition}: batch {batch.identity} was first sent at "
                        f"{batch.first_invoked}, after the records below {end} were acked at "
                        f"{end_event}, but lies at offset {offset}",
                        (end_event, batch.first_invoked),
                    )
                )
    return found


def sequence_refused(knowledge: Knowledge) -> list[Violation]:
    """Find sequence errors for producers that did nothing wrong: the broker forgot what it had
    acked.

    Allowed if a partition gave something up: what it knew about producers is gone, too.
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        if known.given_up:
            continue
        acked_at: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        for batch in known.batches:
            produce = batch.produce
            if produce.producer_id >= 0 and batch.acks:
                producer = (produce.producer_id, produce.producer_epoch)
                first_ack = min(ack.call.completed for ack in batch.acks)
                after = produce.base_sequence + len(produce.values)
                acked_at.setdefault(producer, {})[after] = (first_ack, batch.first_invoked)
        for batch in known.batches:
            for call in batch.tries:
                if call.outcome is Outcome.OK or call.error not in SEQUENCE_ERRORS:
                    continue
                sequence = batch.produce.base_sequence
                producer = (batch.produce.producer_id, batch.produce.producer_epoch)
                first_ack, _ = acked_at.get(producer, {}).get(sequence, (call.invoked, 0))
                if sequence == 0 or first_ack < call.invoked:
                    found.append(
                        Violation(
                            Anomaly.SEQUENCE_REFUSED,
                            f"{partition}: {call.broker} answered {call.error} to sequence "
                            f"{sequence} of producer {producer}, though all before it was acked",
                            (call.invoked, call.completed),
                        )
                    )
    return found


def gap_called(knowledge: Knowledge) -> list[Violation]:
    """Find batches refused as out of order while the one before was in flight, and later acked.

    Nothing is lost by that alone. But librdkafka then begins a new epoch and sends everything that
    is unanswered again, so that what is already in the log is doubled (ADR 14).
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        producers: dict[tuple[int, int], list[Batch]] = {}
        for batch in known.batches:
            if batch.produce.producer_id >= 0 and not known.given_up:
                key = (batch.produce.producer_id, batch.produce.producer_epoch)
                producers.setdefault(key, []).append(batch)
        for producer, batches in producers.items():
            batches.sort(key=lambda batch: batch.produce.base_sequence)
            for one, other in itertools.pairwise(batches):
                for call in other.tries:
                    if call.error == OUT_OF_ORDER and _comes_after(one, call.completed):
                        found.append(
                            Violation(
                                Anomaly.GAP_CALLED,
                                f"{partition}: {call.broker} answered {call.error} to sequence "
                                f"{other.produce.base_sequence} of producer {producer}, while "
                                f"{one.produce.base_sequence} was under way",
                                (one.first_invoked, call.completed),
                            )
                        )
    return found


def _comes_after(batch: Batch, event: int) -> bool:
    """True if a batch was sent before an event, and acked only after it."""
    acked = [ack.call.completed for ack in batch.acks]
    return batch.first_invoked < event and bool(acked) and min(acked) > event


def _offset_of(known: PartitionKnowledge, batch: Batch) -> int | None:
    """Return the offset of a batch; None if it was not seen, or at several places (see
    `doubled`)."""
    if batch.acks:
        return batch.acks[0].produced.base_offset
    for index, value in enumerate(batch.produce.values):
        offsets = known.offsets_of.get(value, ())
        if len(offsets) == 1:
            return min(offsets) - index
    return None
