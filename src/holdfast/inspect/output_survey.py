"""The check that what has landed is complete: chains without gaps, ledgers whose files all exist.

Owns the findings. It lists the store to find what chains and ledgers do not name. By default it
reads the facts of each object and compares sizes. With `verify` it reads and checks every byte.
Must never change anything, and never call complete what it could not follow to its end.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, HoldfastError, ObjectNotFound, RetryError
from holdfast.landing.data_files import (
    checksum_of,
    data_prefix,
    is_of_a_table,
    number_of,
    sink_id_problem,
)
from holdfast.landing.dead_letters import reasons_in
from holdfast.landing.facts import Facts
from holdfast.landing.formats.known import EXTENSIONS
from holdfast.landing.keys import KeyTemplate, offset_in
from holdfast.landing.landed import CommittedFiles, committed_files, is_dead, is_origin_key
from holdfast.landing.ledger_entry import FileRole, OutputFile, entry_prefix
from holdfast.landing.objects import read_facts, read_proved
from holdfast.landing.origin import ChainOrigin, read_origin
from holdfast.landing.parallel import AT_ONCE, each
from holdfast.landing.quarantine import QUARANTINE_PREFIX, read_quarantined
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently

OTHER_PARTS = ("ledger-summaries/", "state/", "tables/", "lanes/", "snapshots/", "floors/")
"""Folders of other parts of Holdfast, which the survey does not examine."""

_LANDED_NAME = re.compile(rf"(?:^|[^0-9])[0-9]{{20}}(?:{'|'.join(map(re.escape, EXTENSIONS))})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that makes the landed set incomplete or wrong."""

    kind: str
    """One of hole, overlap, missing, foreign, corrupt."""
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """The chain of one partition, as far as it can be followed from its origin."""

    topic: str
    partition: int
    format: str
    objects: int
    first_offset: int
    next_offset: int
    records: int
    bytes: int
    keys: tuple[str, ...]
    is_dead: bool = False
    """True for a chain of dead letters."""
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """The number of dead letters for each reason, in a chain of dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """The ledger of one sink, and the files beside it."""

    sink_id: str
    entries: int
    files: tuple[OutputFile, ...]
    rows: int
    late_rows: int
    """Rows in separate files, for records that came too late to be judged."""
    bytes: int
    orphans: tuple[ObjectEntry, ...]
    """Files that no entry names. They never count."""
    replaced: tuple[ObjectEntry, ...]
    """Files that a later entry replaced and that still exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedOffsets:
    """A record batch that a Spark job could not read, and stored."""

    key: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSurvey:
    """Everything that was found under one address."""

    store: str
    chains: tuple[ChainReport, ...]
    sinks: tuple[SinkReport, ...]
    problems: tuple[Problem, ...]
    quarantined: tuple[QuarantinedOffsets, ...]
    others: tuple[str, ...]
    """Objects that are not Holdfast's and disturb nothing."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


async def survey(
    store: Store, *, environment: Environment, topic: str | None = None, verify: bool = False
) -> OutputSurvey:
    """Examine everything under the store's address, or only the chains of one topic."""
    rows = await patiently(lambda: store.list(""), environment=environment)
    walk = _Survey(store, environment, {row.key: row for row in rows}, verify=verify)
    for key in sorted(filter(is_origin_key, walk.left)):
        await walk.chain(key, topic)
    sinks = {
        key.split("/")[1]
        for key in list(walk.left)
        if key.count("/") >= 2 and key.startswith(("ledger/", "data/"))
    }
    for sink_id in sorted(sinks if topic is None else ()):
        if sink_id_problem(sink_id) is None:
            await walk.sink(sink_id)
    for key in sorted(key for key in walk.left if key.startswith(QUARANTINE_PREFIX)):
        await walk.quarantined_batch(key, topic)
    if topic is None:
        walk.name_objects_without_origin()
    others = (key for key in walk.left if not key.startswith((*OTHER_PARTS, "ledger/")))
    return OutputSurvey(
        store=store.url,
        chains=tuple(sorted(walk.chains, key=lambda row: (row.topic, row.partition))),
        sinks=tuple(walk.sinks),
        problems=tuple(sorted(walk.problems, key=lambda found: found.key)),
        quarantined=tuple(walk.quarantined),
        others=tuple(sorted(others)) if topic is None else (),
    )


class _Survey:
    """One survey of one store: the keys not yet explained, and the findings."""

    def __init__(
        self,
        store: Store,
        environment: Environment,
        listed: Mapping[str, ObjectEntry],
        *,
        verify: bool,
    ) -> None:
        self.left = dict(listed)
        self.chains: list[ChainReport] = []
        self.sinks: list[SinkReport] = []
        self.quarantined: list[QuarantinedOffsets] = []
        self.problems: list[Problem] = []
        self._store = store
        self._environment = environment
        self._verify = verify
        # With verify, whole objects are in memory. Facts are small.
        self._at_once = 2 if verify else AT_ONCE

    def _problem(self, kind: str, key: str, problem: str) -> None:
        self.problems.append(Problem(kind=kind, key=key, problem=problem.removeprefix(f"{key}: ")))

    async def chain(self, origin_key: str, topic: str | None) -> None:
        """Check the chain that an origin begins, and report every problem in it."""
        del self.left[origin_key]
        try:
            origin = await read_origin(self._store, origin_key, environment=self._environment)
        except CorruptObject as error:
            self._problem("corrupt", origin_key, str(error))
            return
        if origin is None or topic not in (None, origin.topic):
            return
        template = KeyTemplate(origin.template)
        prefix = template.prefix(origin.topic, origin.partition)
        mine: dict[int, str] = {}
        for key in [key for key in self.left if key.startswith(prefix)]:
            offset = offset_in(key, prefix, origin.extension)
            del self.left[key]
            if offset is None:
                self._problem(
                    "foreign",
                    key,
                    f"it does not belong to the chain of {origin.topic}-{origin.partition}, but"
                    " readers of the folder would read it: move it to another folder",
                )
            else:
                mine[offset] = key
        read = [(origin, offset, key) for offset, key in mine.items()]
        facts = dict(zip(mine, await each(self._facts, read, at_once=self._at_once), strict=True))
        there = {o: known for o, known in facts.items() if known is not None}
        report = self._tile(origin, mine, there)
        self.chains.append(await self._with_reasons(report) if is_dead(origin) else report)

    async def quarantined_batch(self, key: str, topic: str | None) -> None:
        del self.left[key]
        try:
            kept = await read_quarantined(self._store, key, environment=self._environment)
        except (CorruptObject, ObjectNotFound) as error:
            self._problem("corrupt", key, str(error))
            return
        if topic in (None, kept.topic):
            self.quarantined.append(
                QuarantinedOffsets(
                    key=key,
                    topic=kept.topic,
                    partition=kept.partition,
                    first_offset=kept.first_offset,
                    last_offset=kept.last_offset,
                    reason=kept.reason,
                )
            )

    async def _with_reasons(self, report: ChainReport) -> ChainReport:
        counts: Counter[str] = Counter()
        for key in report.keys:
            try:
                counts += await reasons_in(self._store, key, environment=self._environment)
            except (CorruptObject, ObjectNotFound) as error:
                self._problem("corrupt", key, str(error))
        return replace(report, is_dead=True, reasons=dict(counts.most_common()))

    def _tile(
        self, origin: ChainOrigin, mine: Mapping[int, str], facts: Mapping[int, Facts]
    ) -> ChainReport:
        """Walk from object to object by their facts, and report every object not on the walk."""
        position = origin.offset
        walked: list[Facts] = []
        for offset in sorted(mine):
            known = facts.get(offset)
            if known is None:
                continue
            if offset < position:
                where = (
                    "before the origin of its chain"
                    if not walked
                    else "which another object of the chain covers already"
                )
                self._problem(
                    "overlap",
                    mine[offset],
                    f"{origin.topic}-{origin.partition}: it begins at offset {offset}, {where}:"
                    f" its offsets {offset} to {min(known.last_offset, position - 1)} do not"
                    " count",
                )
                continue
            if offset > position:
                self._problem(
                    "hole",
                    mine[offset],
                    f"{origin.topic}-{origin.partition}: offsets"
                    f" {position} to {offset - 1} are missing before this object",
                )
            walked.append(known)
            position = known.next_offset
        return ChainReport(
            topic=origin.topic,
            partition=origin.partition,
            format=", ".join(sorted({known.format for known in walked}) or [origin.format]),
            objects=len(walked),
            first_offset=origin.offset,
            next_offset=position,
            records=sum(known.records for known in walked),
            bytes=sum(known.size for known in walked),
            keys=tuple(mine[known.first_offset] for known in walked),
        )

    async def _facts(self, wanted: tuple[ChainOrigin, int, str]) -> Facts | None:
        origin, offset, key = wanted
        try:
            if self._verify:
                facts, _ = await read_proved(self._store, key, environment=self._environment)
            else:
                facts = await read_facts(self._store, key, environment=self._environment)
        except ObjectNotFound:
            facts = None
        except CorruptObject as error:
            self._problem("corrupt", key, str(error))
            return None
        if facts is None:
            self._problem("missing", key, "the store listed it, but it is gone")
            return None
        if (facts.topic, facts.partition, facts.first_offset) != (
            origin.topic,
            origin.partition,
            offset,
        ):
            self._problem(
                "foreign",
                key,
                f"it holds {facts.topic}-{facts.partition} from offset"
                f" {facts.first_offset}: it was copied here from another place",
            )
            return None
        return facts

    def name_objects_without_origin(self) -> None:
        for key in [key for key in self.left if _LANDED_NAME.search(key)]:
            del self.left[key]
            self._problem(
                "missing",
                key,
                "the origin object of its chain is missing: restore it (its name ends in `origin`)",
            )

    async def sink(self, sink_id: str) -> None:
        """Check that the files of a ledger exist, and classify those that it does not name."""
        prefix = data_prefix(sink_id)
        there = {key: row for key, row in self.left.items() if key.startswith(prefix)}
        for key in list(there):
            del self.left[key]
            if is_of_a_table(key, sink_id):
                del there[key]
        try:
            committed = await committed_files(self._store, sink_id, environment=self._environment)
        except RetryError:
            raise
        except HoldfastError as error:
            self._problem("corrupt", entry_prefix(sink_id), str(error))
            committed = CommittedFiles(files=(), replaced=(), entries=0)
        named = [(file, there.pop(file.path, None)) for file in committed.files]
        await each(self._file, named, at_once=self._at_once)
        replaced = tuple(there.pop(file.path) for file in committed.replaced if file.path in there)
        for key in [key for key in there if number_of(key, sink_id) is None]:
            del there[key]
            self._problem(
                "foreign", key, f"its name is not that of an output file of sink {sink_id}"
            )
        self.sinks.append(
            SinkReport(
                sink_id=sink_id,
                entries=committed.entries,
                files=committed.files,
                rows=_rows(committed.files, FileRole.ROWS),
                late_rows=_rows(committed.files, FileRole.LATE),
                bytes=sum(file.bytes for file in committed.files),
                orphans=tuple(there.values()),
                replaced=replaced,
            )
        )

    async def _file(self, named: tuple[OutputFile, ObjectEntry | None]) -> None:
        file, row = named
        size = row.size if row is not None else await self._size(file.path)
        if size is None:
            self._problem(
                "missing",
                file.path,
                f"the ledger names this file of {file.rows} rows, but it is not there: restore it",
            )
        elif size != file.bytes:
            self._problem(
                "corrupt", file.path, f"it has {size} bytes; the ledger says {file.bytes}"
            )
        elif self._verify and file.checksum:
            problem = await self._checksum_problem(file)
            if problem is not None:
                self._problem("corrupt", file.path, problem)

    async def _size(self, key: str) -> int | None:
        return await patiently(lambda: self._store.size(key), environment=self._environment)

    async def _checksum_problem(self, file: OutputFile) -> str | None:
        async def read() -> None:
            found = checksum_of(await self._store.read(file.path))
            if found != file.checksum:
                raise CorruptObject(f"its checksum is {found}; the ledger says {file.checksum}")

        try:
            await patiently(read, environment=self._environment)
        except (CorruptObject, ObjectNotFound) as error:
            return str(error)
        return None


def _rows(files: tuple[OutputFile, ...], role: FileRole) -> int:
    return sum(file.rows for file in files if file.role is role)
