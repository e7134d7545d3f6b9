"""From a pipeline file to what is to run: a short TOML file, or a Python file with a function.

Owns the meaning of every key, the defaults, and all that can be found wrong without looking at a
store, a broker or a Spark. Must never open one of them.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from holdfast.errors import CallError, ConfigurationError
from holdfast.keyed_state.dedup import DedupSettings, LatePolicy
from holdfast.landing.keys import DEFAULT_TEMPLATE
from holdfast.spark.builder import duration_ms
from holdfast.spark.chain_sink import LAYOUTS, Landing
from holdfast.spark.job import BUCKETS_DEFAULT, FORMATS, Dedup, Job, Output
from holdfast.spark.kafka_options import client_options
from holdfast.spark.options import Rows, SourceOptions, parse_options
from holdfast.spark.pipeline_columns import COLUMNS, HEADERS, check_columns
from holdfast.spark.pipeline_tables import (
    DedupTable,
    Origin,
    OutputTable,
    SparkTable,
    Table,
    TransformTable,
    check_tables,
    convert,
    dotted,
    option_text,
    read_toml,
    source_options,
    with_overrides,
)
from holdfast.spark.rows import HEADER_MARK
from holdfast.spark.transform import FUNCTION, Transform, load_module, load_transform, options_in

RECORDS_PER_TRIGGER = 1_000_000
"""A first run must not take all of a large topic in one micro-batch."""
POLL_MS = 1_000
ONCE = ("once", "availablenow", "available now", "available-now")
STARTS = (
    *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
    "startingoffsetsbytimestampstrategy",
)
"""What says where a new query begins, in lower case."""
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/")
_PATHS = (("source", "store"), ("output", "to"), ("output", "checkpoint"), ("transform", "python"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When micro-batches begin."""

    interval_ms: int | None
    """None: all that is there now, and then the end."""

    def for_spark(self) -> dict[str, Any]:
        if self.interval_ms is None:
            return {"availableNow": True}
        return {"processingTime": f"{min(self.interval_ms, POLL_MS)} milliseconds"}

    def source_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """What makes a micro-batch begin once in an interval, or earlier where a full one waits.

        With Spark's own interval a backlog would be worked off by one micro-batch in each.
        """
        if self.interval_ms is None or self.interval_ms <= POLL_MS:
            return {}
        return {
            "minOffsetsPerTrigger": given["maxOffsetsPerTrigger"],
            "maxTriggerDelay": f"{self.interval_ms}ms",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A pipeline, read and checked; nothing was opened."""

    origin: Origin
    source: Mapping[str, str]
    """The options of the source, with our defaults."""
    options: SourceOptions
    """The same, parsed."""
    sink: Job | Landing
    """Into files that a ledger names, or onto landing chains."""
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
        """Of the source, for people."""
        return self.options.store or self.options.bootstrap_servers or ""


def read_pipeline(
    path: Path, overrides: Sequence[str] = (), *, master: str | None = None, once: bool = False
) -> PipelineFile:
    """Read a .toml or a .py file; ConfigurationError names file, line or key, and the remedy."""
    path = path.expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(_no_file(path))
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
    changed, overridden = with_overrides(tables, overrides)
    for table, key in overridden & set(_PATHS):
        changed[table][key] = located(str(changed[table][key]), Path.cwd())
    if path.suffix == ".py":
        changed.setdefault("transform", {"python": path.name})
    if once and isinstance(changed.get("output"), dict):
        changed["output"]["trigger"] = "once"
    if master is not None:
        changed["spark"] = {**changed.get("spark", {}), "master": master}
    origin = Origin(name=path.name, text=text, overridden=overridden)
    return _built(path, check_tables(changed, origin), origin)


def _no_file(path: Path) -> str:
    there = [p.name for p in path.parent.glob("*") if p.suffix in (".toml", ".py")]
    near = difflib.get_close_matches(path.name, there, n=1)
    return f"there is no file {path}" + (f": did you mean {near[0]}?" if near else "")


def _built(path: Path, tables: dict[str, Table], origin: Origin) -> PipelineFile:
    output = convert(tables["output"], "output", OutputTable, origin)
    transform = _transform(tables, path, origin)
    dedup_table = None
    if "dedup" in tables:
        dedup_table = convert(tables["dedup"], "dedup", DedupTable, origin)
    dedup = _dedup(dedup_table, origin) if dedup_table is not None else None
    source, options = _source(tables["source"], path, dedup, transform, origin)
    to = _output_address(output.to, path, origin)
    sink: Job | Landing
    if _is_chain(output, dedup, transform, origin):
        sink = _landing(output, to, options, origin)
        name = f"chain-{path.stem}"
    else:
        sink = Job(output=_ledgered(output, to, path, origin), operation=dedup)
        name = sink.output.sink_id
        if transform is None:
            columns = (*COLUMNS, HEADERS) if options.include_headers else COLUMNS
            check_columns(sink, columns, origin)
    trigger = _trigger(output, origin)
    if {"minoffsetspertrigger", "maxtriggerdelay"}.isdisjoint(n.lower() for n in source):
        source |= trigger.source_options(source)
    spark = convert(tables.get("spark", {}), "spark", SparkTable, origin)
    return PipelineFile(
        origin=origin,
        source=source,
        options=parse_options(source, streaming=True),
        sink=sink,
        transform=transform,
        trigger=trigger,
        checkpoint=_checkpoint(output, to, name, path, origin),
        master=spark.master,
        conf=_conf(spark, origin),
    )


def _source(
    table: Table, path: Path, dedup: Dedup | None, transform: Transform | None, origin: Origin
) -> tuple[dict[str, str], SourceOptions]:
    given = source_options(table, origin)
    names = {name.lower(): name for name in given}
    if "rows" in names:
        raise origin.error(
            "rows cannot be set: records pass through Spark where there is a [transform], and only"
            " there; remove it",
            "source",
            names["rows"],
        )
    if "store" in names:
        given[names["store"]] = located(given[names["store"]], path.parent)
    if not set(names) & set(STARTS):
        given["startingOffsets"] = "earliest"
    limit = given.pop(names.get("maxoffsetspertrigger", ""), str(RECORDS_PER_TRIGGER))
    given["maxOffsetsPerTrigger"] = limit
    if transform is None:
        given["rows"] = Rows.RANGES.value
        wanted = (*dedup.by, dedup.event_time or "") if dedup is not None else ()
        if "includeheaders" not in names and any(w.startswith(HEADER_MARK) for w in wanted):
            given["includeHeaders"] = "true"
    try:
        options = parse_options(given, streaming=True)
        if options.bootstrap_servers is not None:
            client_options(options.bootstrap_servers, options.client)
    except ConfigurationError as wrong:
        said = str(wrong)
        key = next((name for name in given if _names(said, name)), None)
        raise origin.error(said, "source", key) from wrong
    return given, options


def _names(message: str, option: str) -> bool:
    """Whether a message begins by speaking of an option, so that its line can be told."""
    begins = message.lower()[:80]
    return re.search(rf"(?<![\w.]){re.escape(option.lower())}(?![\w.])", begins) is not None


def _dedup(table: DedupTable, origin: Origin) -> Dedup:
    spans: dict[str, int | None] = {}
    for name, text in (("within", table.within), ("lateness", table.lateness)):
        try:
            spans[name] = duration_ms(text) if text is not None else None
        except ConfigurationError as wrong:
            raise origin.error(str(wrong), "dedup", name) from wrong
    try:
        return Dedup(
            by=(table.by,) if isinstance(table.by, str) else tuple(table.by),
            settings=DedupSettings(
                within_ms=spans["within"],
                lateness_ms=spans["lateness"],
                late=LatePolicy(table.late),
            ),
            event_time=table.event_time,
            buckets=BUCKETS_DEFAULT if table.buckets is None else table.buckets,
        )
    except CallError as wrong:
        raise origin.error(str(wrong), "dedup") from wrong


def _transform(tables: Mapping[str, Table], path: Path, origin: Origin) -> Transform | None:
    if "transform" not in tables:
        return None
    table = convert(tables["transform"], "transform", TransformTable, origin)
    file, _, function = table.python.partition(":")
    code = Path(located(file, path.parent))
    if not code.is_file():
        raise origin.error(_no_file(code), "transform", "python")
    try:
        return load_transform(code, function or FUNCTION)
    except ConfigurationError as wrong:
        raise origin.error(str(wrong), "transform", "python") from wrong


def _is_chain(
    output: OutputTable, dedup: Dedup | None, transform: Transform | None, origin: Origin
) -> bool:
    """Records as they are go onto chains, unless something is asked for that only a ledger has."""
    for_ledger = {
        "[dedup]": dedup,
        "[transform]": transform,
        "partition_by": output.partition_by,
        "sink_id": output.sink_id,
    }
    asked = [name for name, value in for_ledger.items() if value is not None]
    mode = output.mode or ("ledger" if asked else "chain")
    if mode == "chain" and asked:
        raise origin.error(
            f"chains hold the records of a topic as they are, and {asked[0]} needs"
            f' mode = "ledger": change the mode, or remove {asked[0]}',
            "output",
            "mode",
        )
    if mode == "ledger" and output.key is not None:
        raise origin.error(
            'key is for mode = "chain": files of a ledger have names of their own; remove it, and'
            " use partition_by for folders",
            "output",
            "key",
        )
    return mode == "chain"


def _ledgered(output: OutputTable, to: str, path: Path, origin: Origin) -> Output:
    if output.sink_id is None:
        raise origin.error(
            f'sink_id is missing: add sink_id = "{path.stem}". It names the ledger of this output,'
            " and must stay the same for as long as the pipeline goes on",
            "output",
        )
    columns = output.partition_by or ()
    try:
        return Output(
            store=to,
            sink_id=output.sink_id,
            format=output.format,
            partition_by=(columns,) if isinstance(columns, str) else tuple(columns),
        )
    except ConfigurationError as wrong:
        key = "format" if output.format not in FORMATS else "sink_id"
        raise origin.error(str(wrong), "output", key) from wrong


def _landing(output: OutputTable, to: str, options: SourceOptions, origin: Origin) -> Landing:
    if output.format not in LAYOUTS:
        raise origin.error(
            f"there is no format {output.format!r} for chains: use {' or '.join(LAYOUTS)}",
            "output",
            "format",
        )
    try:
        return Landing(
            store=to,
            format=output.format,
            template=output.key or DEFAULT_TEMPLATE,
            cover_hole=not options.fail_on_data_loss,
        )
    except ConfigurationError as wrong:
        raise origin.error(str(wrong), "output", "key") from wrong


def _trigger(output: OutputTable, origin: Origin) -> Trigger:
    if output.trigger.strip().lower() in ONCE:
        return Trigger(interval_ms=None)
    try:
        interval_ms = duration_ms(output.trigger)
    except ConfigurationError as wrong:
        raise origin.error(f'{wrong}, or "once"', "output", "trigger") from wrong
    return Trigger(interval_ms=interval_ms)


def _output_address(text: str, path: Path, origin: Origin) -> str:
    if not text.strip():
        raise origin.error("it is empty: name a directory, s3://, gs:// or az://", "output", "to")
    if text.startswith("memory:"):
        raise origin.error(
            "a store in memory is seen by one process alone, and Spark has several: name a"
            " directory, s3://, gs:// or az://",
            "output",
            "to",
        )
    return located(text, path.parent)


def _checkpoint(output: OutputTable, to: str, name: str, path: Path, origin: Origin) -> str:
    if output.checkpoint is None:
        if not is_local_address(to):
            raise origin.error(
                "checkpoint is missing: an output that is not a directory needs one. Name a"
                " directory on a disk that outlives restarts, or an address that this Spark can"
                " write to (s3a:// needs Hadoop's jars: spark.jars.packages in [spark.conf]). If it"
                f' is ever lost, the next run goes on by what has landed: checkpoint = "/var/lib/'
                f'holdfast/{name}"',
                "output",
            )
        return f"{local_path(to)}.checkpoints/{name}"
    place = located(output.checkpoint, path.parent)
    if is_local_address(to) and is_local_address(place):
        inside = local_path(place)
        if inside == local_path(to) or local_path(to) in inside.parents:
            raise origin.error(
                f"{place} lies inside the output, which holds objects only: put it beside, as in"
                f" {local_path(to)}.checkpoints/{name}",
                "output",
                "checkpoint",
            )
    return place


def _conf(spark: SparkTable, origin: Origin) -> dict[str, str]:
    flat = {name: option_text(v, name, origin) for name, v in dotted("", spark.conf).items()}
    for name in flat:
        if not name.startswith("spark."):
            raise origin.error(
                f"{name!r} is no setting of Spark: they begin with spark., as in"
                ' "spark.driver.memory" = "4g"',
                "spark",
                "conf",
            )
    return flat


def located(text: str, folder: Path) -> str:
    """An address as it is; a path as seen from a folder."""
    if _SCHEME.match(text):
        return text
    return str(Path(folder, Path(text).expanduser()))


def is_local_address(text: str) -> bool:
    found = _SCHEME.match(text)
    return found is None or found[1] == "file"


def local_path(text: str) -> Path:
    return Path(re.sub(r"^file:/+", "/", text))
