"""Options of Spark's Kafka source that this source refuses or does not need, and why.

Pure data: options.py decides.
"""

from collections.abc import Mapping

NO_GROUP = (
    "no consumer group takes part: Spark's checkpoint holds the offsets. Remove it; to see the "
    "query's progress as a group's offsets, set commitGroupId"
)
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("kafka.group.id", "kafka.group.instance.id", "kafka.group.protocol", "groupidprefix"),
            *("kafka.session.timeout.ms", "kafka.heartbeat.interval.ms"),
            *("kafka.max.poll.interval.ms", "kafka.partition.assignment.strategy"),
        ),
        NO_GROUP,
    ),
    "kafka.auto.offset.reset": (
        "Spark keeps the offsets; say where a new query starts with startingOffsets "
        '("earliest" or "latest")'
    ),
    "kafka.enable.auto.commit": "Spark's checkpoint holds the offsets; nothing is committed",
    "kafka.auto.commit.interval.ms": "Spark's checkpoint holds the offsets; nothing is committed",
    "kafka.key.deserializer": "keys come as binary; cast or decode the column `key`",
    "kafka.value.deserializer": "values come as binary; cast or decode the column `value`",
    "kafka.interceptor.classes": "an interceptor could change records, and there is no Java here",
    "topic": "that is how a sink names its topic; a source has subscribe, subscribePattern, assign",
    "path": 'a source has no path: call load() without one, and say where with "store"',
}
IDLE: Mapping[str, str] = {
    "fetchoffset.numretries": "offsets are asked for until the client's deadline",
    "fetchoffset.retryintervalms": "offsets are asked for until the client's deadline",
    "kafkaconsumer.polltimeoutms": "there is no poll; kafka.request.timeout.ms bounds a request",
    "kafka.max.poll.records": "there is no poll; records come in Arrow batches",
    "kafka.check.crcs": "checksums are always checked",
    "kafka.metadata.max.age.ms": "topics are looked at for each micro-batch",
}
