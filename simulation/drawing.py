"""The topics and broker settings of a seed, drawn before the run begins.

Pure. Must never change the order of its draws: each seed would become another run.
"""

from typing import NamedTuple

from holdfast.broker.settings import BrokerSettings
from holdfast.identifiers import BrokerId
from holdfast.lane.pending import GroupSettings
from holdfast.log.rewriter import RewriteSettings
from simulation.clients.coordination import RULES, Draw, Workload


class TopicPlan(NamedTuple):
    """One topic of a seed."""

    name: str
    partitions: int
    retention: bool
    is_doomed: bool

    def partitions_of(self) -> list[str]:
        return [f"{self.name}/{number}" for number in range(self.partitions)]


def draw_topics(draw: Draw, workload: Workload, doomed: float) -> list[TopicPlan]:
    """Draw the topics of a seed."""
    if workload is not Workload.RECORDS:
        counts = {"input": 2 + int(draw() * 2), "output": 2}
        return [
            TopicPlan(name, count, retention=False, is_doomed=False)
            for name, count in counts.items()
        ]
    return [
        TopicPlan(
            f"topic-{number}",
            1 + int(draw() * 2),
            retention=draw() < 0.3,
            is_doomed=number > 0 and draw() < doomed,
        )
        for number in range(1 + int(draw() * 2))
    ]


def draw_settings(draw: Draw, lanes: int) -> BrokerSettings:
    """Draw the settings that all brokers of a seed have."""
    linger_ms = (0, 0, 5, 50)[int(draw() * 4)]
    claim_valid_ms = (300, 1000, 3000)[int(draw() * 3)]
    rewrite_entries = 4 + int(draw() * 12)
    return BrokerSettings(
        broker_id=BrokerId(0),
        host="127.0.0.1",
        port=9092,
        lanes=lanes,
        auto_create_topics_enable=False,
        group=GroupSettings(
            linger_ms=linger_ms,
            claim_valid_ms=claim_valid_ms,
        ),
        groups=RULES,
        rewrite=RewriteSettings(
            entries_max=rewrite_entries,
            # Derived from an earlier draw, so that the rest of old seeds stays unchanged.
            step_entries_max=(1, 2, 1_000)[rewrite_entries % 3],
            segment_bytes_max=(400, 2000, 100_000)[int(draw() * 3)],
            delete_delay_s=(0.0, 0.2, 2.0)[int(draw() * 3)],
        ),
        snapshot_every=2 + int(draw() * 10),
        tail_bytes=(0, 600, 100_000)[int(draw() * 3)],
        cache_bytes=(0, 600, 100_000)[int(draw() * 3)],
        maintenance_interval_s=0.7,
        retention_check_interval_ms=1_500,
    )
