"""Files that a ledger names: read whole and proved, or by their footers."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.landing import ENVIRONMENT, new_store

from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.landing.data_files import checksum_of, data_key, is_of_a_table, number_of
from holdfast.landing.formats.parquet import file_of
from holdfast.landing.ledger_entry import OutputFile
from holdfast.landing.output_files import read_footer, read_output
from holdfast.store.memory import MemoryStore


async def written(columns: int = 1) -> tuple[MemoryStore, OutputFile]:
    store = new_store()
    table = pa.table({f"column-{i}-{'x' * 200}": [1, 2, 3] for i in range(columns)})
    body = bytes(file_of(table, {"told": "words"}))
    path = data_key("lake", 0, attempt="a", task=0, extension=".parquet")
    await store.create(path, (body,))
    return store, OutputFile(path=path, rows=3, bytes=len(body), checksum=checksum_of(body))


def read(call: Any, change: dict[str, Any] | None = None, columns: int = 1) -> Any:
    async def main() -> Any:
        store, file = await written(columns)
        return await call(store, replace(file, **(change or {})), environment=ENVIRONMENT)

    return asyncio.run(main())


@pytest.mark.parametrize("columns", [1, 500])
def test_a_footer_is_read_alone_however_long_it_is(columns: int):
    found = read(read_footer, columns=columns)
    assert (found.num_rows, found.num_columns) == (3, columns)
    assert found.metadata[b"told"] == b"words"


def test_a_whole_file_is_read_and_proved():
    assert read(read_output)[:4] == b"PAR1"


@pytest.mark.parametrize(
    "change", [{"bytes": 17}, {"checksum": "crc32c:00000000"}, {"bytes": 10**6}]
)
def test_other_bytes_than_the_ledger_names_are_corrupt(change: dict[str, Any]):
    with pytest.raises(CorruptObject, match="data/lake/"):
        read(read_output, change)


@pytest.mark.parametrize("change", [{"rows": 4}, {"bytes": 100}])
def test_a_footer_that_does_not_fit_the_ledger_is_corrupt(change: dict[str, Any]):
    with pytest.raises(CorruptObject, match="data/lake/"):
        read(read_footer, change)


def test_a_file_that_is_gone_is_named_with_what_may_have_happened():
    with pytest.raises(ObjectNotFound, match="compacted and swept"):
        read(read_output, {"path": "data/lake/gone.parquet"})


def test_late_files_lie_apart_and_are_named_for_their_entry_all_the_same():
    key = data_key("lake", 7, attempt="a", task=0, extension=".parquet", is_late=True)
    assert key.startswith("data/lake/_late/")
    assert number_of(key, "lake") == 7


def test_the_log_of_a_table_is_told_from_output():
    assert is_of_a_table("data/lake/_delta_log/00000000000000000000.json", "lake")
    assert is_of_a_table("data/lake/metadata/v1.metadata.json", "lake")
    assert not is_of_a_table("data/lake/day=1/00000000000000000000-a-00000-000.parquet", "lake")
    assert not is_of_a_table("data/lake/metadata", "lake")
