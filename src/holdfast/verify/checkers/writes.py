"""Checks the fate of each record: lost, made up, doubled, or present although it was refused.

Pure. One function for each anomaly.
"""

from holdfast.verify.checkers.knowledge import Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import Value


def lost_write(knowledge: Knowledge) -> list[Violation]:
    """Find acked records that a fresh reader with only the store does not find at their offset.

    Allowed: offsets that an unclean partition names as given up.
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        cold = knowledge.history.cold.get(partition)
        if known.is_deleted:
            continue
        present = dict(cold.records) if cold else {}
        log_start = cold.log_start if cold else 0
        for batch in known.batches:
            for call, produce, produced in batch.acks:
                missing = [
                    produced.base_offset + index
                    for index, value in enumerate(produce.values)
                    if produced.base_offset + index >= log_start
                    and present.get(produced.base_offset + index) != value
                    and not known.is_given_up(produced.base_offset + index)
                ]
                if missing:
                    found.append(
                        Violation(
                            Anomaly.LOST_WRITE,
                            f"{partition}: acked at {produced.base_offset} by {call.broker}, but "
                            f"the cold read from {log_start} has other or no records at {missing}",
                            (call.invoked, call.completed),
                        )
                    )
    return found


def two_values(knowledge: Knowledge) -> list[Violation]:
    """Find offsets for which two observations, by ack, fetch or cold read, disagree."""
    return [
        Violation(
            Anomaly.TWO_VALUES,
            f"{partition}: offset {offset} held the values {sorted(values)}",
            tuple(sorted(values.values())),
        )
        for partition, known in knowledge.partitions.items()
        for offset, values in known.values_at.items()
        if len(values) > 1
    ]


def phantom(knowledge: Knowledge) -> list[Violation]:
    """Find records that no client had sent to this partition by the time they were seen."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        sent: dict[Value, int] = {}
        for batch in known.batches:
            for value in batch.produce.values:
                sent[value] = min(sent.get(value, batch.first_invoked), batch.first_invoked)
        for offset, values in known.values_at.items():
            for value, event in values.items():
                if value not in sent or sent[value] > event:
                    found.append(
                        Violation(
                            Anomaly.PHANTOM,
                            f"{partition}: value {value} at offset {offset}, sent by nobody before",
                            (event,),
                        )
                    )
    return found


def doubled(knowledge: Knowledge) -> list[Violation]:
    """Find records at more offsets than there were batches that could have put them there.

    Offsets that were given up do not count: nobody could know whether the record was there.
    """
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        chances: dict[Value, set[tuple[int, ...]]] = {}
        for batch in known.batches:
            # One producer id and epoch may write a value only once, under whatever sequence.
            identity = batch.identity[:2] if len(batch.identity) == 3 else batch.identity
            if batch.may_have_landed:
                for value in batch.produce.values:
                    chances.setdefault(value, set()).add(identity)
        for value, seen in known.offsets_of.items():
            offsets = {offset for offset in seen if not known.is_given_up(offset)}
            allowed = len(chances.get(value, ()))
            if len(offsets) > max(allowed, 1):
                found.append(
                    Violation(
                        Anomaly.DOUBLED,
                        f"{partition}: value {value} is at the offsets {sorted(offsets)}, though "
                        f"only {allowed} batches could have landed it",
                        tuple(sorted(known.values_at[offset][value] for offset in offsets)),
                    )
                )
    return found


def ack_moved(knowledge: Knowledge) -> list[Violation]:
    """Find retried batches whose second ack names another offset than the first."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        for batch in known.batches:
            offsets = sorted({ack.produced.base_offset for ack in batch.acks})
            if len(offsets) > 1:
                found.append(
                    Violation(
                        Anomaly.ACK_MOVED,
                        f"{partition}: batch {batch.identity} was acked at the offsets {offsets}",
                        tuple(ack.call.completed for ack in batch.acks),
                    )
                )
    return found


def definite_error_appears(knowledge: Knowledge) -> list[Violation]:
    """Find records that are in the log although every attempt was refused for good."""
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        possible: set[Value] = set()
        refused: dict[Value, int] = {}
        for batch in known.batches:
            if batch.may_have_landed:
                possible.update(batch.produce.values)
            else:
                for value in batch.produce.values:
                    refused[value] = batch.tries[-1].completed
        for value, event in refused.items():
            offsets = known.offsets_of.get(value)
            if offsets and value not in possible:
                found.append(
                    Violation(
                        Anomaly.DEFINITE_ERROR_APPEARS,
                        f"{partition}: value {value} was refused, yet is at {sorted(offsets)}",
                        (event, *(known.values_at[offset][value] for offset in sorted(offsets))),
                    )
                )
    return found
