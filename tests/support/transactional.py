"""A transactional producer without a client library: each request as a client would send it."""

import dataclasses
from typing import Any

import pytest
from tests.support.batches import batch
from tests.support.brokers import produce_request

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast.protocol.messages.end_txn import EndTxnRequest
from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from holdfast.protocol.messages.produce import PartitionProduceResponse
from holdfast.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TRANSACTIONAL_ID = "billing"
GROUP = "bills"
NEWEST = {"produce": 12, "end": 5, "offsets": 5}
"""Versions of KIP-890: a batch adds its partition, an end moves the epoch up."""
BEFORE = {"produce": 9, "end": 3, "offsets": 3}
READ_COMMITTED = 1
VERSIONS = pytest.mark.parametrize(
    "versions", [NEWEST, BEFORE], ids=["with KIP-890", "before KIP-890"]
)


@dataclasses.dataclass
class TransactionalProducer:
    """What a producer knows of itself."""

    broker: Broker
    transactional_id: str = TRANSACTIONAL_ID
    versions: dict[str, int] = dataclasses.field(default_factory=lambda: NEWEST)
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[int, int] = dataclasses.field(default_factory=dict[int, int])

    async def ask(self, request: Any, version: int) -> Any:
        return await answer(self.broker, request, RequestContext(api_version=version))

    async def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await self.ask(request, 5)
        if response.error_code == 0:
            self.producer_id = response.producer_id
            self.producer_epoch = response.producer_epoch
            self.sequences = {}
        return ErrorCode(response.error_code)

    async def add(self, *partitions: int) -> ErrorCode:
        """What clients before KIP-890 send first."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        response = await self.ask(request, 3)
        results = response.results_by_topic_v3_and_below[0].results_by_partition
        (error,) = {result.partition_error_code for result in results}
        return ErrorCode(error)

    async def add_group(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=GROUP,
        )
        return ErrorCode((await self.ask(request, 3)).error_code)

    async def send(self, partition: int, value: bytes) -> PartitionProduceResponse:
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + 1
        records = batch(
            [value],
            producer=(self.producer_id, self.producer_epoch, sequence),
            transactional=True,
            timestamp=self.broker.environment.now_ms(),
        )
        request = produce_request({("t", partition): records})
        request.transactional_id = self.transactional_id
        response = await self.ask(request, self.versions["produce"])
        return response.responses[0].partition_responses[0]

    async def commit_offset(
        self, partition: int, offset: int, *, member_id: str = "", generation: int = -1
    ) -> ErrorCode:
        wanted = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[wanted])],
        )
        response = await self.ask(request, self.versions["offsets"])
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def end(self, *, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        response = await self.ask(request, self.versions["end"])
        if response.error_code == 0 and self.versions["end"] >= 5:
            self.producer_id = response.producer_id
            self.producer_epoch = response.producer_epoch
            self.sequences = {}
        return ErrorCode(response.error_code)


async def committed_offset_as_before_version_7(broker: Broker, partition: int) -> int:
    """What a client is told that cannot ask for stable offsets."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[partition])
    request = OffsetFetchRequest(group_id=GROUP, topics=[topic])
    response = await answer(broker, request, RequestContext(api_version=5))
    (part,) = response.topics[0].partitions
    assert part.error_code == 0, part
    return part.committed_offset


async def committed_offset(broker: Broker, partition: int, *, require_stable: bool = True) -> int:
    """What the group has committed; -2 where a transaction is still open on it."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)],
        require_stable=require_stable,
    )
    response = await answer(broker, request, RequestContext(api_version=8))
    (part,) = response.groups[0].topics[0].partitions
    if part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return -2
    assert part.error_code == 0, part
    return part.committed_offset
