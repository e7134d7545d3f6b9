"""What the clients of the demo saw, held together: lost, doubled, out of order, rewound.

Pure, but for the printing. It shares no code with Holdfast.
"""

import dataclasses
from collections import Counter
from itertools import pairwise

from examples.demo_clients import Ack, Produced, Seen, Watched

ANSWERS_UNDER_WAY_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The figures of one run."""

    acked: int
    read_back: int
    failed: int
    lost: int
    doubled: int
    out_of_order: int
    different_live: int
    watermarks_asked: int
    rewound: int
    without_service_s: list[float]

    @property
    def is_clean(self) -> bool:
        wrong = self.failed + self.lost + self.doubled + self.out_of_order
        wrong += self.different_live + self.rewound
        return self.acked > 0 and self.watermarks_asked > 0 and wrong == 0


def judge(
    produced: Produced,
    cold: list[Seen],
    live: list[Seen],
    watched: Watched,
    killed_at: list[float],
) -> Verdict:
    at = {(record.partition, record.offset): record.sequence for record in cold}
    copies = Counter(record.sequence for record in cold)
    return Verdict(
        acked=len(produced.acks),
        read_back=len(cold),
        failed=produced.sent - len(produced.acks),
        lost=sum(at.get((ack.partition, ack.offset)) != ack.sequence for ack in produced.acks),
        doubled=sum(count - 1 for count in copies.values()),
        out_of_order=_out_of_order(cold),
        different_live=len(set(cold) ^ set(live)) + len(live) - len(set(live)),
        watermarks_asked=watched.asked,
        rewound=len(watched.rewound),
        without_service_s=[_longest_gap(produced.acks, at) for at in killed_at],
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
    """The longest time without an acknowledgement around a kill.

    Answers that were on their way still arrive a moment after it.
    """
    times = sorted(ack.at for ack in acks)
    return max(
        (
            after - before
            for before, after in pairwise(times)
            if after >= killed_at and before <= killed_at + ANSWERS_UNDER_WAY_S
        ),
        default=0.0,
    )


def print_table(verdict: Verdict) -> None:
    gaps = ", ".join(f"{gap:.2f} s" for gap in verdict.without_service_s)
    rows = [
        ("acknowledged", verdict.acked),
        ("read back by a new consumer", verdict.read_back),
        ("sent, never acknowledged", verdict.failed),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("out of order", verdict.out_of_order),
        ("different for the reader that was there all the time", verdict.different_live),
        (f"high watermark went back, in {verdict.watermarks_asked} questions", verdict.rewound),
        ("time without an acknowledgement at each kill", gaps),
    ]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"  {name.ljust(width)}  {value}")
    print()
