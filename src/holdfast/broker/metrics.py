"""What a broker tells Prometheus: read from its state when it is scraped.

Owns names and meanings. Nothing is counted twice: each number lives with the thing it counts.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.broker.broker import Broker
from holdfast.store.counting import CountingStore


class BrokerCollector(Collector):
    """The metrics of one broker."""

    def __init__(self, broker: Broker, store: CountingStore) -> None:
        self._broker = broker
        self._store = store

    def collect(self) -> Iterator[Metric]:
        yield from self._store_metrics()
        yield from self._lane_metrics()
        yield from self._partition_metrics()
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
        moved = CounterMetricFamily("holdfast_store_bytes", "Bytes moved", labels=["direction"])
        moved.add_metric(["written"], self._store.bytes_written)
        moved.add_metric(["read"], self._store.bytes_read)
        yield moved

    def _lane_metrics(self) -> Iterator[Metric]:
        number = GaugeMetricFamily("holdfast_lane_number", "The next number", labels=["lane"])
        epoch = GaugeMetricFamily("holdfast_lane_leader_epoch", "Claims so far", labels=["lane"])
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
            number.add_metric(label, lane.appender.cursor.next_number)
            epoch.add_metric(label, lane.leader_epoch)
            pending.add_metric(label, lane.appender.pending_bytes)
            published.add_metric(label, lane.bytes_published)
            entries.add_metric(label, lane.entries_published)
        yield from (number, epoch, pending, published, entries)

    def _partition_metrics(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        high = GaugeMetricFamily("holdfast_high_watermark", "Next offset to read", labels=labels)
        start = GaugeMetricFamily("holdfast_log_start_offset", "First offset", labels=labels)
        size = GaugeMetricFamily("holdfast_partition_bytes", "Record bytes stored", labels=labels)
        for topic in list(self._broker.state.topics.values()):
            for index in range(topic.partitions):
                led = self._broker.led(topic, index)
                if led is None:
                    continue
                log = led.lane.log_of(led.partition)
                label = [topic.name, str(index)]
                high.add_metric(label, log.high_watermark)
                start.add_metric(label, log.log_start_offset)
                size.add_metric(label, log.stored_bytes)
        yield from (high, start, size)
