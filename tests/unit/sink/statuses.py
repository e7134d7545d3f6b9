"""A status of a sink, with everything in it that a test does not name."""

from typing import Any

from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.status import PartitionStatus, SinkStatus


def partition(**changes: Any) -> PartitionStatus:
    usual: dict[str, Any] = {
        "position": 100,
        "landed": 80,
        "committed": 70,
        "log_end": 130,
        "open_records": 20,
        "open_bytes": 2048,
        "uploads": 1,
    }
    return PartitionStatus(**{**usual, **changes})


def status(**changes: Any) -> SinkStatus:
    usual: dict[str, Any] = {
        "state": "stable",
        "member_id": "m-1",
        "epoch": 3,
        "partitions": {TopicPartition("orders", 0): partition()},
        "records_landed": 1_080,
        "bytes_fetched": 5_000_000,
        "bytes_landed": 1_000_000,
        "objects_landed": 2,
        "held_bytes": 64 * 1024 * 1024,
        "last_landed": "orders+0+00000000000000000000.jsonl.zst",
    }
    return SinkStatus(**{**usual, **changes})
