"""JoinTransaction (10005), version 0: a broker asks a coordinator to take what it leads into a
transaction, or whether it is in it (KIP-890).

Holdfast's own; not among what clients are told of. Partitions go by topic id: the coordinator may
not have heard of a topic yet, or of another one under the same name.
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
    """Of all that was asked; where it is 0, each part has its own."""
    partitions: list[JoinedPartition] = array(JoinedPartition)
    groups: list[JoinedGroup] = array(JoinedGroup)
