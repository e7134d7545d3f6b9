"""Reads a pipeline file: a short TOML file, or a Python file with a function.

Owns the meaning of every key, the defaults, and all mistakes that can be found without a store, a
broker or Spark. Must never open one of them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast.addresses import is_local_address, local_path
from holdfast.columnar.schema import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.errors import ConfigurationError
from holdfast.landing.keys import DEFAULT_TEMPLATE
from holdfast.quantities import duration_ms
from holdfast.settings_file import (
    KeyPlaces,
    Table,
    check_tables,
    convert,
    located,
    no_file,
    read_toml,
    spark_settings,
    with_current_names,
    with_overrides,
)
from holdfast.spark.ledger.chain_sink import LAYOUTS, ChainLanding
from holdfast.spark.ledger.job import FORMATS, Dedup, Job, Operation, Output, Timers
from holdfast.spark.ledger.operations import columns_of
from holdfast.spark.pipelines.columns import check_columns
from holdfast.spark.pipelines.steps import FOLLOWERS, followers_of, name_of, step_of
from holdfast.spark.pipelines.tables import (
    PIPELINE,
    PipelineOutputTable,
    PipelineSparkTable,
    TransformTable,
    source_options,
)
from holdfast.spark.pipelines.transform import (
    FUNCTION,
    NeedsSession,
    Transform,
    load_module,
    load_transform,
    options_in,
)
from holdfast.spark.source.kafka_options import client_options
from holdfast.spark.source.options import OnUnreadable, Rows, SourceOptions, parse_options
from holdfast.spark.source.rows import HEADER_MARK
from holdfast.spark.tables.follower import TableFollower

RECORDS_PER_TRIGGER = 1_000_000
"""The default limit: a first run must not take all of a large topic in one micro-batch."""
POLL_MS = 1_000
ONCE = ("once", "availablenow", "available now", "available-now")
STARTS = (
    *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
    "startingoffsetsbytimestampstrategy",
)
"""Options, in lower case, that say where a new query begins."""
_PATHS = (
    *(("source", "store"), ("source", "quarantineStore")),
    *(("output", "to"), ("output", "checkpoint"), ("transform", "python")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When micro-batches begin."""

    interval_ms: int | None
    """The time between micro-batches. None: take all that is there now, and end."""

    def for_spark(self) -> dict[str, Any]:
        if self.interval_ms is None:
            return {"availableNow": True}
        return {"processingTime": f"{min(self.interval_ms, POLL_MS)} milliseconds"}

    def source_options(self, given: Mapping[str, str], *, has_timers: bool) -> dict[str, str]:
        """Return options that start a micro-batch once per interval, or earlier if one is full.

        With Spark's own interval, a backlog would be processed at one micro-batch per interval.
        Timers also need micro-batches without records.
        """
        names = {name.lower() for name in given}
        more: dict[str, str] = {}
        if has_timers and "tickinterval" not in names:
            more["tickInterval"] = f"{self.interval_ms or POLL_MS}ms"
        is_slow = self.interval_ms is not None and self.interval_ms > POLL_MS
        if is_slow and names.isdisjoint(("minoffsetspertrigger", "maxtriggerdelay")):
            more["minOffsetsPerTrigger"] = given["maxOffsetsPerTrigger"]
            more["maxTriggerDelay"] = f"{self.interval_ms}ms"
        return more


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A pipeline file, read and checked. Nothing was opened."""

    origin: KeyPlaces
    source: Mapping[str, str]
    """The options of the source, with Holdfast's defaults."""
    options: SourceOptions
    """The same options, parsed."""
    sink: Job | ChainLanding
    """The output: files that a ledger names, or landing chains."""
    tables: tuple[TableFollower, ...]
    """The tables that follow that ledger."""
    transform: Transform | None
    trigger: Trigger
    checkpoint: str
    master: str
    conf: Mapping[str, str]

    @property
    def to(self) -> str:
        return self.sink.output.store if isinstance(self.sink, Job) else self.sink.store

    @property
    def where(self) -> str:
        """The address of the source, for people."""
        return self.options.store or self.options.bootstrap_servers or ""


def read_pipeline(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    master: str | None = None,
    once: bool = False,
    hint: Callable[[str], None] = lambda _: None,
) -> PipelineFile:
    """Read a .toml or .py file; ConfigurationError names file, line or key, and the remedy.

    `hint` is called with a message about anything that works but is written in an old way.
    """
    path = path.expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(no_file(path, (".toml", ".py")))
    text, tables = "", cast("Mapping[str, Any]", {})
    match path.suffix:
        case ".toml":
            text = path.read_text()
            tables = read_toml(path.name, text)
        case ".py":
            tables = options_in(load_module(path), path)
        case _:
            raise ConfigurationError(
                f"{path.name}: a pipeline is a .toml file, or a .py file with `def {FUNCTION}`"
            )
    renamed, written = with_current_names(tables, PIPELINE, path.name, hint)
    changed, overridden = with_overrides(renamed, overrides, PIPELINE, hint)
    for table, key in overridden & set(_PATHS):
        changed[table][key] = located(str(changed[table][key]), Path.cwd())
    if path.suffix == ".py":
        changed.setdefault("transform", {"python": path.name})
    if once and isinstance(changed.get("output"), dict):
        changed["output"]["trigger"] = "once"
    if master is not None:
        changed["spark"] = {**changed.get("spark", {}), "master": master}
    origin = KeyPlaces(
        name=path.name, text=text, overridden=overridden, known=PIPELINE, written=written
    )
    return _built(path, check_tables(changed, origin), origin, hint)


def spark_of(
    path: Path, overrides: Sequence[str], needs: NeedsSession, *, master: str | None
) -> tuple[str, Mapping[str, str]]:
    """Return master and settings of a pipeline whose Python file needs Spark to be loaded.

    They come from the TOML file, or from the OPTIONS that the Python file had defined by then.
    """
    path = path.expanduser().absolute()
    text = path.read_text() if path.suffix == ".toml" else ""
    tables = read_toml(path.name, text) if text else options_in(needs.module, path)
    renamed, written = with_current_names(tables, PIPELINE, path.name, lambda _: None)
    changed, overridden = with_overrides(renamed, overrides, PIPELINE)
    origin = KeyPlaces(
        name=path.name, text=text, overridden=overridden, known=PIPELINE, written=written
    )
    spark = convert(changed.get("spark", {}), "spark", PipelineSparkTable, origin)
    return master or spark.master, spark_settings(spark.conf, origin)


def _with_format(
    output: PipelineOutputTable, origin: KeyPlaces, hint: Callable[[str], None]
) -> PipelineOutputTable:
    """Return the output with the internal name of its format.

    jsonl is `jsonl.zst`, or `jsonl.zst/envelope` for that layout.
    """
    if output.format.startswith("jsonl.zst"):
        layout = ' and layout = "envelope"' if output.format.endswith("/envelope") else ""
        hint(f'{origin.name}: [output] format = "{output.format}" is now format = "jsonl"{layout}')
        return output
    if output.layout is not None and output.format != "jsonl":
        raise origin.error(
            f'layout is for format = "jsonl", and the format is {output.format!r}: remove it',
            "output",
            "layout",
        )
    if output.format != "jsonl":
        return output
    inside = "jsonl.zst/envelope" if output.layout == "envelope" else "jsonl.zst"
    return msgspec.structs.replace(output, format=inside)


def _built(
    path: Path, tables: dict[str, Table], origin: KeyPlaces, hint: Callable[[str], None]
) -> PipelineFile:
    output = convert(tables["output"], "output", PipelineOutputTable, origin)
    output = _with_format(output, origin, hint)
    transform = _transform(tables, path, origin)
    operation = step_of(tables, origin)
    to = _output_address(output.to, path, origin)
    source, options = _source(tables["source"], path, operation, transform, origin, to=to)
    sink: Job | ChainLanding
    if _is_chain(output, tables, operation, origin):
        sink = _landing(output, to, options, origin)
        name = f"chain-{path.stem}"
    else:
        sink = Job(output=_ledgered(output, to, path, origin), operation=operation)
        name = sink.output.sink_id
        if transform is None:
            schema = SCHEMA_WITH_HEADERS if options.include_headers else SCHEMA
            check_columns(sink, schema, origin)
    trigger = _trigger(output, origin)
    source |= trigger.source_options(source, has_timers=isinstance(operation, Timers))
    spark = convert(tables.get("spark", {}), "spark", PipelineSparkTable, origin)
    return PipelineFile(
        origin=origin,
        source=source,
        options=parse_options(source, streaming=True),
        sink=sink,
        tables=_followers(tables, output, origin),
        transform=transform,
        trigger=trigger,
        checkpoint=_checkpoint(output, to, name, path, origin),
        master=spark.master,
        conf=spark_settings(spark.conf, origin),
    )


def _source(
    table: Table,
    path: Path,
    operation: Operation | None,
    transform: Transform | None,
    origin: KeyPlaces,
    *,
    to: str,
) -> tuple[dict[str, str], SourceOptions]:
    given = source_options(table, origin)
    names = {name.lower(): name for name in given}
    if "rows" in names:
        raise origin.error(
            "rows cannot be set in a pipeline, since [transform] decides it: remove it",
            "source",
            names["rows"],
        )
    if "store" in names:
        given[names["store"]] = located(given[names["store"]], path.parent)
    if "quarantinestore" in names:
        kept = names["quarantinestore"]
        given[kept] = located(given[kept], path.parent)
    if not set(names) & set(STARTS):
        given["startingOffsets"] = "earliest"
    limit = given.pop(names.get("maxoffsetspertrigger", ""), str(RECORDS_PER_TRIGGER))
    given["maxOffsetsPerTrigger"] = limit
    if transform is None:
        given["rows"] = Rows.RANGES.value
        if "unreadable" not in names:
            # These runs count and show what they leave out. With a transform, nothing counts it.
            given["unreadable"] = OnUnreadable.QUARANTINE.value
        wanted = operation.by if isinstance(operation, Dedup) else ()
        if "includeheaders" not in names and any(w.startswith(HEADER_MARK) for w in wanted):
            given["includeHeaders"] = "true"
    quarantines = given.get(names.get("unreadable", "unreadable")) == OnUnreadable.QUARANTINE.value
    if quarantines and "quarantinestore" not in names:
        given["quarantineStore"] = to
    try:
        options = parse_options(given, streaming=True)
        if options.bootstrap_servers is not None:
            client_options(options.bootstrap_servers, options.client)
    except ConfigurationError as wrong:
        said = str(wrong)
        named = {name: place for name in given if (place := _named_at(said, name)) is not None}
        key = min(named, key=lambda name: named[name], default=None)
        raise origin.error(said.removeprefix(f"{key}: "), "source", key) from wrong
    return given, options


def _named_at(message: str, option: str) -> int | None:
    """Return where the beginning of a message names an option, or None.

    The option that is named first is the wrong one; others may be named in the remedy.
    """
    begins = message.lower()[:80]
    found = re.search(rf"(?<![\w.]){re.escape(option.lower())}(?![\w.])", begins)
    return None if found is None else found.start()


def _transform(tables: Mapping[str, Table], path: Path, origin: KeyPlaces) -> Transform | None:
    if "transform" not in tables:
        return None
    table = convert(tables["transform"], "transform", TransformTable, origin)
    file, _, function = table.python.partition(":")
    code = Path(located(file, path.parent))
    if not code.is_file():
        raise origin.error(no_file(code, (".toml", ".py")), "transform", "python")
    try:
        return load_transform(code, function or FUNCTION)
    except NeedsSession:
        raise
    except ConfigurationError as wrong:
        raise origin.error(str(wrong), "transform", "python") from wrong


def _is_chain(
    output: PipelineOutputTable,
    tables: Mapping[str, Table],
    operation: Operation | None,
    origin: KeyPlaces,
) -> bool:
    """True if the output is chains: by default, if nothing is asked for that needs a ledger."""
    for_ledger: dict[str, object] = {
        f"[{name_of(operation)}]": operation,
        "[transform]": tables.get("transform"),
        "partition_by": output.partition_by,
        "sink_id": output.sink_id,
        **{f"[{name}]": tables.get(name) for name in FOLLOWERS},
    }
    asked = [name for name, value in for_ledger.items() if value is not None]
    mode = output.mode or ("ledger" if asked else "chain")
    if mode == "chain" and asked:
        raise origin.error(
            f'mode = "chain" copies records as they are, and {asked[0]} needs mode = "ledger":'
            f" change the mode, or remove {asked[0]}",
            "output",
            "mode",
        )
    if mode == "ledger" and output.key is not None:
        raise origin.error(
            'key is for mode = "chain", and with mode = "ledger" Holdfast names the files: remove'
            " it, and use partition_by for folders",
            "output",
            "key",
        )
    return mode == "chain"


def _ledgered(output: PipelineOutputTable, to: str, path: Path, origin: KeyPlaces) -> Output:
    if output.sink_id is None:
        raise origin.error(
            f'sink_id is missing: add sink_id = "{path.stem}". It names the ledger of this output;'
            " never change it while you keep the output",
            "output",
        )
    try:
        return Output(
            store=to,
            sink_id=output.sink_id,
            format=output.format,
            partition_by=columns_of(output.partition_by),
        )
    except ConfigurationError as wrong:
        key = "format" if output.format not in FORMATS else "sink_id"
        raise origin.error(str(wrong), "output", key) from wrong


def _followers(
    tables: Mapping[str, Table], output: PipelineOutputTable, origin: KeyPlaces
) -> tuple[TableFollower, ...]:
    found = followers_of(tables, origin)
    if found and output.format != "parquet":
        raise origin.error(
            f"Delta and Iceberg tables need Parquet files, and the format is {output.format!r}: use"
            ' format = "parquet", or remove the table',
            "output",
            "format",
        )
    return found


def _landing(
    output: PipelineOutputTable, to: str, options: SourceOptions, origin: KeyPlaces
) -> ChainLanding:
    if output.format not in LAYOUTS:
        raise origin.error(
            f"there is no format {output.format!r} for chains: use {' or '.join(LAYOUTS)}",
            "output",
            "format",
        )
    try:
        return ChainLanding(
            store=to,
            format=output.format,
            template=output.key or DEFAULT_TEMPLATE,
            cover_hole=not options.fail_on_data_loss,
        )
    except ConfigurationError as wrong:
        raise origin.error(str(wrong), "output", "key") from wrong


def _trigger(output: PipelineOutputTable, origin: KeyPlaces) -> Trigger:
    if output.trigger.strip().lower() in ONCE:
        return Trigger(interval_ms=None)
    try:
        interval_ms = duration_ms(output.trigger)
    except ConfigurationError as wrong:
        raise origin.error(f'{wrong}, or "once"', "output", "trigger") from wrong
    return Trigger(interval_ms=interval_ms)


def _output_address(text: str, path: Path, origin: KeyPlaces) -> str:
    if not text.strip():
        raise origin.error("it is empty: name a directory, s3://, gs:// or az://", "output", "to")
    if text.startswith("memory:"):
        raise origin.error(
            "memory:// cannot be shared between Spark's processes: use a directory, s3://, gs:// or"
            " az://",
            "output",
            "to",
        )
    return located(text, path.parent)


def _checkpoint(
    output: PipelineOutputTable, to: str, name: str, path: Path, origin: KeyPlaces
) -> str:
    if output.checkpoint is None:
        if not is_local_address(to):
            raise origin.error(
                "checkpoint is missing, and is needed where `to` is not a directory: add"
                f' checkpoint = "/var/lib/holdfast/{name}", a directory on a lasting disk, or an'
                " address that this Spark can write to (s3a:// needs Hadoop's jars:"
                " spark.jars.packages in [spark.conf]). If it is ever lost, the next run continues"
                " after what has landed",
                "output",
            )
        return f"{local_path(to)}.checkpoints/{name}"
    place = located(output.checkpoint, path.parent)
    if is_local_address(to) and is_local_address(place):
        inside = local_path(place)
        if inside == local_path(to) or local_path(to) in inside.parents:
            raise origin.error(
                f"{place} is inside the output directory: put it beside, as in"
                f" {local_path(to)}.checkpoints/{name}",
                "output",
                "checkpoint",
            )
    return place
