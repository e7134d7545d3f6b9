"""ApiVersions: the APIs and features of this broker.

Features tell clients which protocols they may use: `group.version` 1 is the new consumer protocol
(KIP-848). `transaction.version` 2 is KIP-890, where a batch adds its partition to the transaction,
and each end of a transaction increases the producer epoch.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey
from holdfast.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API = Api(key=ApiKey.API_VERSIONS, versions=range(5))

FEATURES = {"group.version": 1, "transaction.version": 2}
FEATURES_EPOCH = 0
LEAST_ZERO_SINCE = 4
"""The first version whose clients accept a feature with a lowest version of 0. To earlier clients
it is an error."""


def handle(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    del request
    supported = FEATURES if context.api_version >= LEAST_ZERO_SINCE else {}
    return ApiVersionsResponse(
        api_keys=broker.served_apis,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in supported.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
