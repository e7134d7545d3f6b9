"""Landed chains of every format through a real Spark: our reader, and Spark's own where it can."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.landing import ENVIRONMENT, batch, row

from holdfast.landing.blocking import run
from holdfast.landing.chain import Chain, Landed
from holdfast.landing.dead_letters import DeadLetters, dead_batch
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.known import new_format
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw
from holdfast.landing.keys import HIVE_TEMPLATE, KeyTemplate
from holdfast.landing.packing import ObjectBounds
from holdfast.store.address import open_store

pytestmark = pytest.mark.spark

CODECS = ("zstd", "gzip", "lz4", "none")
VALUES: list[Format] = [
    *(JsonLines(compression=codec) for codec in CODECS),
    *(Raw(compression=codec) for codec in CODECS),
]
WHOLE: list[Format] = [
    *(JsonLines("envelope", compression=codec) for codec in CODECS),
    *(Parquet(compression=codec) for codec in CODECS),
]
HEADERS = [{"key": "h", "value": b"\xff"}, {"key": "", "value": None}]


def log(offsets: range, topic: str = "orders") -> pa.RecordBatch:
    return batch(row(offset, topic=topic, headers=HEADERS) for offset in offsets)


def land(folder: Path, format: Format, offsets: range, topic: str = "orders") -> None:
    async def main() -> None:
        store = open_store(f"file://{folder}", environment=ENVIRONMENT)
        template = KeyTemplate(HIVE_TEMPLATE)
        chain = Chain(store, topic, 3, format=format, environment=ENVIRONMENT, template=template)
        outcome = await chain.land(
            [log(offsets, topic)],
            start_offset=offsets.start,
            end_offset=offsets.stop,
            bounds=ObjectBounds(rows_max=7),
        )
        await chain.land([], start_offset=offsets.stop, end_offset=offsets.stop + 5)
        await store.close()
        assert isinstance(outcome, Landed)

    run(main())


def landed(spark: Any, folder: Path, **options: str) -> Any:
    return spark.read.format("holdfast-landed").options(store=f"file://{folder}", **options).load()


def test_every_format_gives_the_columns_that_it_holds(spark: Any, tmp_path: Path):
    topics = {f"t{i}": format for i, format in enumerate([*VALUES, *WHOLE])}
    for topic, format in topics.items():
        land(tmp_path, format, range(20), topic)
    for topic, format in topics.items():
        found = landed(spark, tmp_path, topic=topic, includeHeaders="true").orderBy("offset")
        rows = [found_row.asDict(recursive=True) for found_row in found.collect()]
        expected = log(range(20), topic).to_pylist()
        names = ["value", "topic", "partition", "offset"]
        if format in WHOLE:
            names += ["key", "timestampType", "headers"]
        assert [{name: r[name] for name in names} for r in rows] == [
            {name: r[name] for name in names} for r in expected
        ], format.name


def test_dead_letters_are_read_with_their_reasons_and_never_among_the_records(
    spark: Any, tmp_path: Path
):
    records = batch(
        row(i, value=value, headers=HEADERS) for i, value in enumerate([b"{}", b"no", b"\xff"])
    )
    format = new_format("jsonl")
    fit, unfit = format.sort_out(records)

    async def main() -> None:
        store = open_store(f"file://{tmp_path}", environment=ENVIRONMENT)
        letters = DeadLetters(store, "orders", 3, template=KeyTemplate(), environment=ENVIRONMENT)
        await letters.land([dead_batch(records, unfit)], start_offset=0)
        chain = Chain(store, "orders", 3, format=format, environment=ENVIRONMENT)
        await chain.land([fit], start_offset=0, end_offset=3)
        await store.close()

    run(main())
    dead = landed(spark, tmp_path, topic="orders", files="dead").orderBy("offset").collect()
    assert [(r.offset, bytes(r.value)) for r in dead] == [(1, b"no"), (2, b"\xff")]
    assert dead[0].reason.startswith("its value is not one JSON text")
    assert bytes(dead[1].headers[0].value) == b"\xff"
    assert [bytes(r.value) for r in landed(spark, tmp_path, topic="orders").collect()] == [b"{}"]


@pytest.mark.parametrize("codec", ["gzip", "none", "zstd"])
def test_sparks_own_reader_of_json_reads_lines(spark: Any, tmp_path: Path, codec: str):
    format = JsonLines(compression=codec)
    land(tmp_path, format, range(20))
    found = spark.read.json(f"file://{tmp_path}/topic=orders").orderBy("n").collect()
    assert [r.n for r in found] == list(range(20))
    assert "_corrupt_record" not in found[0].asDict()
