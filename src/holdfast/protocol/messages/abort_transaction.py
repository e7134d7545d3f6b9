"""AbortTransaction (10006), version 0: whether a broker coordinates a producer's transaction on a
partition, which is then aborted.

Holdfast's own; not among what clients are told of.
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
    """Whether such a transaction was there; it is aborted, unless there is an error."""
    lanes: list[int] = array(INT32)
    """Those that the answer speaks for."""
