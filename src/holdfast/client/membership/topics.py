"""The topics that a member is subscribed to now, and their metadata.

Owns the metadata request and the meaning of the pattern. Must never create a topic.
"""

import re

from holdfast.client.cluster import Cluster
from holdfast.client.membership.core import TopicsSeen
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.reconciling import NO_TOPIC_ID
from holdfast.client.refusals import raise_for
from holdfast.errors import ConfigurationError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.metadata import MetadataResponse

REFUSED = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def compiled(settings: MemberSettings) -> re.Pattern[str] | None:
    """Return the compiled pattern, if any; ConfigurationError for an invalid subscription."""
    if settings.pattern is None:
        if not settings.topics:
            raise ConfigurationError(
                f"group {settings.group_id!r}: neither topics nor a pattern to subscribe to"
            )
        return None
    try:
        return re.compile(settings.pattern)
    except re.error as error:
        raise ConfigurationError(
            f"group {settings.group_id!r}: {settings.pattern!r} is no regular expression: {error}"
        ) from None


async def look(
    cluster: Cluster,
    topics: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    also: frozenset[str],
) -> TopicsSeen:
    """Look up the subscribed topics, and those in `also`, which a leader must know."""
    looked_for = None if pattern is not None else frozenset(topics) | also
    response = await cluster.refresh(None if looked_for is None else sorted(looked_for))
    for row in response.topics:
        if row.name in topics and row.error_code in REFUSED:
            raise_for(row.error_code, f"metadata of topic {row.name!r}")
    return seen(response, topics, pattern, looked_for)


def seen(
    response: MetadataResponse,
    topics: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    looked_for: frozenset[str] | None,
) -> TopicsSeen:
    """Return the topics in a response. Internal topics match no pattern, and must be named."""
    rows = {
        row.name: row for row in response.topics if row.name and row.error_code == ErrorCode.NONE
    }
    matching = {
        name
        for name, row in rows.items()
        if pattern is not None and not row.is_internal and pattern.fullmatch(name)
    }
    return TopicsSeen(
        subscribed=tuple(sorted(matching | set(topics))),
        counts={name: len(row.partitions) for name, row in rows.items()},
        ids={row.topic_id: name for name, row in rows.items() if row.topic_id != NO_TOPIC_ID},
        looked_for=looked_for,
    )
