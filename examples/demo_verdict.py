"""What the demo saw, held together: lost, hidden, rewound, doubled, and all that should not be.

Pure, but for the printing. It shares no code with Holdfast.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from examples.demo_clients import Ack, Produced, ReadBack, Seen, Watched, order_of

ANSWERS_UNDER_WAY_S = 0.5
Position = dict[int, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """What clients saw of the log."""

    produced: Produced
    cold: list[Seen]
    """The whole topic, as a consumer reads it that knows nothing of what came before."""
    live: list[Seen]
    watermarks: Watched
    fetched: ReadBack
    killed_at: list[float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeSeen:
    """What the query left."""

    ids: Counter[str]
    repeats: int
    """Rows that dedup held back, as the ledger counts them."""
    logs: Sequence[Sequence[Position]]
    """Positions in the order in which they were written: the ledger's, and Spark's own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The figures of one run."""

    acked: int
    ids: int
    landed: int
    repeats: int
    lost: int
    hidden: int
    rewound: int
    doubled: int
    others: dict[str, int]
    """What else must be nothing, by what it is."""
    fetches: int
    watermarks: int
    positions: int
    without_service_s: list[float]

    @property
    def is_clean(self) -> bool:
        wrong = self.lost + self.hidden + self.rewound + self.doubled + sum(self.others.values())
        looked = min(self.acked, self.landed, self.fetches, self.watermarks, self.positions)
        return looked > 0 and wrong == 0


def judge(log: LogSeen, lake: LakeSeen) -> Verdict:
    acks = log.produced.acks
    at = {(record.partition, record.offset): record.sequence for record in log.cold}
    copies = Counter(record.sequence for record in log.cold)
    ids = {_id(ack.sequence) for ack in acks}
    in_log = {_id(record.sequence) for record in log.cold}
    lost = sum(at.get((ack.partition, ack.offset)) != ack.sequence for ack in acks)
    return Verdict(
        acked=len(acks),
        ids=len(ids),
        landed=lake.ids.total(),
        repeats=lake.repeats,
        lost=lost + len(ids - set(lake.ids)),
        hidden=len(log.fetched.hidden),
        rewound=len(log.watermarks.rewound) + sum(_went_back(rows) for rows in lake.logs),
        doubled=sum(n - 1 for n in copies.values()) + sum(n - 1 for n in lake.ids.values()),
        others={
            "sent and never acknowledged": log.produced.sent - len(acks),
            "out of order in the log": _out_of_order(log.cold),
            "different for the reader that was there all the time": _differences(log),
            "landed and not in the log": len(set(lake.ids) - in_log),
        },
        fetches=log.fetched.asked,
        watermarks=log.watermarks.asked,
        positions=sum(len(rows) for rows in lake.logs),
        without_service_s=[_longest_gap(acks, killed_at) for killed_at in log.killed_at],
    )


def _id(number: int) -> str:
    return f"order-{order_of(number)}"


def _differences(log: LogSeen) -> int:
    return len(set(log.cold) ^ set(log.live)) + len(log.live) - len(set(log.live))


def _went_back(positions: Sequence[Position]) -> int:
    """How often a partition stands before where it stood, or is no longer there."""
    return sum(
        after.get(partition, -1) < offset
        for before, after in pairwise(positions)
        for partition, offset in before.items()
    )


def _out_of_order(records: list[Seen]) -> int:
    """Neighbours in a partition whose numbers do not rise."""
    wrong = 0
    last: dict[int, int] = {}
    for record in records:
        wrong += record.sequence <= last.get(record.partition, -1)
        last[record.partition] = record.sequence
    return wrong


def _longest_gap(acks: list[Ack], killed_at: float) -> float:
    """The longest time without an acknowledgement around a kill, of the partition that waited most.

    Other brokers go on with their partitions. Answers that were on their way still arrive a moment
    after the kill.
    """
    times: dict[int, list[float]] = {}
    for ack in acks:
        times.setdefault(ack.partition, []).append(ack.at)
    return max(
        (
            after - before
            for of_one in times.values()
            for before, after in pairwise(sorted(of_one))
            if after >= killed_at and before <= killed_at + ANSWERS_UNDER_WAY_S
        ),
        default=0.0,
    )


def print_table(verdict: Verdict, *, landed_again_s: float) -> None:
    """The last screen: what was done, what was counted, and how it was checked."""
    gap = max(verdict.without_service_s, default=0.0)
    checks = [
        ("lost", verdict.lost, "each acknowledged record was read back, and its order landed"),
        (
            "hidden",
            verdict.hidden,
            f"{verdict.fetches:,} records were fetched right after their ack",
        ),
        (
            "rewound",
            verdict.rewound,
            f"{verdict.watermarks:,} high watermarks and {verdict.positions:,} source offsets"
            " were compared with the ones before",
        ),
        (
            "doubled",
            verdict.doubled,
            "every record of the log and every row of the lake is counted",
        ),
    ]
    others = [(what, number) for what, number in verdict.others.items() if number]
    print(f"""
  {verdict.acked:>9,}  records were acknowledged while one broker was drained, one was
             killed with kill -9, and the Spark job was killed with kill -9
  {verdict.landed:>9,}  orders landed as rows in Parquet; {verdict.repeats:,} repeats were held back
""")
    for name, number, how in checks:
        print(f"  {name:<9} {number:>7,}   {how}")
    for what, number in others:
        print(f"  WRONG     {number:>7,}   {what}")
    print(f"""
  Broker killed: the longest wait for an acknowledgement was {gap:.1f} s.
  Spark job killed: the next rows landed {landed_again_s:.1f} s later, start of Spark included.
""")
