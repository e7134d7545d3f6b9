"""DescribeConfigs (32), versions 1 to 4: settings of topics and brokers."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    STRING,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)
from holdfast.protocol.message import Message, Struct


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(STRING, default=[])


class DescribeConfigsRequest(
    Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"
):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = nullable_string()
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = nullable_string(since=3)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(
    Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"
):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
