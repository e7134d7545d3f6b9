"""What the coordinator's responses mean for a member, in either protocol.

Pure. Owns which error codes may pass, which end a membership, and which no retry would change.
"""

from typing import NamedTuple

from holdfast.client.refusals import RETRIABLE, error_code
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

COORDINATOR_IS_ELSEWHERE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
ADVICE = {
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another member has this instance id, or one that had it stopped without leaving; "
        "stop it, wait for the end of its session, or choose another instance id"
    ),
    ErrorCode.FENCED_INSTANCE_ID: "another member has joined with this instance id",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker has no such assignor",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker does not understand the regular expression",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members of the group have another protocol or no assignor in common; "
        "this member knows cooperative-sticky"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker's group.min.session.timeout.ms and group.max.session.timeout.ms "
        "do not allow this session timeout"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of this name exists that runs another protocol",
}


class Applied(NamedTuple):
    """What a response changed, besides the state of the core."""

    lost: frozenset[TopicPartition] = frozenset()
    is_elsewhere: bool = False
    """Another broker coordinates the group now."""
    is_postponed: bool = False
    """The request must be sent again, after a pause."""
    refused: ErrorCode | None = None
    detail: str = ""


def postponed(code: int) -> Applied | None:
    """Return the consequence of an error that passes by itself; None for any other code."""
    known = error_code(code)
    if known not in RETRIABLE:
        return None
    return Applied(is_elsewhere=known in COORDINATOR_IS_ELSEWHERE, is_postponed=True)


def refused(code: int, lost: frozenset[TopicPartition], detail: str | None = None) -> Applied:
    """Return the consequence of an error that stays until settings or broker are changed."""
    known = error_code(code)
    words = [word for word in (detail, ADVICE.get(known)) if word]
    return Applied(lost=lost, refused=known, detail="; ".join(words) or f"error code {code}")
