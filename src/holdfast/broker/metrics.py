"""A broker's Prometheus metrics, read from its state at each scrape.

Owns names and meanings. Nothing is counted twice: each number lives with the thing it counts.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.broker.broker import Broker
from holdfast.broker.groups.lane_groups import CLASSIC, CONSUMER
from holdfast.groups.classic.classic_group import ClassicGroup
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.store.counting import CountingStore
from holdfast.transactions.state import TransactionPhase

SLICE_GROUPS = 1_000
"""How many groups are counted before other requests have their turn. Counting 100,000 groups at
once takes 0.27 seconds on a busy machine."""


class GroupCounts:
    """The numbers of groups and members."""

    def __init__(self) -> None:
        self.states: Counter[tuple[str, str]] = Counter()
        """The number of groups by protocol and state."""
        self.members = Counter({CLASSIC: 0, CONSUMER: 0})

    def add(self, group: ClassicGroup | ConsumerGroup) -> None:
        if isinstance(group, ClassicGroup):
            self.states[CLASSIC, group.phase.value] += 1
            self.members[CLASSIC] += len(group.members())
            return
        self.states[CONSUMER, group.phase.value] += 1
        for member in group.durable.members.values():
            self.members[CONSUMER if member.classic is None else CLASSIC] += 1


class BrokerCollector(Collector):
    """The metrics of one broker."""

    def __init__(self, broker: Broker, store: CountingStore) -> None:
        self._broker = broker
        self._store = store
        self._counts = GroupCounts()

    async def count_groups(self) -> None:
        """Count the groups for the next `collect`, a slice at a time between requests."""
        counts = GroupCounts()
        for lane in list(self._broker.groups.values()):
            here = [*lane.coordinator.classic_groups(), *lane.coordinator.consumer_groups()]
            for start in range(0, len(here), SLICE_GROUPS):
                for group in here[start : start + SLICE_GROUPS]:
                    counts.add(group)
                await asyncio.sleep(0)
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        yield from self._store_metrics()
        yield from self._lane_metrics()
        yield from self._peer_metrics()
        yield from self._partition_metrics()
        yield from self._spool_metrics()
        yield from self._group_metrics()
        yield from self._transaction_metrics()
        memory = GaugeMetricFamily(
            "holdfast_memory_bytes", "Record bytes held in memory", labels=["part"]
        )
        memory.add_metric(["tail"], self._broker.tail.bytes)
        memory.add_metric(["cache"], self._broker.cache.bytes)
        yield memory
        reads = CounterMetricFamily(
            "holdfast_cache_reads", "Reads of older data by where they were served", labels=["from"]
        )
        reads.add_metric(["cache"], self._broker.cache.hits)
        reads.add_metric(["store"], self._broker.cache.misses)
        yield reads
        yield GaugeMetricFamily(
            "holdfast_fetch_sessions",
            "Incremental fetch sessions",
            value=len(self._broker.fetch_sessions),
        )

    def _peer_metrics(self) -> Iterator[Metric]:
        unreachable = GaugeMetricFamily(
            "holdfast_unreachable_broker",
            "1 if another broker is alive but this one cannot reach it at its address",
            labels=["broker", "address"],
        )
        membership = self._broker.membership
        if membership is not None:
            for broker_id, address in membership.neighbours.reachability.unreachable().items():
                unreachable.add_metric([str(broker_id), str(address)], 1)
        yield unreachable

    def _store_metrics(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "holdfast_store_requests", "Requests to the store", labels=["operation"]
        )
        for operation, count in self._store.requests.items():
            requests.add_metric([operation], count)
        yield requests
        failures = CounterMetricFamily(
            "holdfast_store_failures",
            "Requests that the store did not answer, or whose outcome is unknown",
            labels=["operation"],
        )
        for operation, count in self._store.failures.items():
            failures.add_metric([operation], count)
        yield failures
        moved = CounterMetricFamily(
            "holdfast_store_bytes", "Bytes written and read", labels=["direction"]
        )
        moved.add_metric(["written"], self._store.bytes_written)
        moved.add_metric(["read"], self._store.bytes_read)
        yield moved

    def _lane_metrics(self) -> Iterator[Metric]:
        number = GaugeMetricFamily(
            "holdfast_lane_number", "Number of the next object", labels=["lane"]
        )
        epoch = GaugeMetricFamily(
            "holdfast_lane_leader_epoch", "Leader epoch of the lane", labels=["lane"]
        )
        pending = GaugeMetricFamily(
            "holdfast_lane_pending_bytes", "Bytes that wait for the store", labels=["lane"]
        )
        published = CounterMetricFamily(
            "holdfast_lane_published_bytes", "Record bytes made durable", labels=["lane"]
        )
        entries = CounterMetricFamily(
            "holdfast_lane_published_entries", "Objects made durable", labels=["lane"]
        )
        for lane_id, lane in sorted(self._broker.lanes.items()):
            label = [str(lane_id)]
            number.add_metric(label, lane.cursor.next_number)
            epoch.add_metric(label, lane.leader_epoch)
            pending.add_metric(label, lane.pending_bytes)
            published.add_metric(label, lane.bytes_published)
            entries.add_metric(label, lane.entries_published)
        yield from (number, epoch, pending, published, entries)

    def _partition_metrics(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        high = GaugeMetricFamily("holdfast_high_watermark", "Next offset to read", labels=labels)
        stable = GaugeMetricFamily(
            "holdfast_last_stable_offset", "Next offset for committed reads", labels=labels
        )
        start = GaugeMetricFamily("holdfast_log_start_offset", "First offset", labels=labels)
        size = GaugeMetricFamily("holdfast_partition_bytes", "Record bytes stored", labels=labels)
        offline = GaugeMetricFamily(
            "holdfast_partition_offline",
            "1 if the newest records may be on a disk that is not here",
            labels=labels,
        )
        for topic in list(self._broker.state.topics.values()):
            for index in range(topic.partitions):
                led = self._broker.led(topic, index)
                if led is None:
                    continue
                log = led.lane.log_of(led.partition)
                label = [topic.name, str(index)]
                if led.lane.is_offline(led.partition):
                    offline.add_metric(label, 1)
                    continue
                high.add_metric(label, log.high_watermark)
                stable.add_metric(label, log.last_stable_offset)
                start.add_metric(label, log.log_start_offset)
                size.add_metric(label, log.stored_bytes)
        yield from (high, stable, start, size, offline)

    def _spool_metrics(self) -> Iterator[Metric]:
        by_lane = ["lane"]
        unflushed = GaugeMetricFamily(
            "holdfast_spool_unflushed_bytes", "Bytes that are only in the spool", labels=by_lane
        )
        oldest = GaugeMetricFamily(
            "holdfast_spool_oldest_seconds",
            "Age of the oldest record that is only in the spool",
            labels=by_lane,
        )
        frames = CounterMetricFamily(
            "holdfast_spool_frames", "Frames written to the spool", labels=by_lane
        )
        fsyncs = CounterMetricFamily(
            "holdfast_spool_fsyncs", "Calls of fsync on the spool", labels=by_lane
        )
        failures = CounterMetricFamily(
            "holdfast_spool_failures", "Writes to the spool that failed", labels=by_lane
        )
        bypassed = CounterMetricFamily(
            "holdfast_spool_bypassed_batches",
            "Record batches of topics with holdfast.ack=disk that went straight to the store",
            labels=["lane", "reason"],
        )
        for lane_id, lane in sorted(self._broker.lanes.items()):
            label = [str(lane_id)]
            for reason, count in list(lane.bypassed.items()):
                bypassed.add_metric([*label, reason], count)
            queue = lane.queue
            if queue is None:
                continue
            since = queue.oldest_at
            age_s = self._broker.environment.monotonic() - since if since is not None else 0.0
            unflushed.add_metric(label, queue.unflushed_bytes)
            oldest.add_metric(label, age_s)
            frames.add_metric(label, queue.frames)
            fsyncs.add_metric(label, queue.journal.writes)
            failures.add_metric(label, queue.failures)
        yield from (unflushed, oldest, frames, fsyncs, failures, bypassed)
        totals = self._broker.disk_acks.totals
        now = sum(lane.records_by_disk for lane in list(self._broker.lanes.values()))
        yield CounterMetricFamily(
            "holdfast_spool_acked_records",
            "Records that were acknowledged before they were in the store",
            value=totals["acked_records"] + now,
        )
        yield CounterMetricFamily(
            "holdfast_spool_replayed_batches",
            "Record batches that were replayed from a spool",
            value=totals["record_batches"],
        )
        yield CounterMetricFamily(
            "holdfast_spool_replayed_bytes",
            "Bytes that were replayed from a spool",
            value=totals["bytes"],
        )
        yield CounterMetricFamily(
            "holdfast_spool_torn_bytes",
            "Bytes at the end of spool files that were ignored",
            value=totals["torn_bytes"],
        )
        yield CounterMetricFamily(
            "holdfast_missing_offsets",
            "Offsets that partitions continued without",
            value=totals["missing_offsets"],
        )

    def _group_metrics(self) -> Iterator[Metric]:
        groups = GaugeMetricFamily(
            "holdfast_groups", "Groups by protocol and state", labels=["protocol", "state"]
        )
        members = GaugeMetricFamily(
            "holdfast_group_members",
            "Members by protocol",
            labels=["protocol"],
        )
        rebalances = CounterMetricFamily(
            "holdfast_group_rebalances",
            "Generations and target assignments made, by the protocol of the group",
            labels=["protocol"],
        )
        made = Counter({CLASSIC: 0, CONSUMER: 0})
        refused = 0
        for lane in list(self._broker.groups.values()):
            made.update(lane.rebalances)
            refused += lane.coordinator.refused_commits_in_all
        for (protocol, state), count in self._counts.states.items():
            groups.add_metric([protocol, state], count)
        for protocol in (CLASSIC, CONSUMER):
            members.add_metric([protocol], self._counts.members[protocol])
            rebalances.add_metric([protocol], made[protocol])
        yield from (groups, members, rebalances)
        yield CounterMetricFamily(
            "holdfast_refused_commits",
            "Offset commits refused because another member of the group owned the partition",
            value=refused,
        )

    def _transaction_metrics(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "holdfast_transactions_ended", "Transactions by how they ended", labels=["result"]
        )
        results: Counter[str] = Counter()
        started_ms: list[int] = []
        unwritten = 0
        for lane in list(self._broker.transactions.values()):
            results.update(lane.ended)
            started_ms += [
                t.started_ms for t in list(lane.all()) if t.phase is TransactionPhase.ONGOING
            ]
            unwritten += len(lane.unwritten)
        for result, count in results.items():
            ended.add_metric([result], count)
        yield ended
        yield GaugeMetricFamily(
            "holdfast_transactions_open", "Transactions that are open", value=len(started_ms)
        )
        yield GaugeMetricFamily(
            "holdfast_transactions_unwritten_markers",
            "Ended transactions whose markers are not yet written to all partitions",
            value=unwritten,
        )
        now_ms = self._broker.environment.now_ms()
        yield GaugeMetricFamily(
            "holdfast_transaction_oldest_open_seconds",
            "How long the oldest open transaction has been open",
            value=max(0, now_ms - min(started_ms, default=now_ms)) / 1000,
        )
