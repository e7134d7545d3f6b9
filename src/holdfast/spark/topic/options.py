"""The options of the sink into topics: those of Spark's Kafka sink, and those for exactly-once.

Pure. Owns parsing and messages. Option names are case-insensitive, as in Spark. Must never accept
an option that it does not know, nor one that would make the sink less than exactly-once.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import ConfigurationError
from holdfast.identifiers import topic_name_problem
from holdfast.landing.data_files import sink_id_problem
from holdfast.records.compression import Codec
from holdfast.spark.source.kafka_options import ClientOptions, client_options

NAMES = (
    *("sinkId", "topic", "positionTopic", "committedBatch", "checkpointLocation"),
    *("includeHeaders", "kafka.bootstrap.servers"),
)
PREFIX = "holdfast-sink-"
BATCH_SINK = "batch-"
"""The prefix of the sink ids of batch writes for which the user gives none."""
TRANSACTION_TIMEOUT_MS = 60_000
REFUSED: Mapping[str, str] = {
    "transactional.id": "it is made of sinkId, which names this sink for as long as it lives",
    "key.serializer": "the column `key` is bytes or text already",
    "value.serializer": "the column `value` is bytes or text already",
    "interceptor.classes": "an interceptor could change records, and there is no Java here",
    "partitioner.class": "give a column `partition` to choose partitions",
    "group.id": "to commit the source's offsets to a group, give the source commitGroupId",
}
FIXED: Mapping[str, tuple[str, ...]] = {
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
}
IDLE = frozenset(
    {
        *("linger.ms", "batch.size", "buffer.memory", "retries", "delivery.timeout.ms"),
        *("max.block.ms", "max.in.flight.requests.per.connection", "max.request.size"),
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable"),
        *("partitioner.availability.timeout.ms", "metadata.max.idle.ms"),
    }
)
"""Options that tune a Java producer. They change nothing of what is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The parsed options of a sink into topics."""

    client: ClientOptions
    sink_id: str
    topic: str | None
    """The topic of all rows. None: each row names its topic."""
    position_topic: str
    """The topic under whose partition 0 the sink's group commits its position."""
    codec: Codec
    transaction_timeout_ms: int
    committed_batch: int | None
    """The last micro-batch in the topics, as a person says; only if the sink asks for it."""
    checkpoint: str | None

    @property
    def transactional_id(self) -> str:
        return PREFIX + self.sink_id

    @property
    def group_id(self) -> str:
        """The group whose committed offset is the sink's position."""
        return PREFIX + self.sink_id


def parse_topic_options(raw: Mapping[str, str]) -> TopicOptions:
    """Return the parsed options; ConfigurationError names option, reason and remedy."""
    options = {name.lower(): str(value).strip() for name, value in raw.items()}
    _check_names(options)
    servers = options.get("kafka.bootstrap.servers", "")
    if not servers:
        raise ConfigurationError("say where the topics are, with kafka.bootstrap.servers")
    sink_id = options.get("sinkid", "")
    if not sink_id:
        raise ConfigurationError(
            "sinkId is missing: it names this sink in the cluster, so that a restart recognises"
            " what was committed; it must stay the same for as long as the query goes on, and no"
            ' other query may have it: .option("sinkId", "orders-to-billing")'
        )
    if (problem := sink_id_problem(sink_id)) is not None:
        raise ConfigurationError(f"sinkId: {problem}")
    client = {n.removeprefix("kafka."): v for n, v in options.items() if n.startswith("kafka.")}
    del client["bootstrap.servers"]
    codec = _codec(client.pop("compression.type", "lz4"))
    timeout_ms = _number(
        "kafka.transaction.timeout.ms",
        client.pop("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS)),
    )
    committed = options.get("committedbatch")
    return TopicOptions(
        client=client_options(servers, _for_client(client)),
        sink_id=sink_id,
        topic=_topic(options, "topic"),
        position_topic=_position_topic(options),
        codec=codec,
        transaction_timeout_ms=timeout_ms,
        committed_batch=None if committed is None else _number("committedBatch", committed),
        checkpoint=options.get("checkpointlocation"),
    )


FOR_STREAMS = ("committedBatch", "checkpointLocation", "positionTopic")


def parse_batch_options(raw: Mapping[str, str], unique: str) -> TopicOptions:
    """Return the options of a batch write.

    Without a sinkId the write gets a transactional id that no other write has (from `unique`). With
    one, an earlier write of the same sinkId that still runs is fenced and can no longer commit.
    """
    options = {name.lower(): str(value).strip() for name, value in raw.items()}
    for name in FOR_STREAMS:
        if name.lower() in options:
            raise ConfigurationError(
                f"the option {name} is for streams: a batch write has no position; remove it"
            )
    # A position topic is required, but a batch write keeps no position: any name will do.
    place = options.get("topic") or "none"
    return parse_topic_options(
        {"sinkid": f"{BATCH_SINK}{unique}", **options, "positiontopic": place}
    )


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in options:
        if name in known or name.startswith("kafka."):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {known[near[0]]!r}?" if near else f"known: {', '.join(NAMES)}"
        raise ConfigurationError(f"unknown option {name!r} of the sink: {hint}")


def _for_client(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if name in REFUSED:
            raise ConfigurationError(f"the option kafka.{name} cannot be used: {REFUSED[name]}")
        if name in FIXED and value.lower() not in FIXED[name]:
            raise ConfigurationError(
                f"kafka.{name}={value} would lose or double records: it is {FIXED[name][0]} here"
            )
    return {n: v for n, v in options.items() if n not in IDLE and n not in FIXED}


def _topic(options: Mapping[str, str], name: str) -> str | None:
    topic = options.get(name.lower())
    if topic is not None and (problem := topic_name_problem(topic)) is not None:
        raise ConfigurationError(f"{name}: {problem}")
    return topic


def _position_topic(options: Mapping[str, str]) -> str:
    found = _topic(options, "positionTopic") or _topic(options, "topic")
    if found is None:
        raise ConfigurationError(
            "say which topic, with the option topic; where each row names its own, in a column"
            " `topic`, say with positionTopic under which of them the sink keeps its position: any"
            " topic that stays, the same in every run"
        )
    return found


def _codec(text: str) -> Codec:
    try:
        return Codec[text.upper()]
    except KeyError:
        raise ConfigurationError(
            f"kafka.compression.type={text!r}: there are"
            f" {', '.join(codec.name.lower() for codec in Codec)}"
        ) from None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 2**31:
        raise ConfigurationError(f"{name} must be a whole number, not {text!r}")
    return int(text)
