"""ApiVersions (18), versions 0 to 4: what this broker serves. No features are claimed."""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def handle(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    del request, context
    return ApiVersionsResponse(api_keys=broker.served_apis)
