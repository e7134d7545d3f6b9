"""`holdfast topic consume`: print records as lines, to the end of the log or until it is stopped.

Owns the options, the start position, and when the command ends. With a group it commits exactly
what was written out. Must never commit a record that the reader of its output may not have.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import click

from holdfast.cli.asking import find_topic, run_with_cluster
from holdfast.cli.options import bootstrap_option, examples
from holdfast.cli.records.group_reading import GroupReading
from holdfast.cli.records.record_lines import Shown, json_line, separator_bytes, text_line
from holdfast.cli.suggestions import SuggestingChoice
from holdfast.client.cluster import Cluster
from holdfast.client.reader import (
    FROM_THE_BEGINNING,
    AtEnd,
    AtOffset,
    AtTime,
    BeforeEnd,
    FetchedRecords,
    Start,
    TopicReader,
    start_offsets,
)
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.quantities import is_number, since_ms

EXIT_UNREADABLE = 2
EXIT_INTERRUPTED = 130
LOOK_S = 10.0
"""How often a followed topic is checked for new partitions."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The parsed options of `holdfast topic consume`."""

    topic: str
    partitions: frozenset[int]
    start: Start
    follows: bool
    records_max: int | None
    group: str | None
    as_json: bool
    shown: Shown
    read_committed: bool


@click.command(
    epilog=examples(
        "holdfast topic consume orders --max-messages 10 --print-key",
        "holdfast topic consume orders --since 10m --json",
        "holdfast topic consume orders --follow --group audit",
    )
)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="The same as --offset earliest.")
@click.option(
    "--offset",
    metavar="WHERE",
    help="Begin at: earliest, latest, an offset, or -N for the last N records of each partition.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Begin at a time: 10m (ten minutes ago), 2026-01-01T00:00 (UTC), or milliseconds since"
    " 1970.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for more records until Ctrl-C.")
@click.option(
    "--max-messages",
    "-n",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="End after this many records.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Read this partition only. Can be repeated.",
)
@click.option(
    "--group", help="Read as a member of this consumer group, and commit what was printed."
)
@click.option(
    "--format",
    "format_",
    default="text",
    show_default=True,
    type=SuggestingChoice(["text", "json"]),
    help="text: the value of a record on each line. json: a JSON object on each line.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option("--print-partition", is_flag=True, help="Print the partition before the value.")
@click.option("--print-offset", is_flag=True, help="Print the offset before the value.")
@click.option("--print-timestamp", is_flag=True, help="Print the timestamp before the value.")
@click.option("--print-headers", is_flag=True, help="Print the headers before the value.")
@click.option(
    "--key-separator",
    default="\\t",
    show_default=True,
    metavar="TEXT",
    help="The text between the printed parts of a record.",
)
@click.option(
    "--isolation-level",
    default="read_uncommitted",
    show_default=True,
    type=SuggestingChoice(["read_uncommitted", "read_committed"]),
    help="read_committed leaves out records of open and aborted transactions.",
)
@bootstrap_option
def consume(topic: str, bootstrap: str, **given: Any) -> None:
    """Print the records of TOPIC.

    Begins at the earliest record and ends at the current end of the topic. With --follow it begins
    at the end and waits for new records. With --group it begins at the group's committed offsets,
    where there are any.
    """
    wanted = _wanted(topic, **given)
    sys.exit(run_with_cluster(bootstrap, lambda cluster: Consumption(cluster, wanted).run()))


def _wanted(
    topic: str,
    *,
    from_beginning: bool,
    offset: str | None,
    since: str | None,
    follow: bool,
    max_messages: int | None,
    partitions: Collection[int],
    group: str | None,
    format_: str,
    as_json: bool,
    key_separator: str,
    isolation_level: str,
    **prints: bool,
) -> ConsumeOptions:
    if from_beginning + (offset is not None) + (since is not None) > 1:
        raise click.UsageError("use only one of --from-beginning, --offset and --since")
    if group is not None and partitions:
        raise click.UsageError(
            "--group and --partition exclude each other, since a group assigns the partitions:"
            " remove one of them"
        )
    if group == "":
        raise click.BadParameter("it is empty: name a group", param_hint="--group")
    start: Start = AtEnd() if follow else FROM_THE_BEGINNING
    if from_beginning:
        start = FROM_THE_BEGINNING
    elif offset is not None:
        start = _start(offset)
    elif since is not None:
        start = AtTime(since_ms(since, now_ms=SystemEnvironment().now_ms()))
    shown = {name.removeprefix("print_"): is_shown for name, is_shown in prints.items()}
    return ConsumeOptions(
        topic=topic,
        partitions=frozenset(partitions),
        start=start,
        follows=follow,
        records_max=max_messages,
        group=group,
        as_json=as_json or format_ == "json",
        shown=Shown(**shown, separator=separator_bytes(key_separator)),
        read_committed=isolation_level == "read_committed",
    )


def _start(text: str) -> Start:
    lower = text.strip().lower()
    if lower in ("earliest", "latest"):
        return FROM_THE_BEGINNING if lower == "earliest" else AtEnd()
    digits = lower.removeprefix("-")
    if not is_number(digits):
        raise click.BadParameter(
            f"{text!r} is none of earliest, latest, an offset such as 1200, or -10 for the last"
            " 10; for a time use --since",
            param_hint="--offset",
        )
    return AtOffset(int(digits)) if lower == digits else BeforeEnd(int(digits))


class Consumption:
    """One run of `holdfast topic consume`."""

    def __init__(self, cluster: Cluster, wanted: ConsumeOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._stop = asyncio.Event()
        self._printed = 0
        self._is_interrupted = False
        self._is_output_closed = False
        self._reader = TopicReader(
            cluster.sibling(), wanted.topic, read_committed=wanted.read_committed, tell=_tell
        )

    async def run(self) -> int:
        """Print records until done; return the exit code."""
        topic = await find_topic(self._cluster, self._wanted.topic)
        unknown = sorted(self._wanted.partitions - topic.leaders.keys())
        if unknown:
            raise ConfigurationError(
                f"topic {topic.name!r} has no partition {unknown[0]}: there are 0 to"
                f" {max(topic.leaders)}"
            )
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._interrupt)
        try:
            if self._wanted.group is None:
                await self._read_alone(self._wanted.partitions or topic.leaders.keys())
            else:
                await self._read_in_group(self._wanted.group)
        finally:
            await self._reader.close()
        if self._reader.batches_unreadable:
            return EXIT_UNREADABLE
        return EXIT_INTERRUPTED if self._is_interrupted and not self._wanted.follows else 0

    def _interrupt(self) -> None:
        """Stop cleanly at the first signal, and let the next one end the process."""
        self._is_interrupted = True
        self._stop.set()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    async def _read_alone(self, partitions: Collection[int]) -> None:
        await self._add(partitions, self._wanted.start)
        look_at = self._cluster.environment.monotonic() + LOOK_S
        while not self._stop.is_set() and (self._wanted.follows or self._reader.unfinished):
            for found in await self._next_round():
                if not self._stop.is_set():
                    self._reader.move(found.where.partition, await self._print(found))
            if self._wanted.follows and self._cluster.environment.monotonic() >= look_at:
                look_at = self._cluster.environment.monotonic() + LOOK_S
                await self._look_for_partitions()

    async def _add(self, partitions: Collection[int], start: Start) -> None:
        starts = {TopicPartition(self._wanted.topic, number): start for number in partitions}
        offsets = await start_offsets(
            self._cluster, starts, read_committed=self._wanted.read_committed
        )
        for where, (position, end) in offsets.items():
            self._reader.add(where.partition, position, None if self._wanted.follows else end)

    async def _look_for_partitions(self) -> None:
        if self._wanted.partitions:
            return
        topic = await find_topic(self._cluster, self._wanted.topic)
        await self._add(topic.leaders.keys() - self._reader.positions.keys(), FROM_THE_BEGINNING)

    async def _next_round(self) -> list[FetchedRecords]:
        """Return the next records, or an empty list if a signal comes first."""
        fetching = asyncio.ensure_future(self._reader.fetch_round())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([fetching, stopping], return_when=asyncio.FIRST_COMPLETED)
            return fetching.result() if fetching.done() else []
        finally:
            for task in (fetching, stopping):
                task.cancel()
            await asyncio.gather(fetching, stopping, return_exceptions=True)

    async def _print(self, found: FetchedRecords) -> int:
        """Write the records out; return the offset to continue at."""
        wanted, end = self._wanted, self._reader.ends.get(found.where.partition)
        lines: list[bytes] = []
        position = found.next_offset
        for record in found.records:
            if end is not None and record.offset >= end:
                position = end
                break
            lines.append(
                json_line(found.where, record)
                if wanted.as_json
                else text_line(found.where, record, wanted.shown)
            )
            self._printed += 1
            if self._printed == wanted.records_max:
                self._stop.set()
                position = record.offset + 1
                break
        if lines:
            await self._write(b"".join(lines))
        return position

    async def _write(self, data: bytes) -> None:
        """Write in a thread, so that a slow reader of the output does not hold up heartbeats."""

        def write() -> None:
            # Not through sys.stdout: with PYTHONUNBUFFERED it writes only a part to a full pipe.
            left = memoryview(data)
            while left:
                left = left[os.write(sys.stdout.fileno(), left) :]

        try:
            await asyncio.to_thread(write)
        except BrokenPipeError:
            # The reader has closed the output. The interpreter must not flush to it at exit.
            self._is_output_closed = True
            self._stop.set()
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    async def _read_in_group(self, group: str) -> None:
        wanted = self._wanted
        reading = GroupReading(
            self._cluster,
            self._reader,
            group=group,
            topic=wanted.topic,
            start=wanted.start,
            follows=wanted.follows,
            read_committed=wanted.read_committed,
        )
        async with reading:
            while not self._stop.is_set():
                if await reading.is_done():
                    break
                for found in await self._next_round():
                    async with reading.hold(found.where) as is_owned:
                        if not is_owned or self._stop.is_set():
                            continue
                        position = await self._print(found)
                        if not self._is_output_closed:
                            reading.written(found.where, position)
                await reading.rest()


def _tell(text: str) -> None:
    click.echo(f"holdfast: {text}", err=True)
