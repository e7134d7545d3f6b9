"""DeleteRecords: move the log start offset of partitions forward.

The response names the new low watermark once it is in the store, so that no later response can name
a lower one.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.context import RequestContext
from holdfast.broker.topic_creation import durable, lane_refusal, refusal_of
from holdfast.cluster.configs import effective, list_items
from holdfast.errors import HoldfastError
from holdfast.identifiers import LaneId
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import LogStartMoved
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API = Api(key=ApiKey.DELETE_RECORDS, versions=range(3))

FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER
HIGH_WATERMARK = -1
OWN_WRITE_MS = 5_000
"""The shortest wait for our own write. In Kafka the timeout is for other replicas, and the leader's
own write is always waited for. Ours is the put into the store."""
NO_LOW_WATERMARK = -1


class _Moved(NamedTuple):
    led: Led
    offset: int


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    del context
    wait_ms = max(request.timeout_ms, OWN_WRITE_MS)
    deadline = broker.environment.monotonic() + wait_ms / 1000
    failed = await _prove(broker, _lanes(broker, request), deadline)
    decided = [
        (topic.name, p.partition_index, _decide(broker, topic.name, p.partition_index, p.offset))
        for topic in request.topics
        for p in topic.partitions
    ]
    for i, (name, partition, moved) in enumerate(decided):
        if isinstance(moved, _Moved):
            refused = failed.get(moved.led.lane.lane)
            if refused is not None:
                decided[i] = (name, partition, refused)
            elif moved.offset > moved.led.lane.log_of(moved.led.partition).start_decided:
                moved.led.lane.add(LogStartMoved(moved.led.partition, moved.offset))
    lanes = {
        moved.led.lane.lane: moved.led.lane for *_, moved in decided if isinstance(moved, _Moved)
    }
    failed = await _settle(broker, lanes.values(), deadline)
    results: dict[str, DeleteRecordsTopicResult] = {}
    for name, partition, moved in decided:
        topic = results.setdefault(name, DeleteRecordsTopicResult(name=name))
        topic.partitions.append(_result(partition, moved, failed))
    return DeleteRecordsResponse(topics=list(results.values()))


def _lanes(broker: Broker, request: DeleteRecordsRequest) -> Iterable[DataLane]:
    found: dict[LaneId, DataLane] = {}
    for topic in request.topics:
        known = broker.state.topic_named(topic.name)
        for partition in topic.partitions:
            led = broker.led(known, partition.partition_index)
            if led is not None:
                found[led.lane.lane] = led.lane
    return found.values()


async def _prove(
    broker: Broker, lanes: Iterable[DataLane], deadline: float
) -> dict[LaneId, Refused]:
    """Prove the claims of these lanes. Return the refusals of those that failed.

    A watermark may be reported, or compared with, only under a proved claim.
    """
    failed: dict[LaneId, Refused] = {}

    async def prove(lane: DataLane) -> None:
        wait_s = max(0.0, deadline - broker.environment.monotonic())
        try:
            async with asyncio.timeout(None if lane.is_valid() else wait_s):
                await lane.validate()
        except TimeoutError:
            failed[lane.lane] = Refused(
                ErrorCode.REQUEST_TIMED_OUT, f"lane {lane.lane}: the store did not answer in time"
            )
        except HoldfastError as error:
            failed[lane.lane] = refusal_of(error, fenced=FENCED)

    await asyncio.gather(*(prove(lane) for lane in lanes))
    return failed


def _decide(broker: Broker, name: str, partition: int, offset: int) -> _Moved | Refused:
    topic = broker.state.topic_named(name)
    if topic is None or topic.lane_of(partition) is None:
        return Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name[:249]}-{partition}"
        )
    led = broker.led(topic, partition)
    if led is None:
        return Refused(FENCED, f"{name}-{partition}: this broker does not lead it")
    refused = lane_refusal(led.lane, fenced=FENCED)
    if refused is not None:
        return refused
    if led.lane.is_offline(led.partition):
        return Refused(
            FENCED,
            f"{name}-{partition}: it is offline: its newest records are on the disk of another"
            " broker; start that broker",
        )
    policy = list_items(effective(topic.configs, "cleanup.policy"))
    if "compact" in policy and "delete" not in policy:
        return Refused(
            ErrorCode.POLICY_VIOLATION,
            f"{name}-{partition}: records cannot be deleted with cleanup.policy={','.join(policy)}",
        )
    high_watermark = led.lane.log_of(led.partition).high_watermark
    if offset == HIGH_WATERMARK:
        offset = high_watermark
    if not 0 <= offset <= high_watermark:
        return Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{name}-{partition}: offset {offset} is not between 0 and {high_watermark}",
        )
    return _Moved(led, offset)


async def _settle(
    broker: Broker, lanes: Iterable[DataLane], deadline: float
) -> dict[LaneId, Refused]:
    wait_ms = (deadline - broker.environment.monotonic()) * 1000
    waited = [(lane.lane, durable(lane, wait_ms, fenced=FENCED)) for lane in lanes]
    outcomes = await asyncio.gather(*(wait for _, wait in waited))
    return {
        lane: refused
        for (lane, _), refused in zip(waited, outcomes, strict=True)
        if refused is not None
    }


def _result(
    partition: int, moved: _Moved | Refused, failed: dict[LaneId, Refused]
) -> DeleteRecordsPartitionResult:
    refused = moved if isinstance(moved, Refused) else failed.get(moved.led.lane.lane)
    if refused is not None or isinstance(moved, Refused):
        return DeleteRecordsPartitionResult(
            partition_index=partition,
            low_watermark=NO_LOW_WATERMARK,
            error_code=refused.error if refused is not None else ErrorCode.NONE,
        )
    log = moved.led.lane.log_of(moved.led.partition)
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=max(log.log_start_offset, moved.offset)
    )
