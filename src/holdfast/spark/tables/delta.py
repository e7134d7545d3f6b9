"""A Delta table over the files of a sink: its root is the sink's data folder, `data/<sink id>`.

Owns the translation of a change into one Delta commit: add and remove actions beside the
application transaction (sink id, n). No data is written or copied. Delta's own rule lets a second
commit of the same sink id fail. The library's retries are off, so that it fails here, where the
table is looked at again. The only module that may import deltalake.
"""

import datetime
import importlib
import json
from collections.abc import Mapping
from typing import Any

from holdfast.columnar.arrow import pa
from holdfast.errors import ConfigurationError
from holdfast.extras import require
from holdfast.landing.data_files import data_prefix
from holdfast.landing.followers import follower_name
from holdfast.landing.ledger_entry import OutputFile
from holdfast.landing.partition_columns import partition_value
from holdfast.spark.tables.follower import (
    Change,
    NewFile,
    Table,
    TableFollower,
    TableRefused,
    TableUnavailable,
)
from holdfast.spark.tables.places import place_of

FORGETS = "delta.setTransactionRetentionDuration"


class DeltaTable(TableFollower):
    """A Delta table that receives each committed micro-batch of a pipeline exactly once.

    The table is `<store>/data/<sink id>`. It names the Parquet files that the pipeline wrote, so no
    data is written twice. Files of late records are left out. The table is created with the first
    files if it does not exist. `storage_options` are passed to deltalake. They are needed only for
    what neither the store's address nor environment variables say. Needs the extra `[delta]`.
    """

    def __init__(self, *, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._storage_options = dict(storage_options or {})
        self._library = _deltalake()

    def bind(self, store_url: str, sink_id: str) -> Table:
        place = place_of(store_url)
        options = {**place.delta_options, **self._storage_options}
        uri = f"{place.root}/{data_prefix(sink_id)}".rstrip("/")
        return _Delta(self._library, uri, sink_id, options)

    def look(self, store_url: str, sink_id: str) -> Table | None:
        return self.bind(store_url, sink_id)

    def __str__(self) -> str:
        return "Delta, in the folder of the sink"


def _deltalake() -> Any:
    require("a Delta table", "delta")
    library: Any = importlib.import_module("deltalake")
    transaction = importlib.import_module("deltalake.transaction")
    if not hasattr(transaction, "RemoveAction"):
        raise ConfigurationError(
            f"Delta tables need a newer deltalake than {library.__version__}:"
            " pip install --upgrade deltalake"
        )
    return library


class _Delta:
    """One Delta table, accessed through deltalake."""

    def __init__(self, library: Any, uri: str, sink_id: str, options: dict[str, str]) -> None:
        self._library = library
        self._errors: Any = importlib.import_module("deltalake.exceptions")
        self._transaction: Any = importlib.import_module("deltalake.transaction")
        self._uri = uri
        self._sink_id = sink_id
        self._options = options or None
        self._table: Any = None

    @property
    def name(self) -> str:
        return follower_name("delta")

    @property
    def where(self) -> str:
        return f"Delta table {self._uri}"

    def position(self) -> int | None:
        try:
            self._table = self._library.DeltaTable(self._uri, storage_options=self._options)
        except self._errors.TableNotFoundError:
            self._table = None
            return None
        except (self._errors.DeltaError, OSError) as error:
            raise self._unavailable(error) from error
        forgets = self._table.metadata().configuration.get(FORGETS)
        if forgets is not None:
            raise TableRefused(
                f"{self.where} has {FORGETS}={forgets}: after that time it forgets which entries it"
                " holds, and they would be added twice; remove that property"
            )
        version = self._table.transaction_version(self._sink_id)
        return None if version is None else int(version)

    def publish(self, change: Change) -> bool:
        try:
            if self._table is None:
                # Do not publish at once: another driver may have filled the new table.
                self._create(change)
                return False
            schema = self._table.schema()
            partitions = self.partition_columns() or []
            for new in change.added:
                self._check(new, schema, partitions)
            kinds = {field.name: field.type for field in pa.schema(schema.to_arrow())}
            actions = [self._add(new.file, change, kinds) for new in change.added]
            actions += [self._remove(file, change, kinds) for file in change.removed]
            self._table.create_write_transaction(
                actions,
                "append",
                schema,
                partitions,
                commit_properties=self._properties(change),
            )
        except self._errors.CommitFailedError:
            return False
        except (self._errors.DeltaError, OSError) as error:
            raise self._unavailable(error) from error
        return True

    def partition_columns(self) -> list[str] | None:
        return None if self._table is None else list(self._table.metadata().partition_columns)

    def _properties(self, change: Change) -> Any:
        number = self._transaction.Transaction(app_id=change.sink_id, version=change.n)
        return self._transaction.CommitProperties(
            custom_metadata={"holdfast.sinkId": change.sink_id, "holdfast.n": str(change.n)},
            max_commit_retries=0,
            app_transactions=[number],
        )

    def _create(self, change: Change) -> None:
        """Create an empty table with the first files' columns, unless another driver was faster."""
        if not change.added:
            raise TableRefused(f"{self.where}: entry {change.n} replaces files of no table")
        first = change.added[0]
        try:
            self._library.DeltaTable.create(
                self._uri,
                self._delta_schema(first),
                mode="error",
                partition_by=[*first.file.partition_values] or None,
                name=change.sink_id,
                storage_options=self._options,
            )
        except self._errors.DeltaError:
            if not self._library.DeltaTable.is_deltatable(self._uri, self._options):
                raise

    def _delta_schema(self, new: NewFile) -> Any:
        try:
            return self._library.Schema.from_arrow(new.schema)
        except Exception as error:
            raise TableRefused(
                f"{new.file.path} has columns that Delta has no type for: {error}; cast them before"
                " they are written"
            ) from error

    def _check(self, new: NewFile, schema: Any, partitions: list[str]) -> None:
        """Raise TableRefused unless the table's columns can hold the file's."""
        # A table may have the same columns in another order: Delta finds values by their names.
        if {*new.file.partition_values} != {*partitions}:
            raise TableRefused(
                f"{new.file.path} is partitioned by {[*new.file.partition_values]}, and"
                f" {self.where} by {partitions}: put the pipeline back as it was, or give it a new"
                " sink id"
            )
        there = {field.name: field for field in schema.fields}
        inside = {field.name: field for field in self._delta_schema(new).fields}
        for name, field in inside.items():
            known = there.get(name)
            if known is None:
                raise TableRefused(
                    f"{new.file.path} has the column {name!r} ({field.type}), which {self.where}"
                    " has not: add it to the table, and start again; nothing is lost meanwhile"
                )
            if known.type != field.type:
                raise TableRefused(
                    f"{new.file.path}: the column {name!r} is {field.type}, and {self.where} has"
                    f" {known.type}: cast it before it is written, and give the pipeline a new sink"
                    " id"
                )
        for name, field in there.items():
            if name not in inside and not field.nullable:
                raise TableRefused(
                    f"{new.file.path} lacks the column {name!r}, which {self.where} needs"
                )

    def _add(self, file: OutputFile, change: Change, kinds: Mapping[str, Any]) -> Any:
        return self._transaction.AddAction(
            path=self._path(file),
            size=file.bytes,
            partition_values=self._values(file, kinds),
            modification_time=change.committed_ms,
            data_change=not change.is_rewrite,
            stats=json.dumps({"numRecords": file.rows}),
        )

    def _remove(self, file: OutputFile, change: Change, kinds: Mapping[str, Any]) -> Any:
        return self._transaction.RemoveAction(
            path=self._path(file),
            data_change=not change.is_rewrite,
            deletion_timestamp=change.committed_ms,
            size=file.bytes,
            partition_values=self._values(file, kinds),
        )

    def _path(self, file: OutputFile) -> str:
        return file.path.removeprefix(data_prefix(self._sink_id))

    def _values(self, file: OutputFile, kinds: Mapping[str, Any]) -> dict[str, str | None]:
        return {
            name: _delta_text(text, kinds[name], file.path)
            for name, text in file.partition_values.items()
        }

    def _unavailable(self, error: Exception) -> TableUnavailable:
        return TableUnavailable(
            f"{self.where}: {error}; what is committed stays in the ledger of sink {self._sink_id},"
            " and is carried over at the next start"
        )


def _delta_text(text: str | None, kind: Any, path: str) -> str | None:
    """Return a partition value as Delta writes it. `path` is only for error messages."""
    if text is None:
        return None
    if text == "":
        raise TableRefused(
            f"{path}: a partition value is an empty text, which Delta cannot tell from null: give"
            " that column a word of its own for it"
        )
    value = partition_value(text, kind, path=path).as_py()
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo is not None else value
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)
