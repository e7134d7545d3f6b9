"""Prometheus metrics of a sink, read from its last status at each scrape.

Owns names and meanings. Must never count anything itself.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.sink.status import SinkStatus

COUNTERS = (
    (
        "holdfast_sink_landed_records",
        "Records in the objects landed",
        "records_landed",
    ),
    ("holdfast_sink_landed_bytes", "Bytes of those objects", "bytes_landed"),
    ("holdfast_sink_landed_objects", "Objects that this member landed", "objects_landed"),
    ("holdfast_sink_found_objects", "Objects of other members that were followed", "objects_found"),
    ("holdfast_sink_fetched_bytes", "Bytes of record batches fetched", "bytes_fetched"),
    ("holdfast_sink_bad_records", "Records that could not be landed as they are", "bad_records"),
    (
        "holdfast_sink_unreadable_batches",
        "Record batches that cannot be read, each set aside as one bad record",
        "unreadable_batches",
    ),
    (
        "holdfast_sink_abandoned_batches",
        "Batches that were dropped because another member has their records",
        "batches_abandoned",
    ),
    ("holdfast_sink_commits", "Commits of offsets", "commits"),
    (
        "holdfast_sink_withheld_commits",
        "Commits that were not sent, because the partition was lost",
        "commits_withheld",
    ),
    ("holdfast_sink_rebalances", "Changes of the assignment", "rebalances"),
)
"""Counters of a member: name, meaning, and the field of the status."""
PARTITION_GAUGES = (
    ("holdfast_sink_position", "The next offset to fetch", "position"),
    ("holdfast_sink_landed_offset", "The end of what has landed", "landed"),
    ("holdfast_sink_committed_offset", "What the group has committed", "committed"),
    ("holdfast_sink_log_end_offset", "The end of the log", "log_end"),
    ("holdfast_sink_lag", "Records of the log that have not landed", "lag"),
    ("holdfast_sink_open_records", "Records in the open batch", "open_records"),
    ("holdfast_sink_open_bytes", "Bytes of the open batch", "open_bytes"),
    ("holdfast_sink_uploads", "Sealed batches that have not landed", "uploads"),
)
"""Gauges of each owned partition: name, meaning, and the field of its status. A value that is not
known yet is left out."""
STATES = ("joining", "stable", "reconciling", "fenced", "stopping")


class SinkCollector(Collector):
    """The metrics of one sink; none before its first status."""

    def __init__(self, status: Callable[[], SinkStatus | None], *, memory_bytes: int) -> None:
        self._status = status
        self._memory_bytes = memory_bytes

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        if status is None:
            return
        for name, meaning, field in COUNTERS:
            yield CounterMetricFamily(name, meaning, value=getattr(status, field))
        yield from self._memory(status)
        yield from self._health(status)
        for name, meaning, field in PARTITION_GAUGES:
            gauge = GaugeMetricFamily(name, meaning, labels=["topic", "partition"])
            for where, partition in sorted(status.partitions.items()):
                value = getattr(partition, field)
                if value is not None:
                    gauge.add_metric([where.topic, str(where.partition)], value)
            yield gauge

    def _memory(self, status: SinkStatus) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "holdfast_sink_held_bytes", "Memory of all that is on the way", value=status.held_bytes
        )
        peak = GaugeMetricFamily(
            "holdfast_sink_held_bytes_peak", "The most that was held", value=status.held_bytes_peak
        )
        limit = GaugeMetricFamily(
            "holdfast_sink_memory_limit_bytes", "What may be held", value=self._memory_bytes
        )
        paused = GaugeMetricFamily(
            "holdfast_sink_fetch_paused",
            "1 while fetching pauses because of it",
            value=int(status.fetch_paused),
        )
        yield from (held, peak, limit, paused)

    def _health(self, status: SinkStatus) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "holdfast_sink_healthy", "0 while something is wrong", value=int(status.is_healthy)
        )
        yield GaugeMetricFamily(
            "holdfast_sink_store_problem_seconds",
            "For how long the store has not taken objects",
            value=status.store_problem_seconds,
        )
        yield GaugeMetricFamily(
            "holdfast_sink_partitions", "Partitions owned", value=len(status.partitions)
        )
        yield GaugeMetricFamily(
            "holdfast_sink_member_epoch", "Of the group's member", value=status.epoch
        )
        state = GaugeMetricFamily(
            "holdfast_sink_state", "1 for the state that the member is in", labels=["state"]
        )
        for name in STATES:
            state.add_metric([name], int(status.state == name))
        yield state
