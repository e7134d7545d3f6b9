"""AlterConfigs (33), versions 0 to 2: replace all settings of a topic or broker."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, boolean, int8, int16, int32, nullable_string, string
from holdfast.protocol.message import Message, Struct


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
