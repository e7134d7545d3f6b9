"""Administration: names, numbers and configurations that must not become topics."""

from uuid import UUID

from tests.hostile.case import Case, one_of, told

from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
INVALID_TOPIC = "INVALID_TOPIC_EXCEPTION"
INVALID_CONFIG = "INVALID_CONFIG"
INVALID_PARTITIONS = "INVALID_PARTITIONS"
BAD_NAMES = {
    "outside": "../x",
    "of one dot": ".",
    "of two dots": "..",
    "with no name": "",
    "with a slash": "a/b",
    "with a backslash": "a\\b",
    "with a space": "a b",
    "with a NUL": "a\x00b",
    "with a newline": "a\nb",
    "with a percent sign": "a%2fb",
    "in another alphabet": "тема",
    "of 250 letters": "x" * 250,
    "of 20,000 letters": "x" * 20_000,
}


def create(
    name: str = "from-hostile",
    *,
    partitions: int = 1,
    replication: int = 1,
    times: int = 1,
    **configs: str | None,
) -> CreateTopicsRequest:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    return CreateTopicsRequest(topics=[wanted] * times, timeout_ms=10_000)


def add_partitions(count: int, topic: str = "target") -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
        timeout_ms=10_000,
    )


def delete_records(offset: int, *, topic: str = "target", partition: int = 0):
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
    )


def alter(name: str, value: str | None, *, operation: int = 0, topic: str = "target"):
    config = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
        ]
    )


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


_CREATED: list[Case] = [
    *(
        told(f"create a topic {how}", 7, create(name), INVALID_TOPIC)
        for how, name in BAD_NAMES.items()
    ),
    *(
        told(f"create a topic with {n} partitions", 7, create(partitions=n), INVALID_PARTITIONS)
        for n in (0, -2, -(2**31))
    ),
    *(
        told(f"create a topic with {n} partitions", 7, create(partitions=n), "POLICY_VIOLATION")
        for n in (10_001, 10**6, 2**31 - 1)
    ),
    *(
        told(
            f"create a topic with replication factor {n}",
            7,
            create(replication=n),
            "INVALID_REPLICATION_FACTOR",
        )
        for n in (0, -2, -32768)
    ),
    *(
        told(f"create a topic with {key}={value}", 7, create(**{key: value}), INVALID_CONFIG)
        for key, value in {
            "no_such_config": "1",
            "retention_ms": "soon",
            "retention_bytes": "1e9",
            "cleanup_policy": "burn",
            "max_message_bytes": "-5",
            "compression_type": "brotli",
            "segment_bytes": "",
        }.items()
    ),
    told("create a topic that is there", 7, create("target"), "TOPIC_ALREADY_EXISTS"),
    told("create one topic twice at once", 7, create("twice", times=2), "INVALID_REQUEST"),
]
_CHANGED: list[Case] = [
    *(
        told(f"add partitions up to {n}", 3, add_partitions(n), INVALID_PARTITIONS)
        for n in (0, 1, 2, -1, 10**6, 2**31 - 1)
    ),
    told("add partitions to an unknown topic", 3, add_partitions(5, "../x"), UNKNOWN_TOPIC),
    *(
        told(f"delete records up to {n}", 2, delete_records(n), "OFFSET_OUT_OF_RANGE")
        for n in (10**9, 2**63 - 1, -2, -(2**63))
    ),
    told("delete records of an unknown topic", 2, delete_records(0, topic=".."), UNKNOWN_TOPIC),
    told("delete records of partition -1", 2, delete_records(0, partition=-1), UNKNOWN_TOPIC),
    told("set an unknown configuration", 1, alter("no.such.config", "1"), INVALID_CONFIG),
    told("set a configuration to nonsense", 1, alter("retention.ms", "soon"), INVALID_CONFIG),
    one_of(
        "set a configuration to null",
        1,
        alter("retention.ms", None),
        INVALID_CONFIG,
        "INVALID_REQUEST",
    ),
    one_of(
        "an operation that is none",
        1,
        alter("retention.ms", "1", operation=9),
        INVALID_CONFIG,
        "INVALID_REQUEST",
    ),
    told(
        "set a configuration of an unknown topic",
        1,
        alter("retention.ms", "1", topic="nobody-made-it"),
        UNKNOWN_TOPIC,
    ),
    told(
        "set a configuration of a topic outside",
        1,
        alter("retention.ms", "1", topic="../x"),
        INVALID_TOPIC,
    ),
    *(
        one_of(
            f"delete the topic {name[:16]!r}",
            6,
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000),
            UNKNOWN_TOPIC,
            INVALID_TOPIC,
        )
        for name in ("nobody-made-it", "../x", "", "..")
    ),
    told(
        "delete a topic by an unknown id",
        6,
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=UUID(int=5))], timeout_ms=5_000
        ),
        "UNKNOWN_TOPIC_ID",
    ),
    told(
        "delete a topic by neither name nor id",
        6,
        DeleteTopicsRequest(topics=[DeleteTopicState(name=None)], timeout_ms=5_000),
        "INVALID_REQUEST",
    ),
]
_ASKED: list[Case] = [
    *(
        told(f"metadata of a topic {how}", 9, metadata(name), INVALID_TOPIC)
        for how, name in BAD_NAMES.items()
    ),
    told(
        "metadata of 2,000 topics outside",
        9,
        metadata(*(f"../{i}" for i in range(2000))),
        INVALID_TOPIC,
    ),
    told(
        "configurations of an unknown topic",
        4,
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name="nobody-made-it")]
        ),
        UNKNOWN_TOPIC,
    ),
    one_of(
        "configurations of a resource that is none",
        4,
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=99, resource_name="x")]
        ),
        "INVALID_REQUEST",
        "UNSUPPORTED_VERSION",
    ),
    one_of(
        "a coordinator of a kind that is none",
        4,
        FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]),
        "INVALID_REQUEST",
        "COORDINATOR_NOT_AVAILABLE",
        "UNSUPPORTED_VERSION",
    ),
]

CASES = [*_CREATED, *_CHANGED, *_ASKED]
