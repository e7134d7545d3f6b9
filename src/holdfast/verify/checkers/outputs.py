"""Checks that each committed input of consume-transform-produce has exactly one output.

Pure. An output names the offset of its input. Only outputs that read_committed readers saw count.
One function for each anomaly.
"""

from holdfast.verify.checkers.decided import Registers
from holdfast.verify.checkers.knowledge import Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import READ_COMMITTED, Fetch, Fetched, Partition, Value

_Source = tuple[Partition, int]


def _outputs(knowledge: Knowledge) -> dict[_Source, dict[Value, int]]:
    """Return the outputs of each input that read_committed readers saw, and when they first did."""
    sources = knowledge.history.sources
    found: dict[_Source, dict[Value, int]] = {}
    for known in knowledge.partitions.values() if sources else ():
        for call in known.queries:
            asked, told = call.operation, call.result
            if not isinstance(asked, Fetch) or not isinstance(told, Fetched):
                continue
            if asked.isolation != READ_COMMITTED:
                continue
            for _, value in told.records:
                if value in sources:
                    found.setdefault(sources[value], {}).setdefault(value, call.completed)
    return found


def output_doubled(knowledge: Knowledge) -> list[Violation]:
    """Find inputs that have two committed outputs."""
    return [
        Violation(
            Anomaly.OUTPUT_DOUBLED,
            f"{partition} at {offset} has the outputs {sorted(values)}",
            tuple(sorted(values.values())),
        )
        for (partition, offset), values in _outputs(knowledge).items()
        if len(values) > 1
    ]


def output_lost(knowledge: Knowledge) -> list[Violation]:
    """Find inputs below their group's committed offset that have no committed output."""
    history = knowledge.history
    if not history.is_settled or not history.sources:
        return []
    seen = _outputs(knowledge)
    inputs = {partition for partition, _ in history.sources.values()}
    found: list[Violation] = []
    for (group, partition), counted in Registers(history).counted.items():
        if partition not in inputs:
            continue
        missing = [
            offset
            for offset in sorted(knowledge.of(partition).values_at)
            if offset < counted[-1].offset and (partition, offset) not in seen
        ]
        if missing:
            found.append(
                Violation(
                    Anomaly.OUTPUT_LOST,
                    f"{group}: {partition} is committed up to {counted[-1].offset}, but there is "
                    f"no output of {missing[:10]}",
                    (counted[-1].event,),
                )
            )
    return found
