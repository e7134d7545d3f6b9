"""A sink in a folder, written as tasks and drivers write it, but without Spark."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.landing.data_files import checksum_of, data_key
from holdfast.landing.formats.parquet import file_of
from holdfast.landing.landed import committed_files
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, FileRole, MicroBatch, OutputFile, SourceRange
from holdfast.landing.partition_columns import described
from holdfast.spark.runtime.worker import worker

_attempts = itertools.count()


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "size": [len(name) for name in ids]})


class Sink:
    """One sink: `commit` is a micro-batch, `rows` what its ledger makes visible."""

    def __init__(self, folder: Path, sink_id: str = "orders") -> None:
        self.folder = folder
        self.url = str(folder)
        self.sink_id = sink_id
        self.ended = 0

    def ledger(self) -> Ledger:
        """As a driver that has just started sees it."""
        here = worker()
        store = here.writable(self.url)
        return here.run(Ledger.open(store, self.sink_id, environment=here.environment))

    def write(
        self,
        n: int,
        table: pa.Table,
        values: Mapping[str, str | None] | None = None,
        *,
        fields: Sequence[pa.Field] = (),
        role: FileRole = FileRole.ROWS,
    ) -> OutputFile:
        """A file for entry n, as a task writes it: it counts only once an entry names it."""
        path = data_key(
            self.sink_id,
            n,
            attempt=f"a{next(_attempts)}",
            task=0,
            extension=".parquet",
            partition_values=values,
            is_late=role is FileRole.LATE,
        )
        body = bytes(file_of(table, described(list(fields))))
        here = worker()
        here.run(here.writable(self.url).create(path, (body,)))
        return OutputFile(
            path=path,
            rows=table.num_rows,
            bytes=len(body),
            checksum=checksum_of(body),
            partition_values=dict(values or {}),
            role=role,
        )

    def commit(self, *tables: pa.Table, late: pa.Table | None = None) -> Ledger:
        """One micro-batch with a file for each table."""
        n = self.ledger().next_number
        files = [self.write(n, table) for table in tables]
        if late is not None:
            files.append(self.write(n, late, role=FileRole.LATE))
        return self.publish(files, n)

    def publish(self, files: Iterable[OutputFile], n: int, *, state: bytes = b"") -> Ledger:
        ledger = self.ledger()
        start = str(self.ended) if self.ended else None
        source = SourceRange(start=start, end=str(self.ended + 1))
        batch = MicroBatch(query_id="q", batch_id=self.ended, sources=(source,))
        done = worker().run(ledger.commit(batch, Effects(files=tuple(files), state=state), n=n))
        assert isinstance(done, Committed), done
        self.ended += 1
        return ledger

    def files(self, role: FileRole = FileRole.ROWS) -> list[OutputFile]:
        here = worker()
        store = here.writable(self.url)
        found = here.run(committed_files(store, self.sink_id, environment=here.environment))
        return [file for file in found.files if file.role is role]

    def ids(self, role: FileRole = FileRole.ROWS) -> Counter[str]:
        """The ids of all committed rows, each as often as it is there."""
        found: Counter[str] = Counter()
        for file in self.files(role):
            found.update(
                pq.read_table(self.folder / file.path, partitioning=None)["id"].to_pylist()
            )
        return found


class SparkInThisProcess:
    """As much of a session as a compaction uses; `between` runs before results are handed back."""

    def __init__(self, between: Callable[[], None] | None = None) -> None:
        self._between = between

    def createDataFrame(self, rows: list[tuple[int, bytes]], schema: str) -> "SparkInThisProcess":
        tasks = [task for task, _ in rows]
        work = [body for _, body in rows]
        columns = [pa.array(tasks, pa.int32()), pa.array(work, pa.binary())]
        self._batch = pa.RecordBatch.from_arrays(columns, names=["task", "work"])
        return self

    def repartitionById(self, tasks: int, column: str) -> "SparkInThisProcess":
        return self

    def mapInArrow(self, run: Callable[[Any], Any], schema: str) -> "SparkInThisProcess":
        self._run = run
        return self

    def collect(self) -> list[tuple[bytes]]:
        done = [(value,) for batch in self._run([self._batch]) for value in batch[0].to_pylist()]
        if self._between is not None:
            self._between()
        return done
