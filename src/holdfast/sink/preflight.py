"""Check brokers, group, topics and store before a sink runs, and find out where it would begin.

Owns the probes. Writes nothing but a probe object, and deletes it. Must never join the group,
create a topic or begin a chain.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from holdfast.client.admin import EARLIEST, LATEST, describe_topics, list_offset, no_topic
from holdfast.client.cluster import Cluster, TopicDescription
from holdfast.client.groups import GroupDescription, committed_positions, describe_group
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, CorruptObject, StoreUnavailable
from holdfast.landing.chain import Chain
from holdfast.landing.formats.known import format_named
from holdfast.landing.origin import read_origin
from holdfast.landing.parallel import each
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.settings import OutputSettings, SinkSettings
from holdfast.store.address import open_store
from holdfast.store.interface import CreateAnswer, Store
from holdfast.store.put_if_absent import put_if_absent, same_bytes

PROBE_PREFIX = "_holdfast-probe-"
PROBE_SECONDS_MAX = 20.0

By = Literal["chain", "committed", "startingOffsets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The offset at which one partition would begin, and what decides it."""

    where: TopicPartition
    offset: int
    by: By
    log_start: int
    log_end: int
    on_data_loss: Literal["fail", "cover"]

    @property
    def lag(self) -> int:
        return max(0, self.log_end - max(self.offset, self.log_start))

    @property
    def gone(self) -> int:
        """Number of offsets that have not landed, and that the log no longer has."""
        return max(0, self.log_start - self.offset)

    @property
    def problem(self) -> str | None:
        """Why the sink would not continue from there; None if it would."""
        name = f"{self.where.topic}-{self.where.partition}"
        if self.offset > self.log_end:
            return (
                f"{name}: by its {self.by} the sink would continue at offset {self.offset}, but the"
                f" log ends at {self.log_end}. The last records of the log were lost, or the topic"
                " was deleted and created again. Set another 'to' below [output]"
            )
        if self.gone and self.on_data_loss == "fail":
            return (
                f"{name}: offsets {self.offset} to {self.log_start - 1} were deleted from the log"
                " before they had landed. To continue without them, set failOnDataLoss = false"
                " below [source]"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReady:
    """The results of the probes."""

    brokers: int
    group: GroupDescription | None
    """The group; None if it does not exist yet."""
    topics: tuple[str, ...]
    beginnings: tuple[Beginning, ...]

    @property
    def problems(self) -> list[str]:
        return [row.problem for row in self.beginnings if row.problem is not None]


async def check_sink(cluster: Cluster, settings: SinkSettings) -> SinkReady:
    """Probe brokers, group and store. An error says which does not answer, or refuses."""
    topics = await wanted_topics(cluster, settings)
    group = await describe_group(cluster, settings.member.group_id)
    environment = cluster.environment
    store = open_store(settings.output.store, environment=environment, keeps_trying=False)
    try:
        try:
            await probe_store(store, environment=environment)
        except (StoreUnavailable, ConfigurationError) as error:
            raise type(error)(f"the output: {error}") from error
        beginnings = await _beginnings(cluster, store, settings, topics)
    finally:
        await store.close()
    return SinkReady(
        brokers=len(cluster.brokers),
        group=group,
        topics=tuple(topic.name for topic in topics),
        beginnings=tuple(beginnings),
    )


async def wanted_topics(cluster: Cluster, settings: SinkSettings) -> list[TopicDescription]:
    """Return the topics that exist now. Raise ConfigurationError if a named one does not."""
    there = {topic.name: topic for topic in await describe_topics(cluster)}
    missing = [name for name in settings.member.topics if name not in there]
    if missing:
        raise ConfigurationError(no_topic(missing[0], there))
    names = set(settings.member.topics)
    pattern = settings.member.pattern
    if pattern is not None:
        names |= {
            name
            for name, topic in there.items()
            if not topic.is_internal and re.fullmatch(pattern, name)
        }
    return [there[name] for name in sorted(names)]


async def probe_store(store: Store, *, environment: Environment) -> None:
    """Create, read back and delete one object. Raise if the store accepts a second create of it."""
    key = f"{PROBE_PREFIX}{environment.new_uuid().hex}"
    body = (key.encode(),)
    await put_if_absent(
        store,
        key,
        body,
        is_ours=same_bytes(body),
        identify_bytes=None,
        environment=environment,
        deadline_seconds=PROBE_SECONDS_MAX,
    )
    try:
        if await store.read(key) != body[0]:
            raise CorruptObject(f"{key} in {store.url} is not what was written")
        if await store.create(key, (b"another",)) is CreateAnswer.CREATED:
            raise ConfigurationError(
                f"{store.url} has no conditional writes (it replaced an object that existed), so"
                " two members could overwrite each other: use another store"
            )
    finally:
        await store.delete([key])


async def _beginnings(
    cluster: Cluster, store: Store, settings: SinkSettings, topics: Sequence[TopicDescription]
) -> list[Beginning]:
    places = [
        TopicPartition(topic.name, partition)
        for topic in topics
        for partition in sorted(topic.leaders)
    ]
    if not places:
        return []
    group_id = settings.member.group_id
    committed = await committed_positions(cluster, group_id, places)

    async def beginning(where: TopicPartition) -> Beginning:
        listed = partial(list_offset, cluster, *where, read_committed=settings.read_committed)
        log_start = (await listed(at=EARLIEST)).offset
        log_end = (await listed(at=LATEST)).offset
        end = await chain_end(store, where, settings.output, environment=cluster.environment)
        by: By
        if end is not None:
            offset, by = end, "chain"
        elif where in committed:
            offset, by = committed[where].offset, "committed"
        else:
            offset = log_start if settings.offset_reset == "earliest" else log_end
            by = "startingOffsets"
        return Beginning(
            where=where,
            offset=offset,
            by=by,
            log_start=log_start,
            log_end=log_end,
            on_data_loss=settings.output.on_data_loss,
        )

    return await each(beginning, places)


async def chain_end(
    store: Store, where: TopicPartition, output: OutputSettings, *, environment: Environment
) -> int | None:
    """Return the first offset that has not landed; None if there is no chain yet."""
    key = output.template.origin_key(*where)
    origin = await read_origin(store, key, environment=environment)
    if origin is None:
        return None
    chain = Chain(
        store,
        *where,
        format=format_named(origin.format),
        environment=environment,
        template=output.template,
    )
    return await chain.next_offset()
