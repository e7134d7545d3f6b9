"""Finds out before Spark starts what answers, what is there, and where a run begins.

Owns the probes and their patience, which is short because a person waits. Reads only. Must never
create anything, not even the folder of the output.
"""

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.addresses import is_local_address, local_path
from holdfast.client.admin import no_topic
from holdfast.client.cluster import Cluster
from holdfast.client.refusals import BrokerUnavailable
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.environment import Environment, process_variables
from holdfast.errors import ConfigurationError, HoldfastError, RetryError
from holdfast.extras import require
from holdfast.landing import blocking
from holdfast.landing.chain import Chain
from holdfast.landing.keys import KeyTemplate
from holdfast.landing.ledger import Ledger
from holdfast.landing.ledger_entry import Entry
from holdfast.landing.parallel import each
from holdfast.spark.ledger.chain_sink import ChainLanding
from holdfast.spark.ledger.job import Job
from holdfast.spark.ledger.job_state import StateRefused, state_before
from holdfast.spark.pipelines.file import PipelineFile
from holdfast.spark.runtime.java import find_java
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import Input, Offsets, SourcePartition
from holdfast.spark.source.kafka_options import ClientOptions, client_options, tls_context
from holdfast.spark.source.options import EARLIEST, SourceOptions, Subscribe
from holdfast.spark.source.planning import selected
from holdfast.store.interface import Store
from holdfast.store.patience import patiently
from holdfast.store.read_only import open_read_only

T = TypeVar("T")

STORE_SILENCE_S = 10.0
CONTACT_MS_MAX = 5_000
SPARK_SCHEME = "spark://"
MASTER_S_MAX = 5.0
MASTER_SILENCE_S = 20.0
"""A master on a busy machine may need seconds for its first answer."""
_NO_FILE = b"/files/holdfast-is-there-a-master"
STREAM_REQUEST = struct.pack(
    f">qbi{len(_NO_FILE)}s", 13 + len(_NO_FILE), 6, len(_NO_FILE), _NO_FILE
)
"""A frame of Spark's transport: length, type StreamRequest, name of the file.

The answer is a StreamFailure.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where a query with a new checkpoint continues."""

    positions: Offsets
    """The next offsets; EARLIEST for a partition of which nothing is known."""
    by: str
    """What the positions come from, for people."""

    def starting_offsets(self) -> str:
        """Return the positions as the option startingOffsets."""
        topics: dict[str, dict[str, int]] = {}
        for where, offset in self.positions.items():
            topics.setdefault(where.topic, {})[str(where.partition)] = offset
        return json.dumps(topics, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReady:
    """What the probes found."""

    source: Input
    partitions: tuple[SourcePartition, ...]
    head: Entry | None
    """The newest entry of the ledger that the pipeline continues."""


def check_machine() -> None:
    """Raise ConfigurationError unless Spark and a Java for it are installed."""
    require("Spark", "spark")
    variables = process_variables()
    if "PYSPARK_GATEWAY_PORT" not in variables:
        find_java(variables)


class MasterUnavailable(RetryError):
    """No master of a Spark cluster answers."""


def check_master(master: str, *, silence_s_max: float = MASTER_SILENCE_S) -> None:
    """Raise unless a master of spark://host:port,host:port answers; Spark takes a minute."""
    if not master.startswith(SPARK_SCHEME):
        return
    problems: list[str] = []
    for address in master.removeprefix(SPARK_SCHEME).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"--master {master}: it must be like spark://host:7077")
        try:
            _ask_master((host, int(port)), silence_s_max)
            return
        except TimeoutError:
            problems.append(f"{address}: no answer within {silence_s_max:g} s")
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
    raise MasterUnavailable(
        f"no Spark master answers at {master} ({'; '.join(problems)}): start one, or name another"
        " with --master"
    )


def _ask_master(address: tuple[str, int], silence_s_max: float) -> None:
    """Ask for a file that no master has, and wait for an answer: an open port may be a dead end.

    A master with authentication or TLS answers something else, or hangs up. Only silence is a
    problem.
    """
    with socket.create_connection(address, timeout=MASTER_S_MAX) as connection:
        connection.settimeout(silence_s_max)
        connection.sendall(STREAM_REQUEST)
        with contextlib.suppress(ConnectionError):
            connection.recv(1)


def check_pipeline(pipeline: PipelineFile) -> PipelineReady:
    """Check source and output; ConfigurationError or RetryError says which does not answer."""
    source = open_source(pipeline.options)
    partitions = check_topics(source, pipeline.options)
    sink = pipeline.sink
    if isinstance(sink, ChainLanding):
        check_output(sink.store)
        return PipelineReady(source=source, partitions=partitions, head=None)
    head = ledger_head(sink.output.store, sink.output.sink_id)
    _check_state(pipeline, sink, head)
    for table in pipeline.tables:
        table.check(sink.output)
    return PipelineReady(source=source, partitions=partitions, head=head)


def open_source(options: SourceOptions) -> Input:
    """Return the input, after it has answered once."""
    from holdfast.spark.source.data_source import open_input

    if options.store is not None:
        probe_store(options.store, "the source")
    else:
        _probe_brokers(client_options(options.bootstrap_servers or "", options.client))
    return open_input(options)


def probe_store(url: str, what: str) -> None:
    """List one key of a store; the error says which store does not answer."""

    async def look(store: Store, environment: Environment) -> None:
        await patiently(lambda: store.list("", limit=1), environment=environment)

    try:
        read_store(url, look)
    except HoldfastError as error:
        raise type(error)(f"{what}: {error}") from error


def _probe_brokers(client: ClientOptions) -> None:
    async def look() -> None:
        cluster = Cluster(
            client.bootstrap,
            environment=worker().environment,
            client_id=client.client_id,
            request_timeout_ms=CONTACT_MS_MAX,
            tls=tls_context(client.tls) if client.tls is not None else None,
        )
        async with cluster:
            await cluster.patiently(
                cluster.any_connection, client.bootstrap, deadline_ms=CONTACT_MS_MAX
            )

    try:
        blocking.run(look())
    except BrokerUnavailable as error:
        raise BrokerUnavailable(
            f"the source: no broker can be reached at {client.bootstrap}: check the address and the"
            f" network, and that a broker runs there\n  reason: {error.__cause__ or error}"
        ) from error


def check_topics(source: Input, options: SourceOptions) -> tuple[SourcePartition, ...]:
    """Return the partitions that a query reads now; ConfigurationError if a topic is missing."""
    topics = source.topics()
    if isinstance(options.selection, Subscribe):
        missing = [name for name in options.selection.topics if name not in topics]
        if missing:
            raise ConfigurationError(no_topic(missing[0], topics))
    return tuple(selected(topics, options.selection))


def check_output(url: str) -> bool:
    """Return whether there may be output already; refuse a local path that cannot be written."""
    if not is_local_address(url):
        probe_store(url, "the output")
        return True
    path = local_path(url)
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        problem = "is not writable for this user" if nearest.is_dir() else "is not a directory"
        raise ConfigurationError(f"the output: {nearest} {problem}: choose another for {path}")
    return path.exists()


def ledger_head(url: str, sink_id: str) -> Entry | None:
    """Return the newest entry of a sink, or None if there is none yet."""
    if not check_output(url):
        return None

    async def look(store: Store, environment: Environment) -> Entry | None:
        return (await Ledger.open(store, sink_id, environment=environment)).head

    return read_store(url, look)


def read_store(url: str, look: Callable[[Store, Environment], Coroutine[Any, Any, T]]) -> T:
    """Return what a look at a store gives. The store is opened and closed for it."""
    environment = worker().environment

    async def whole() -> T:
        store = open_read_only(url, environment=environment, silence_s_max=STORE_SILENCE_S)
        try:
            return await look(store, environment)
        finally:
            await store.close()

    return blocking.run(whole())


def _check_state(pipeline: PipelineFile, job: Job, head: Entry | None) -> None:
    """Refuse a step that is not the one that made the ledger's state."""
    schema = SCHEMA_WITH_HEADERS if pipeline.transform is None else None
    found = state_before(job, head, schema)
    if isinstance(found, StateRefused):
        raise ConfigurationError(found.message)


def resume(pipeline: PipelineFile, ready: PipelineReady) -> Resume | None:
    """Return where a query without a checkpoint continues; None if nothing has landed yet."""
    sink = pipeline.sink
    if isinstance(sink, ChainLanding):
        known = _chain_ends(sink, ready.partitions)
        by = f"the chains in {sink.store}"
    elif ready.head is None:
        return None
    else:
        known = ledger_positions(ready.head)
        by = f"entry {ready.head.n} of the ledger of sink {ready.head.sink_id}"
        _check_still_read(known, ready, by)
    if not known:
        return None
    positions = {where: known.get(where, EARLIEST) for where in ready.partitions}
    return Resume(positions=positions, by=by)


def ledger_positions(head: Entry) -> Offsets:
    """Return the positions of the source's partitions after an entry."""
    if len(head.sources) != 1:
        raise ConfigurationError(
            f"the ledger of sink {head.sink_id} was written by a query with {len(head.sources)}"
            " sources, and a pipeline has one: choose another sink_id"
        )
    return offsets.from_json(json.loads(head.sources[0].end)).positions


def _check_still_read(known: Offsets, ready: PipelineReady, by: str) -> None:
    """Refuse a pipeline that does not read all partitions of which the ledger has positions.

    The ledger would refuse its first micro-batch.
    """
    there = set(ready.partitions)
    ids = {where.topic: where.topic_id for where in ready.partitions}
    for where in sorted(set(known) - there, key=offsets.by_name):
        if where.topic in ids:
            why = f"was deleted and created again (its id was {where.topic_id})"
        else:
            why = "is no longer subscribed to, or was deleted"
        raise ConfigurationError(
            f"{where} {why}, but {by} has read it up to offset {known[where]}: change the pipeline"
            " back, or give it a new sink_id"
        )


def _chain_ends(landing: ChainLanding, partitions: Sequence[SourcePartition]) -> Offsets:
    """Return the first offset that has not landed, of each partition that has a chain."""
    if not check_output(landing.store):
        return {}

    async def look(store: Store, environment: Environment) -> dict[SourcePartition, int]:
        async def end(where: SourcePartition) -> int | None:
            chain = Chain(
                store,
                where.topic,
                where.partition,
                format=landing.file_format(),
                environment=environment,
                template=KeyTemplate(landing.template),
            )
            return await chain.next_offset()

        ends = await each(end, partitions)
        return {w: n for w, n in zip(partitions, ends, strict=True) if n is not None}

    return read_store(landing.store, look)
