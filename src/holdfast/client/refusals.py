"""Errors of calls to a cluster, by what the caller must do next.

Pure. Owns which error codes are worth a retry, and which leave open whether a write happened.
"""

from holdfast.errors import CallError, RetryError
from holdfast.protocol.api import ErrorCode

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

LEAVES_A_WRITE_OPEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors after which a write may have happened. A leader that is replaced while it appends answers
with NOT_LEADER_OR_FOLLOWER, so that one is here, too."""


class BrokerUnavailable(RetryError):
    """No connection, no answer in time, or a connection that closed: a write may have happened."""


class NobodyListens(BrokerUnavailable):
    """The connection was refused: no process listens at the address."""


class RefusedForNow(RetryError):
    """The broker answered with an error that may pass."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = error_code(code)


class RequestRefused(CallError):
    """The broker answered with an error that stays until the call is changed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = error_code(code)


class OutcomeUnknown(RetryError):
    """The write may or may not have happened, and another try cannot find out."""


class UnsupportedByBroker(CallError):
    """The broker and this client have no version of an API in common."""


def error_code(code: int) -> ErrorCode:
    """Return the code as an ErrorCode; UNKNOWN_SERVER_ERROR if this client does not know it."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def raise_for(code: int, what: str, detail: str | None = None) -> None:
    """Raise RefusedForNow or Refused, depending on the code, unless it is NONE."""
    if code == ErrorCode.NONE:
        return
    known = error_code(code)
    message = f"{what}: {known.name} ({code})" + (f": {detail}" if detail else "")
    if known in RETRIABLE:
        raise RefusedForNow(code, message)
    raise RequestRefused(code, message)
