"""EndTransactionParts (10002), version 0: end a transaction on parts that another broker leads.

Holdfast's own API, which ApiVersions does not list. The coordinator sends it to that broker. A part
is a partition or a group. If its first offset or token is LOOK, the broker only answers what is
open there. Otherwise it ends the transaction there, if what is open is what the request names.
"""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from holdfast.protocol.message import Message, Struct

LOOK = -2
NOTHING_OPEN = -1


class EndedPartition(Struct):
    topic_id: UUID = uuid()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    first_offset: int = int64(default=LOOK)


class EndedGroup(Struct):
    group_id: str = string()
    token: int = int64(default=LOOK)


class EndTransactionPartsRequest(
    Message, api_key=ApiKey.END_TRANSACTION_PARTS, versions="0", flexible="0+"
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    coordinator_epoch: int = int32()
    partitions: list[EndedPartition] = array(EndedPartition)
    groups: list[EndedGroup] = array(EndedGroup)


class EndedPartitionResult(Struct):
    topic_id: UUID = uuid()
    partition: int = int32()
    leader_epoch: int = int32()
    first_offset: int = int64()
    error_code: int = int16()


class EndedGroupResult(Struct):
    group_id: str = string()
    token: int = int64()
    error_code: int = int16()


class EndTransactionPartsResponse(
    Message, api_key=ApiKey.END_TRANSACTION_PARTS, versions="0", flexible="0+"
):
    partitions: list[EndedPartitionResult] = array(EndedPartitionResult)
    groups: list[EndedGroupResult] = array(EndedGroupResult)
