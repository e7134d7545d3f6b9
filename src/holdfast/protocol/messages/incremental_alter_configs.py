"""IncrementalAlterConfigs (44), versions 0 to 1: set, delete, append or subtract settings."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, boolean, int8, int16, int32, nullable_string, string
from holdfast.protocol.message import Message, Struct


class IncrementalAlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


class IncrementalAlterConfigsRequest(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )
