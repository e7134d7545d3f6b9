"""A sink and a table that follows it, and a follower whose process dies at a chosen step."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from tests.support.ledgered import Sink

from holdfast.spark.tables import DeltaTable, IcebergTable
from holdfast.spark.tables.follower import Change, Table, TableFollower


class World:
    """A sink, and a table of one kind that follows it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.sink = Sink(folder / "lake")
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"file://{folder / 'warehouse'}",
        }
        if kind == "iceberg":
            # The catalog itself is there before drivers come.
            (folder / "warehouse").mkdir(exist_ok=True)
            load_catalog("tests", **self.properties)

    def follower(self) -> TableFollower:
        if self.kind == "delta":
            return DeltaTable()
        return IcebergTable("lake.orders", catalog="tests", properties=self.properties)

    def table(self) -> pa.Table:
        """All rows of the table, read by the library as a stranger would."""
        if self.kind == "delta":
            return pa.table(self.delta().to_pyarrow_table())
        return self.iceberg().scan().to_arrow()

    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.sink.folder / "data" / "orders"))

    def iceberg(self) -> Any:
        return load_catalog("tests", **self.properties).load_table("lake.orders")

    def ids(self) -> Counter[str]:
        return Counter(self.table()["id"].to_pylist())

    def commits(self) -> int:
        if self.kind == "delta":
            return self.delta().version()
        return len(self.iceberg().metadata.snapshots)


class Crash(Exception):
    """The process is gone."""


class Crashing(TableFollower):
    """Another follower, whose process dies at a step of its table."""

    def __init__(self, inner: TableFollower, step: str, action: Callable[[], None]) -> None:
        super().__init__()
        self._inner = inner
        self._step = step
        self._action = action

    def bind(self, store_url: str, sink_id: str) -> Table:
        return _CrashingTable(self._inner.bind(store_url, sink_id), self._step, self._action)

    def look(self, store_url: str, sink_id: str) -> Table | None:
        return self._inner.look(store_url, sink_id)


class _CrashingTable:
    def __init__(self, inner: Table, step: str, action: Callable[[], None]) -> None:
        self._inner = inner
        self._step = step
        self._action = action

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def where(self) -> str:
        return self._inner.where

    def position(self) -> int | None:
        if self._step == "before the look":
            self._action()
        return self._inner.position()

    def publish(self, change: Change) -> bool:
        if self._step == "before the commit":
            self._action()
        done = self._inner.publish(change)
        if done and self._step == "after the commit":
            self._action()
        if not done and self._step == "after the table was made":
            self._action()
        return done

    def partition_columns(self) -> list[str] | None:
        return self._inner.partition_columns()
