"""An Iceberg table over the files of a sink, in any catalog that pyiceberg reaches.

Owns the translation of a change into one Iceberg commit: a snapshot that adds (and replaces) files
where they are, and the number of the entry, as a property of the table and of the snapshot. The
commit demands that the newest snapshot is still the one that was looked at. The library's own
retries are off: they would add the files again on top of another driver's commit. The only module
that may import pyiceberg.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.columnar.arrow import pa
from holdfast.errors import ConfigurationError
from holdfast.extras import require
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
from holdfast.spark.tables.places import Place, place_of

SINK_ID, NUMBER = "holdfast.sink-id", "holdfast.n"
POSITION = "holdfast.position."
"""The prefix of the table property for the entry number; the sink id follows.

This property outlives the snapshots.
"""
RETRIES = "commit.retry.num-retries"
NAME_MAPPING = "schema.name-mapping.default"
CATALOG_TABLE = "iceberg_tables"
"""The database table in which an SQL catalog lists its tables."""


class IcebergTable(TableFollower):
    """An Iceberg table that receives each committed micro-batch of a pipeline exactly once.

    It names the Parquet files that the pipeline wrote, so no data is written twice. Files of late
    records are left out. The table is created with the first files if it does not exist. Needs the
    extra `[iceberg]`.

    - `identifier` is "namespace.table".
    - `catalog` is the name of a catalog in pyiceberg's configuration. `properties` are passed to
      it.
    - `files_root` is the address of the store as pyiceberg must write it, if that differs from the
      store's own address. It is required on Azure.
    """

    def __init__(
        self,
        identifier: str,
        *,
        catalog: str = "default",
        properties: Mapping[str, str] | None = None,
        files_root: str | None = None,
    ) -> None:
        super().__init__()
        if "." not in identifier.strip("."):
            raise ConfigurationError(
                f'{identifier!r} names no namespace: write it as "namespace.table"'
            )
        self._identifier = identifier
        self._catalog = catalog
        self._properties = dict(properties or {})
        self._files_root = files_root
        _library("pyiceberg.catalog")

    def bind(self, store_url: str, sink_id: str) -> Table:
        place = place_of(store_url)
        return self._table_in(self._open_catalog(place), place, sink_id)

    def look(self, store_url: str, sink_id: str) -> Table | None:
        place = place_of(store_url)
        # An SQL catalog would create its own tables when it is opened.
        catalog = self._open_catalog(place, init_catalog_tables="false")
        return self._table_in(catalog, place, sink_id) if _has_begun(catalog) else None

    def _table_in(self, catalog: Any, place: Place, sink_id: str) -> Table:
        default_root = f"file://{place.root}" if place.is_local else place.root
        root = (self._files_root or default_root).rstrip("/")
        name = follower_name("iceberg", self._catalog, self._identifier)
        return _Iceberg(catalog, self._identifier, sink_id, root, name)

    def __str__(self) -> str:
        return f"Iceberg {self._identifier}, in the catalog {self._catalog}"

    def _open_catalog(self, place: Place, **more: str) -> Any:
        if place.root.startswith("az://") and self._files_root is None:
            raise ConfigurationError(
                f"{place.root}: pyiceberg writes Azure addresses in another way: give"
                ' files_root="abfss://container@account.dfs.core.windows.net/prefix"'
            )
        properties = {**place.iceberg_properties, **self._properties, **more}
        try:
            return _library("pyiceberg.catalog").load_catalog(self._catalog, **properties)
        except ValueError as error:
            raise ConfigurationError(
                f"the catalog {self._catalog!r} cannot be loaded: {error}; describe it in"
                " pyiceberg's configuration, or by properties"
            ) from error
        except Exception as error:
            raise TableUnavailable(
                f"the catalog {self._catalog!r} does not answer: {type(error).__name__}: {error}"
            ) from error


def _has_begun(catalog: Any) -> bool:
    """False for an SQL catalog that was never used: it lacks its own tables."""
    engine = getattr(catalog, "engine", None)
    if engine is None:
        return True
    return bool(importlib.import_module("sqlalchemy").inspect(engine).has_table(CATALOG_TABLE))


def _library(module: str) -> Any:
    require("an Iceberg table", "iceberg")
    return importlib.import_module(module)


class _Iceberg:
    """One Iceberg table, accessed through pyiceberg."""

    def __init__(self, catalog: Any, identifier: str, sink_id: str, root: str, name: str) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._sink_id = sink_id
        self._root = root
        self._name = name
        self._errors: Any = _library("pyiceberg.exceptions")
        self._table: Any = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def where(self) -> str:
        return f"Iceberg table {self._identifier}"

    def position(self) -> int | None:
        try:
            self._table = self._catalog.load_table(self._identifier)
        except (self._errors.NoSuchTableError, self._errors.NoSuchNamespaceError):
            self._table = None
            return None
        except Exception as error:
            raise self._unavailable(error) from error
        metadata = self._table.metadata
        text = metadata.properties.get(f"{POSITION}{self._sink_id}")
        position = None if text is None else int(text)
        in_line = self._numbers_in_line()
        if not in_line and not any(map(self._number_in, metadata.snapshots)):
            # No snapshot of this sink yet, or all have expired. The property outlives them.
            return position
        in_snapshot = in_line[0] if in_line else None
        if in_snapshot != position:
            raise TableRefused(
                f"{self.where} says that it holds entry {position} of sink {self._sink_id}, and its"
                f" newest snapshots hold {in_snapshot}: it was rolled back, or its properties were"
                f" changed. To have it filled again from there, set its property"
                f" {POSITION}{self._sink_id} to the number that the snapshots hold"
            )
        return position

    def _numbers_in_line(self) -> list[int]:
        """Return the newest entry number of the current snapshot and its ancestors, if any."""
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        while snapshot is not None:
            number = self._number_in(snapshot)
            if number is not None:
                return [int(number)]
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        return []

    def _number_in(self, snapshot: Any) -> str | None:
        summary = snapshot.summary
        if summary is None or summary[SINK_ID] != self._sink_id:
            return None
        return str(summary[NUMBER])

    def publish(self, change: Change) -> bool:
        try:
            if self._table is None:
                # Do not publish at once: another driver may have filled the new table.
                self._create(change)
                return False
            self._refuse_retries()
            self._commit(change)
        except self._errors.CommitFailedException:
            return False
        except (TableRefused, ConfigurationError):
            raise
        except Exception as error:
            # Whether it was committed is not known. The next look at the table shows it.
            raise self._unavailable(error) from error
        return True

    def _refuse_retries(self) -> None:
        """Turn retries off in this copy of the metadata. It is not part of what is committed."""
        metadata = self._table.metadata
        properties = {**metadata.properties, RETRIES: "0"}
        self._table.metadata = metadata.model_copy(update={"properties": properties})

    def _commit(self, change: Change) -> None:
        table = self._table
        for new in change.added:
            self._check(new)
        added = [self._data_file(new) for new in change.added]
        removed = self._removed(change)
        transaction = table.transaction()
        properties = {f"{POSITION}{self._sink_id}": str(change.n)}
        if NAME_MAPPING not in table.metadata.properties:
            # The files have no field ids: columns are found by their names.
            properties[NAME_MAPPING] = table.schema().name_mapping.model_dump_json()
        transaction.set_properties(properties)
        told = {SINK_ID: self._sink_id, NUMBER: str(change.n)}
        update = transaction.update_snapshot(snapshot_properties=told)
        with _overwrite(update) if removed else update.fast_append() as producer:
            for data_file in added:
                producer.append_data_file(data_file)
            for data_file in removed:
                producer.delete_data_file(data_file)
        transaction.commit_transaction()

    def _create(self, change: Change) -> None:
        """Create an empty table with the first files' columns, unless another driver was faster."""
        if not change.added:
            raise TableRefused(f"{self.where}: entry {change.n} replaces files of no table")
        first = change.added[0]
        try:
            self._make(first)
        except TypeError as error:
            raise TableRefused(
                f"{first.file.path} has columns that Iceberg has no type for: {error}; cast them"
                " before they are written"
            ) from error
        except Exception:
            # Catalogs report in many ways that another driver was faster.
            if not self._catalog.table_exists(self._identifier):
                raise

    def _make(self, first: NewFile) -> None:
        namespace = self._identifier.rsplit(".", 1)[0]
        try:
            self._catalog.create_namespace_if_not_exists(namespace)
        except Exception:
            if not self._catalog.namespace_exists(namespace):
                raise
        with self._catalog.create_table_transaction(
            self._identifier, schema=first.schema
        ) as transaction:
            for name in first.file.partition_values:
                with transaction.update_spec() as spec:
                    spec.add_identity(name)

    def _check(self, new: NewFile) -> None:
        """Raise TableRefused unless the table's columns can hold the file's."""
        schema = self._table.schema()
        there = {field.name: field for field in schema.fields}
        for name in new.schema.names:
            if name not in there:
                raise TableRefused(
                    f"{new.file.path} has the column {name!r} ({new.schema.field(name).type}),"
                    f" which {self.where} has not: add it to the table, and start again; nothing is"
                    " lost meanwhile"
                )
        fields = self.partition_columns() or []
        if {*fields} != {*new.file.partition_values}:
            raise TableRefused(
                f"{new.file.path} is partitioned by {[*new.file.partition_values]}, and"
                f" {self.where} by {fields}: put the pipeline back as it was, or give it a new sink"
                " id and a table of its own"
            )
        try:
            inside = _library("pyiceberg.io.pyarrow").pyarrow_to_schema(
                new.schema, name_mapping=schema.name_mapping
            )
        except (TypeError, ValueError) as error:
            raise TableRefused(f"{new.file.path} does not fit {self.where}: {error}") from error
        names = {field.name for field in inside.fields}
        for field in inside.fields:
            known = there[field.name]
            if known.field_type != field.field_type:
                raise TableRefused(
                    f"{new.file.path}: the column {field.name!r} is {field.field_type}, and"
                    f" {self.where} has {known.field_type}: cast it before it is written, and give"
                    " the pipeline a new sink id"
                )
        needed = [name for name, field in there.items() if field.required and name not in names]
        if needed:
            raise TableRefused(
                f"{new.file.path} lacks the column {needed[0]!r}, which {self.where} needs"
            )

    def _data_file(self, new: NewFile) -> Any:
        library = _library("pyiceberg.io.pyarrow")
        manifest = _library("pyiceberg.manifest")
        metadata = self._table.metadata
        schema = metadata.schema()
        statistics = library.data_file_statistics_from_parquet_metadata(
            parquet_metadata=new.footer,
            stats_columns=library.compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=library.parquet_path_to_id_mapping(schema),
        )
        data_file = manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path=self._uri(new.file),
            file_format=manifest.FileFormat.PARQUET,
            partition=self._partition(new),
            file_size_in_bytes=new.file.bytes,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        data_file.spec_id = metadata.default_spec_id
        return data_file

    def _partition(self, new: NewFile) -> Any:
        texts, path = new.file.partition_values, new.file.path
        values = [
            _inner(partition_value(texts[name], new.schema.field(name).type, path=path))
            for name in self.partition_columns() or []
        ]
        return _library("pyiceberg.typedef").Record(*values)

    def partition_columns(self) -> list[str] | None:
        """Return the columns in the table's own order: a manifest finds values by their place."""
        if self._table is None:
            return None
        return [field.name for field in self._table.spec().fields]

    def _removed(self, change: Change) -> list[Any]:
        """Return the table's own records of the files to remove."""
        if not change.removed:
            return []
        wanted = {self._uri(file) for file in change.removed}
        found = [
            task.file for task in self._table.scan().plan_files() if task.file.file_path in wanted
        ]
        missing = wanted - {data_file.file_path for data_file in found}
        if missing:
            raise TableRefused(
                f"{self.where}: entry {change.n} of sink {self._sink_id} replaces {min(missing)},"
                " which the table does not hold: something else has rewritten or removed it there;"
                " drop the table, and it is filled again from the ledger"
            )
        return found

    def _uri(self, file: OutputFile) -> str:
        return f"{self._root}/{file.path}"

    def _unavailable(self, error: Exception) -> TableUnavailable:
        return TableUnavailable(
            f"{self.where}: {type(error).__name__}: {error}; what is committed stays in the ledger"
            f" of sink {self._sink_id}, and is carried over at the next start"
        )


def _inner(value: Any) -> Any:
    """Return a partition value as manifests hold it.

    Dates are days since 1970, timestamps microseconds since 1970, all others as they are.
    """
    kind = value.type
    if pa.types.is_date(kind):
        return value.cast(pa.date32()).cast(pa.int32()).as_py()
    if pa.types.is_timestamp(kind):
        return value.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).as_py()
    return value.as_py()


def _overwrite(update: Any) -> Any:
    """Return an overwrite that judges each manifest with a new evaluator.

    pyiceberg 0.12 shares one evaluator between threads, and its state is that of the last manifest
    that it was given. So it may miss a file that is to be replaced, and refuse the commit.
    """
    producer = update.overwrite()
    build = producer._build_manifest_evaluator

    def build_for_each(spec_id: int) -> Callable[[Any], bool]:
        return lambda manifest: build(spec_id)(manifest)

    producer._build_manifest_evaluator = build_for_each
    return producer
