"""Read a sink's TOML file into its settings.

Owns the meaning of every key, and every check that needs neither a store nor a broker. The defaults
are those of the settings. Must never open anything but the file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.client.address import parse_bootstrap, parse_listen
from holdfast.client.membership.interface import MemberSettings
from holdfast.errors import ConfigurationError
from holdfast.identifiers import topic_name_problem
from holdfast.landing.keys import KeyTemplate
from holdfast.quantities import duration_ms, size_bytes
from holdfast.settings_file import (
    KeyPlaces,
    Table,
    check_tables,
    convert,
    dotted,
    located,
    no_file,
    read_toml,
    spark_settings,
    with_current_names,
    with_overrides,
)
from holdfast.sink.config_tables import (
    SINK,
    BatchTable,
    HttpTable,
    LimitsTable,
    Quantity,
    SinkOutputTable,
    SinkSparkTable,
    SourceTable,
    why_refused,
)
from holdfast.sink.settings import BatchBounds, OutputSettings, SinkLimits, SinkSettings
from holdfast.suggestion import no_such_value

T = TypeVar("T")

INT32_MAX = 2**31 - 1
MEMORY_MIN = 1024 * 1024
UPLOADS_MAX = 1_000
FETCH_SHARE = 4
"""Without fetch.max.bytes, a fetch response takes at most the memory divided by this."""
LEVELS = {"zstd": (1, 19), "gzip": (1, 9)}
RESETS: Mapping[str, Literal["earliest", "latest"]] = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
}
"""Values of startingOffsets, with their synonyms in other Kafka clients."""
PROTOCOLS: Mapping[str, Literal["consumer", "classic"]] = {
    "consumer": "consumer",
    "classic": "classic",
}


def read_sink(
    path: Path, overrides: Sequence[str] = (), *, hint: Callable[[str], None] = lambda _: None
) -> SinkSettings:
    """Read a .toml file. A ConfigurationError names file, line, table and key, and the remedy.

    `hint` is called for each old name that still works.
    """
    path = path.expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(no_file(path, (".toml",)))
    text = path.read_text()
    tables = read_toml(path.name, text)
    renamed, written = with_current_names(tables, SINK, path.name, hint)
    changed, overridden = with_overrides(renamed, overrides, SINK, hint)
    if ("output", "to") in overridden:
        changed["output"]["to"] = located(str(changed["output"]["to"]), Path.cwd())
    origin = KeyPlaces(
        name=path.name, text=text, overridden=overridden, known=SINK, written=written
    )
    return _Reader(check_tables(changed, origin), origin, path.parent).settings()


class _Reader:
    """The tables of one file, with the place of each key for error messages."""

    def __init__(self, tables: Mapping[str, Table], origin: KeyPlaces, folder: Path) -> None:
        self._tables = tables
        self._origin = origin
        self._folder = folder

    def settings(self) -> SinkSettings:
        flat = dotted("", self._tables["source"])
        for key in flat:
            why = None if key in SINK.keys_of("source") else why_refused(key)
            if why is not None:
                raise self._origin.error(why, "source", key)
        source = convert(flat, "source", SourceTable, self._origin)
        self._checked(
            "source", "kafka.bootstrap.servers", parse_bootstrap, source.bootstrap_servers
        )
        limits = self._limits()
        spark = convert(self._tables.get("spark", {}), "spark", SinkSparkTable, self._origin)
        settings = SinkSettings(
            bootstrap=source.bootstrap_servers,
            member=self._member(source),
            output=self._output(source),
            batch=self._batch(),
            limits=limits,
            http=self._http(),
            spark_master=spark.master,
            spark_conf=spark_settings(spark.conf, self._origin),
            **_given(
                offset_reset=self._one_of("startingOffsets", source.starting_offsets, RESETS),
                read_committed=self._one_of(
                    "kafka.isolation.level",
                    source.isolation_level,
                    {"read_committed": True, "read_uncommitted": False},
                ),
                fetch_max_bytes=self._size(
                    "source", "kafka.fetch.max.bytes", source.fetch_max_bytes
                ),
                fetch_max_wait_ms=self._time(
                    "source", "kafka.fetch.max.wait.ms", source.fetch_max_wait_ms, least=0
                ),
            ),
        )
        if source.fetch_max_bytes is None:
            most = limits.memory_bytes // FETCH_SHARE
            return replace(settings, fetch_max_bytes=min(settings.fetch_max_bytes, most))
        if settings.fetch_max_bytes > limits.memory_bytes:
            raise self._origin.error(
                f"it is {settings.fetch_max_bytes} bytes, more than the {limits.memory_bytes} bytes"
                " of memory below [limits]: make it smaller, or memory larger",
                "source",
                "kafka.fetch.max.bytes",
            )
        return settings

    def _member(self, source: SourceTable) -> MemberSettings:
        if not source.group_id.strip():
            raise self._origin.error(
                'it is empty: name the group, as in "orders-to-s3"', "source", "kafka.group.id"
            )
        protocol = self._one_of(
            "kafka.group.protocol",
            source.group_protocol,
            PROTOCOLS,
        )
        if protocol == "consumer":
            for key, value in (
                ("kafka.session.timeout.ms", source.session_timeout_ms),
                ("kafka.heartbeat.interval.ms", source.heartbeat_interval_ms),
            ):
                if value is not None:
                    raise self._origin.error(
                        'with kafka.group.protocol = "consumer" the broker decides this (its group'
                        f" setting consumer.{key.removeprefix('kafka.')}): remove it, or use"
                        ' kafka.group.protocol = "classic"',
                        "source",
                        key,
                    )
        member = MemberSettings(
            group_id=source.group_id,
            topics=self._topics(source),
            pattern=self._pattern(source),
            protocol=protocol,
            instance_id=self._not_empty("kafka.group.instance.id", source.group_instance_id),
            rack=self._not_empty("kafka.client.rack", source.client_rack),
            **_given(
                client_id=self._not_empty("kafka.client.id", source.client_id),
                session_timeout_ms=self._time(
                    "source", "kafka.session.timeout.ms", source.session_timeout_ms
                ),
                heartbeat_interval_ms=self._time(
                    "source", "kafka.heartbeat.interval.ms", source.heartbeat_interval_ms
                ),
                rebalance_timeout_ms=self._time(
                    "source", "kafka.max.poll.interval.ms", source.max_poll_interval_ms
                ),
            ),
        )
        if member.heartbeat_interval_ms >= member.session_timeout_ms:
            raise self._origin.error(
                f"the heartbeat interval ({member.heartbeat_interval_ms} ms) must be less than"
                f" kafka.session.timeout.ms ({member.session_timeout_ms} ms): a third of it is"
                " usual",
                "source",
                "kafka.heartbeat.interval.ms"
                if source.heartbeat_interval_ms is not None
                else "kafka.session.timeout.ms",
            )
        return member

    def _topics(self, source: SourceTable) -> tuple[str, ...]:
        given = source.subscribe
        if (given is None) == (source.subscribe_pattern is None):
            problem = (
                "subscribe is missing" if given is None else "there is subscribePattern as well"
            )
            raise self._origin.error(
                f'{problem}: set one of subscribe = ["orders"] and subscribePattern = "orders-.*"',
                "source",
                None if given is None else "subscribe",
            )
        names = given.split(",") if isinstance(given, str) else given or []
        names = [name.strip() for name in names]
        for name in names:
            problem = topic_name_problem(name)
            if problem is not None:
                raise self._origin.error(
                    f"{name!r} is not a topic name: {problem}. For a pattern use subscribePattern",
                    "source",
                    "subscribe",
                )
        if given is not None and not names:
            raise self._origin.error(
                'it is empty: name at least one topic, as in subscribe = ["orders"]',
                "source",
                "subscribe",
            )
        return tuple(dict.fromkeys(names))

    def _pattern(self, source: SourceTable) -> str | None:
        pattern = self._not_empty("subscribePattern", source.subscribe_pattern)
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as wrong:
                raise self._origin.error(
                    f"{pattern!r} is not a regular expression: {wrong}. For names that begin with"
                    ' orders- write "orders-.*"',
                    "source",
                    "subscribePattern",
                ) from wrong
        return pattern

    def _on_data_loss(self, source: SourceTable) -> str | None:
        if source.fail_on_data_loss is None:
            return None
        return "fail" if source.fail_on_data_loss else "cover"

    def _output(self, source: SourceTable) -> OutputSettings:
        table = convert(self._tables["output"], "output", SinkOutputTable, self._origin)
        if not table.to.strip() or table.to.startswith("memory:"):
            problem = "it is empty" if not table.to.strip() else "memory:// ends with the process"
            raise self._origin.error(
                f"{problem}: name a directory, s3://, gs:// or az://", "output", "to"
            )
        output = OutputSettings(
            store=located(table.to, self._folder),
            **_given(
                template=self._checked("output", "key", KeyTemplate, table.key),
                format=table.format,
                layout=table.layout,
                compression=table.compression,
                level=table.level,
                bad_records=table.bad_records,
                on_data_loss=self._on_data_loss(source),
            ),
        )
        if table.layout is not None and output.format != "jsonl":
            raise self._origin.error(
                f'layout is for format = "jsonl", and the format is {output.format!r}: remove it',
                "output",
                "layout",
            )
        self._check_level(output)
        return output

    def _check_level(self, output: OutputSettings) -> None:
        if output.level is None:
            return
        least, most = LEVELS.get(output.compression, (0, -1))
        if not least <= output.level <= most:
            remedy = f"use {least} to {most}, or remove it" if most > 0 else "remove it"
            raise self._origin.error(
                f"compression {output.compression!r} has no level {output.level}: {remedy}",
                "output",
                "level",
            )

    def _batch(self) -> BatchBounds:
        table = convert(self._tables.get("batch", {}), "batch", BatchTable, self._origin)
        return BatchBounds(
            **_given(
                bytes_max=self._size("batch", "bytes", table.bytes),
                age_ms=self._time("batch", "age", table.age),
                records_max=self._number("batch", "records", table.records),
            )
        )

    def _limits(self) -> SinkLimits:
        table = convert(self._tables.get("limits", {}), "limits", LimitsTable, self._origin)
        limits = SinkLimits(
            **_given(
                memory_bytes=self._size("limits", "memory", table.memory, least=MEMORY_MIN),
                uploads=self._number("limits", "uploads", table.uploads, most=UPLOADS_MAX),
                record_bytes=self._size("limits", "record_bytes", table.record_bytes),
            )
        )
        if table.record_bytes is None:
            return replace(limits, record_bytes=min(limits.record_bytes, limits.memory_bytes))
        if limits.record_bytes > limits.memory_bytes:
            raise self._origin.error(
                f"it is {limits.record_bytes} bytes, more than the {limits.memory_bytes} bytes of"
                " memory: make it smaller, or memory larger",
                "limits",
                "record_bytes",
            )
        return limits

    def _http(self) -> str | None:
        table = convert(self._tables.get("http", {}), "http", HttpTable, self._origin)
        self._checked("http", "listen", parse_listen, table.listen)
        return table.listen

    def _size(self, table: str, key: str, given: Quantity | None, *, least: int = 1) -> int | None:
        return self._quantity(table, key, given, size_bytes, least)

    def _time(self, table: str, key: str, given: Quantity | None, *, least: int = 1) -> int | None:
        return self._quantity(table, key, given, duration_ms, least, most=INT32_MAX)

    def _quantity(
        self,
        table: str,
        key: str,
        given: Quantity | None,
        parse: Callable[[str], int],
        least: int,
        most: int | None = None,
    ) -> int | None:
        if isinstance(given, str) and given.isdecimal():
            given = int(given)
        value = self._checked(table, key, parse, given) if isinstance(given, str) else given
        return self._number(table, key, value, least=least, most=most)

    def _number(
        self, table: str, key: str, value: int | None, *, least: int = 1, most: int | None = None
    ) -> int | None:
        if value is not None and (value < least or (most is not None and value > most)):
            bound = f"at least {least}" if most is None else f"from {least} to {most}"
            raise self._origin.error(f"it is {value}: it must be {bound}", table, key)
        return value

    def _not_empty(self, key: str, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise self._origin.error("it is empty: remove it, or give it a value", "source", key)
        return text

    def _one_of(self, key: str, text: str | None, values: Mapping[str, T]) -> T | None:
        if text is None:
            return None
        if text.lower() not in values:
            names = [name for name, value in values.items() if value in (name, True, False)]
            raise self._origin.error(no_such_value(text, names), "source", key)
        return values[text.lower()]

    def _checked(
        self, table: str, key: str, parse: Callable[[str], T], text: str | None
    ) -> T | None:
        """Return the parsed text. An error gets the place of the key."""
        try:
            return None if text is None else parse(text)
        except ConfigurationError as wrong:
            raise self._origin.error(str(wrong), table, key) from wrong


def _given(**values: Any) -> dict[str, Any]:
    """Drop values that were not given, so that the defaults stay in one place."""
    return {name: value for name, value in values.items() if value is not None}
