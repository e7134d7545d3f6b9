"""JoinTransaction (10005), version 0: add partitions and groups to a transaction (KIP-890).

Holdfast's own API, which ApiVersions does not list. The broker that leads them asks the
coordinator, either to add them or, with `verify_only`, whether they are in the transaction.
Partitions are named by topic id, because the coordinator may not know the topic yet, or may know
another one of the same name.
"""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from holdfast.protocol.message import Message, Struct


class JoiningPartition(Struct):
    topic_id: UUID = uuid()
    partition: int = int32()


class JoiningGroup(Struct):
    group_id: str = string()


class JoinTransactionRequest(Message, api_key=ApiKey.JOIN_TRANSACTION, versions="0", flexible="0+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    partitions: list[JoiningPartition] = array(JoiningPartition)
    groups: list[JoiningGroup] = array(JoiningGroup)


class JoinedPartition(Struct):
    topic_id: UUID = uuid()
    partition: int = int32()
    error_code: int = int16()


class JoinedGroup(Struct):
    group_id: str = string()
    error_code: int = int16()


class JoinTransactionResponse(
    Message, api_key=ApiKey.JOIN_TRANSACTION, versions="0", flexible="0+"
):
    error_code: int = int16()
    """The error of the whole request. If it is 0, each part has its own."""
    partitions: list[JoinedPartition] = array(JoinedPartition)
    groups: list[JoinedGroup] = array(JoinedGroup)
