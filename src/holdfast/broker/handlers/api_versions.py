"""ApiVersions (18), versions 0 to 4: what this broker serves.

The one feature is `group.version` 1: groups of the new consumer protocol (KIP-848).
"""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

GROUP_VERSION = "group.version"
CONSUMER_GROUPS = 1
LEAST_ZERO_SINCE = 4
"""Clients of earlier versions take a feature whose least version is 0 for an error."""


def handle(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    del request
    supported = SupportedFeatureKey(name=GROUP_VERSION, min_version=0, max_version=CONSUMER_GROUPS)
    finalized = FinalizedFeatureKey(
        name=GROUP_VERSION, max_version_level=CONSUMER_GROUPS, min_version_level=CONSUMER_GROUPS
    )
    return ApiVersionsResponse(
        api_keys=broker.served_apis,
        supported_features=[supported] if context.api_version >= LEAST_ZERO_SINCE else [],
        finalized_features_epoch=0,
        finalized_features=[finalized],
    )
