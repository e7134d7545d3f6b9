"""Topics that are created because a client asked about them, and the wait for a decision.

Owns how long a request waits for the store, and its error if that fails. Must never cancel a lane's
barrier: other requests wait for the same object.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.cluster.facts import TopicCreated
from holdfast.cluster.topics import decide_create
from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import CONTROL_LANE
from holdfast.lane.lane import Lane
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = logging.getLogger("holdfast.broker")

CREATE_TOPICS_VERSION = 7
WAIT_MS_DEFAULT = 30_000
"""The wait of requests that carry no timeout: as long as Kafka's clients wait for a response."""
AUTO_CREATE_WAIT_MS = 5_000
"""The wait for automatic creation. It is short, because a client asks for metadata again."""


async def auto_create(broker: Broker, names: Iterable[str]) -> None:
    """Create the missing topics that have a legal name, and wait until they can be used.

    A topic that cannot be created, for whatever reason, is simply not there afterwards.
    """
    if broker.view.lane is None:
        missing = [name for name in names if broker.state.topic_named(name) is None]
        if missing:
            await _create_elsewhere(broker, missing)
        return
    if controller_refusal(broker) is not None:
        return
    for name in names:
        if name not in broker.state.names:
            decided = decide_create(
                broker.state,
                topic_id=broker.environment.new_uuid(),
                name=name,
                partitions=broker.settings.num_partitions,
                replication_factor=1,
                configs={},
            )
            if isinstance(decided, TopicCreated):
                broker.control.add(decided)
    await control_durable(broker, AUTO_CREATE_WAIT_MS)


async def _create_elsewhere(broker: Broker, names: list[str]) -> None:
    """Have the controller create the missing topics, and read its changes."""
    try:
        await broker.look()
        missing = [name for name in names if name not in broker.state.names]
        if missing and broker.view.lane is None:
            await broker.ask_leader(
                CONTROL_LANE,
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(
                            name=name,
                            num_partitions=broker.settings.num_partitions,
                            replication_factor=1,
                        )
                        for name in missing
                    ],
                    timeout_ms=AUTO_CREATE_WAIT_MS,
                ),
                CreateTopicsResponse,
                version=CREATE_TOPICS_VERSION,
                timeout_s=AUTO_CREATE_WAIT_MS / 1000,
            )
            await broker.look()
    except HoldfastError as error:
        log.warning("topics_not_created error=%s", error)


def controller_refusal(broker: Broker) -> Refused | None:
    """Return the refusal if nothing may be decided about the cluster here, otherwise None."""
    lane = broker.view.lane
    if lane is None:
        return Refused(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    return lane_refusal(lane, fenced=ErrorCode.NOT_CONTROLLER)


async def hear_of_changes(broker: Broker) -> None:
    """Learn the controller's changes, perhaps made just now and through another broker.

    While the store is unreachable, go on with the known state.
    """
    await broker.view.look_if_possible()


async def hear_of_partitions(broker: Broker, named: Iterable[tuple[str, int]]) -> None:
    """Learn the controller's changes if a client names partitions that this broker does not know.

    Another broker may have told the client of them a moment ago. librdkafka's consumers take
    UNKNOWN_TOPIC_OR_PARTITION for final when they ask where to begin.
    """
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_new = (
        broker.not_led(broker.state.topic_named(name), index) == unknown for name, index in named
    )
    if broker.view.lane is None and any(is_new):
        await hear_of_changes(broker)


async def control_durable(broker: Broker, timeout_ms: int) -> Refused | None:
    """Wait until everything decided about the cluster is durable, or return the refusal."""
    lane = broker.view.lane
    if lane is None:
        return controller_refusal(broker)
    return await durable(lane, timeout_ms, fenced=ErrorCode.NOT_CONTROLLER)


async def durable(lane: Lane[Any, Any], timeout_ms: float, *, fenced: ErrorCode) -> Refused | None:
    """Wait until everything decided on a lane is durable. Return the refusal if that failed.

    After REQUEST_TIMED_OUT it may still become durable, as with Kafka.
    """
    barrier = lane.barrier()
    if barrier is None:
        return None
    await asyncio.wait({barrier}, timeout=max(0.0, timeout_ms / 1000))
    if not barrier.done():
        return Refused(
            ErrorCode.REQUEST_TIMED_OUT,
            f"lane {lane.lane}: the store did not confirm within {timeout_ms:.0f} ms",
        )
    error = barrier.exception()
    return None if error is None else refusal_of(error, fenced=fenced)


def lane_refusal(lane: Lane[Any, Any], *, fenced: ErrorCode) -> Refused | None:
    """Return the refusal if nothing may be decided on a lane any more, or None if it is open."""
    if lane.is_open:
        return None
    ended = lane.failure or Fenced(f"lane {lane.lane}: this broker is stopping")
    return refusal_of(ended, fenced=fenced)


def refusal_of(error: BaseException, *, fenced: ErrorCode) -> Refused:
    """Return the refusal for an error of a lane, named `fenced` if another broker has the lane."""
    if isinstance(error, Fenced):
        return Refused(fenced, str(error))
    if isinstance(error, HoldfastError):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    raise error
