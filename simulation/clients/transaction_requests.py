"""Builds the requests of simulated transactional producers, and reads the answers.

Pure. Owns the translation between the words of a history and Kafka's messages.
"""

from typing import Any, NamedTuple

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    produce,
    txn_offset_commit,
)
from holdfast.verify.history import Done, Produced
from holdfast.verify.vocabulary import OffsetsTaken, Partition
from simulation.clients.client import CallRefused

REQUEST_TIMEOUT_MS = 3_000


class Identity(NamedTuple):
    """The identity of a transactional producer."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1


class Offsets:
    """Offsets that a transaction commits, and the group member that commits them."""

    def __init__(
        self, group: str, offsets: dict[Partition, int], member: str = "", generation: int = -1
    ) -> None:
        self.group = group
        self.offsets = offsets
        self.member = member
        self.generation = generation


def produce_request(
    identity: Identity, partition: Partition, batch: bytes
) -> produce.ProduceRequest:
    """Build a request with a copy of one batch, because a broker stamps the bytes in place."""
    topic, _, number = partition.rpartition("/")
    data = produce.PartitionProduceData(index=int(number), records=memoryview(bytearray(batch)))
    return produce.ProduceRequest(
        transactional_id=identity.transactional_id,
        acks=-1,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )


def produced(response: produce.ProduceResponse) -> Produced | CallRefused:
    told = response.responses[0].partition_responses[0]
    return refusal(told.error_code) or Produced(told.base_offset, told.log_start_offset)


def add_partition_request(
    identity: Identity, partition: Partition
) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    topic, _, number = partition.rpartition("/")
    wanted = add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[int(number)])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[wanted],
    )


def partition_added(
    response: add_partitions_to_txn.AddPartitionsToTxnResponse,
) -> Done | CallRefused:
    told = response.results_by_topic_v3_and_below[0].results_by_partition[0]
    return refusal(told.partition_error_code) or Done()


def add_group_request(identity: Identity, group: str) -> add_offsets_to_txn.AddOffsetsToTxnRequest:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        group_id=group,
    )


def offsets_request(
    identity: Identity, wanted: Offsets, commit: int
) -> txn_offset_commit.TxnOffsetCommitRequest:
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=wanted.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id=wanted.generation,
        member_id=wanted.member,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=partition.rpartition("/")[0],
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=int(partition.rpartition("/")[2]),
                        committed_offset=offset,
                        committed_metadata=str(commit),
                    )
                ],
            )
            for partition, offset in wanted.offsets.items()
        ],
    )


def end_request(identity: Identity, *, committed: bool) -> end_txn.EndTxnRequest:
    return end_txn.EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )


def done(response: Any) -> Done | CallRefused:
    """Read a response that has nothing but an error code."""
    return refusal(response.error_code) or Done()


def refusal(code: int) -> CallRefused | None:
    return CallRefused(ErrorCode(code).name) if code else None


def taken(response: Any) -> OffsetsTaken | CallRefused:
    """Read which partitions of an offset commit were taken, and which were not.

    A partition that another member owns is refused with STALE_MEMBER_EPOCH; a member with a stale
    epoch gets the same error for all partitions. Any other error counts as a refusal of the whole
    commit.
    """
    answers = [
        (f"{topic.name}/{part.partition_index}", part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]
    others = [error for _, error in answers if error and error != ErrorCode.STALE_MEMBER_EPOCH]
    if others:
        return CallRefused(ErrorCode(others[0]).name)
    return OffsetsTaken(
        tuple(partition for partition, error in answers if not error),
        tuple(partition for partition, error in answers if error),
    )
