"""AbortTransaction (10006), version 0: abort a producer's transaction on a partition.

Holdfast's own API, which ApiVersions does not list. A broker aborts the transaction only if it is
the transaction's coordinator.
"""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import INT32, array, boolean, int16, int32, int64, uuid
from holdfast.protocol.message import Message


class AbortTransactionRequest(
    Message, api_key=ApiKey.ABORT_TRANSACTION, versions="0", flexible="0+"
):
    producer_id: int = int64()
    producer_epoch: int = int16()
    topic_id: UUID = uuid()
    partition: int = int32()


class AbortTransactionResponse(
    Message, api_key=ApiKey.ABORT_TRANSACTION, versions="0", flexible="0+"
):
    error_code: int = int16()
    is_known: bool = boolean()
    """True if the transaction was found. It is then aborted, unless there is an error."""
    lanes: list[int] = array(INT32)
    """The lanes that the answer covers: the broker coordinates their transactions."""
