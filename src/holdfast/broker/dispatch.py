"""Dispatch: decode a request, call its handler, and encode the response.

Owns the table of served APIs and versions. Must never keep state.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.forwarding import (
    by_coordinator,
    coordinator_elsewhere,
    forwarded,
    is_for_controller,
)
from holdfast.broker.context import RequestContext
from holdfast.broker.handlers.cluster import (
    api_versions,
    describe_cluster,
    find_coordinator,
    metadata,
)
from holdfast.broker.handlers.data import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from holdfast.broker.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from holdfast.broker.handlers.peers import (
    abort_transaction,
    allocate_producer_ids,
    drain_broker,
    end_transaction_parts,
    join_transaction,
    lane_hand_over,
    peer_ping,
    place_lane,
)
from holdfast.broker.handlers.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
)
from holdfast.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from holdfast.broker.reply_memory import ReplyAccount
from holdfast.broker.settling import then
from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import Reply, Request, ServedApis
from holdfast.protocol.message import Message
from holdfast.protocol.schemas import SCHEMAS

Handler = Callable[[Broker, Any, RequestContext], Any]

HANDLERS: Mapping[ApiKey, tuple[range, Handler]] = {
    ApiKey.PRODUCE: (range(3, 14), produce.handle),
    ApiKey.FETCH: (range(4, 19), fetch.handle),
    ApiKey.LIST_OFFSETS: (range(1, 12), list_offsets.handle),
    ApiKey.METADATA: (range(14), metadata.handle),
    ApiKey.OFFSET_COMMIT: (range(2, 11), offset_commit.handle),
    ApiKey.OFFSET_FETCH: (range(1, 11), offset_fetch.handle),
    ApiKey.JOIN_GROUP: (range(10), join_group.handle),
    ApiKey.HEARTBEAT: (range(5), heartbeat.handle),
    ApiKey.LEAVE_GROUP: (range(6), leave_group.handle),
    ApiKey.SYNC_GROUP: (range(6), sync_group.handle),
    ApiKey.DESCRIBE_GROUPS: (range(7), describe_groups.handle),
    ApiKey.LIST_GROUPS: (range(6), list_groups.handle),
    ApiKey.DELETE_GROUPS: (range(3), delete_groups.handle),
    ApiKey.OFFSET_DELETE: (range(1), offset_delete.handle),
    ApiKey.API_VERSIONS: (range(5), api_versions.handle),
    ApiKey.CREATE_TOPICS: (range(2, 8), create_topics.handle),
    ApiKey.DELETE_TOPICS: (range(1, 7), delete_topics.handle),
    ApiKey.DELETE_RECORDS: (range(3), delete_records.handle),
    ApiKey.INIT_PRODUCER_ID: (range(6), init_producer_id.handle),
    ApiKey.ADD_PARTITIONS_TO_TXN: (range(6), add_partitions_to_txn.handle),
    ApiKey.ADD_OFFSETS_TO_TXN: (range(5), add_offsets_to_txn.handle),
    ApiKey.END_TXN: (range(6), end_txn.handle),
    ApiKey.WRITE_TXN_MARKERS: (range(1, 3), write_txn_markers.handle),
    ApiKey.TXN_OFFSET_COMMIT: (range(6), txn_offset_commit.handle),
    ApiKey.DESCRIBE_TRANSACTIONS: (range(1), describe_transactions.handle),
    ApiKey.LIST_TRANSACTIONS: (range(3), list_transactions.handle),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (range(2, 5), offset_for_leader_epoch.handle),
    ApiKey.DESCRIBE_CONFIGS: (range(1, 5), describe_configs.handle),
    ApiKey.ALTER_CONFIGS: (range(3), alter_configs.handle),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (range(2), incremental_alter_configs.handle),
    ApiKey.CREATE_PARTITIONS: (range(4), create_partitions.handle),
    ApiKey.FIND_COORDINATOR: (range(7), find_coordinator.handle),
    ApiKey.DESCRIBE_CLUSTER: (range(3), describe_cluster.handle),
    ApiKey.DESCRIBE_PRODUCERS: (range(1), describe_producers.handle),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (range(2), consumer_group_heartbeat.handle),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (range(2), consumer_group_describe.handle),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (range(1), describe_topic_partitions.handle),
}
BETWEEN_BROKERS: Mapping[ApiKey, tuple[range, Handler]] = {
    ApiKey.ALLOCATE_PRODUCER_IDS: (range(1), allocate_producer_ids.handle),
    ApiKey.PEER_PING: (range(1), peer_ping.handle),
    ApiKey.LANE_HAND_OVER: (range(1), lane_hand_over.handle),
    ApiKey.END_TRANSACTION_PARTS: (range(1), end_transaction_parts.handle),
    ApiKey.JOIN_TRANSACTION: (range(1), join_transaction.handle),
    ApiKey.ABORT_TRANSACTION: (range(1), abort_transaction.handle),
    ApiKey.PLACE_LANE: (range(1), place_lane.handle),
    ApiKey.DRAIN_BROKER: (range(1), drain_broker.handle),
}
ALL_HANDLERS: Mapping[ApiKey, tuple[range, Handler]] = {**HANDLERS, **BETWEEN_BROKERS}
SERVED = ServedApis({api_key: versions for api_key, (versions, _) in ALL_HANDLERS.items()})


class RequestOrigin(Protocol):
    """The connection that a request came from."""

    @property
    def host(self) -> str: ...

    @property
    def replies(self) -> ReplyAccount: ...


class Dispatch:
    """Hands each request to its handler."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.served_apis = SERVED.entries()

    def dispatch(self, request: Request, peer: RequestOrigin) -> Reply | Awaitable[Reply]:
        """Let the handler decide at once, in the order of arrival. The response may come later."""
        message = SCHEMAS[request.api_key][0].decode(request.body, request.version)
        context = RequestContext(
            api_version=request.version,
            client_id=request.client_id,
            client_host=peer.host,
            replies=peer.replies,
        )
        answer = _handled(self._broker, message, context)
        if isinstance(answer, asyncio.Future):
            return _encoded_after(cast("asyncio.Future[Message | None]", answer), request.version)
        if inspect.isawaitable(answer):
            return _encoded_later(answer, request.version)
        return _encoded(answer, request.version)

    def disconnected(self, peer: RequestOrigin) -> None:
        """Do nothing: no state is kept for a connection."""


async def answer(broker: Broker, message: Message, context: RequestContext) -> Any:
    """Return the response to a decoded request.

    The path is the same as for a client, but without bytes: for tests and the simulation.
    """
    given = _handled(broker, message, context)
    return await given if inspect.isawaitable(given) else given


def _handled(broker: Broker, message: Message, context: RequestContext) -> Any:
    if is_for_controller(broker, message, context):
        return _by(forwarded(broker, message, context), broker, message, context)
    lane = coordinator_elsewhere(broker, message, context)
    if lane is not None:
        return _by(by_coordinator(broker, lane, message, context), broker, message, context)
    return ALL_HANDLERS[ApiKey(message.API_KEY)][1](broker, message, context)


async def _by(
    other: Awaitable[Any], broker: Broker, message: Message, context: RequestContext
) -> Any:
    """Return the other broker's response, or this broker's if there is none."""
    given = await other
    if given is not None:
        return given
    given = ALL_HANDLERS[ApiKey(message.API_KEY)][1](broker, message, context)
    return await given if inspect.isawaitable(given) else given


def _encoded_after(answer: asyncio.Future[Message | None], version: int) -> asyncio.Future[Reply]:
    return then(answer, lambda done: _encoded(done.result(), version))


async def _encoded_later(answer: Awaitable[Message | None], version: int) -> Reply:
    message = await answer
    if message is None or not message.is_long():
        return _encoded(message, version)
    slices = message.encode_in_slices(version)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


def _encoded(answer: Message | None, version: int) -> Reply:
    return answer.encode(version) if answer is not None else None
