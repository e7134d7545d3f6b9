"""`holdfast landed`: whole is said only of what is whole, and each flaw is named by its key."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.async_tests import in_event_loop
from tests.support.landing import ENVIRONMENT, batch_of, new_store

from holdfast.cli.landed import command
from holdfast.inspect.output_survey import OutputSurvey, survey
from holdfast.landing.blocking import run
from holdfast.landing.chain import Chain
from holdfast.landing.data_files import checksum_of, data_key
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw
from holdfast.landing.keys import HIVE_TEMPLATE, KeyTemplate
from holdfast.landing.ledger import Ledger
from holdfast.landing.ledger_entry import Effects, MicroBatch, OutputFile, SourceRange
from holdfast.landing.packing import ObjectBounds
from holdfast.landing.sweep import sweep
from holdfast.store.address import open_store
from holdfast.store.interface import Store

CODECS = ("zstd", "gzip", "lz4", "none")
EVERY_FORMAT = [
    *(JsonLines(layout, compression=codec) for layout in ("value", "envelope") for codec in CODECS),
    *(Raw(compression=codec) for codec in CODECS),
    Parquet(),
]
CHAIN_KEYS = [f"orders+3+{offset:020d}.jsonl.zst" for offset in (0, 3, 6)]


async def land_chain(store: Store, template: str | None = None) -> None:
    chain = Chain(
        store,
        "orders",
        3,
        format=JsonLines(),
        environment=ENVIRONMENT,
        template=KeyTemplate(template) if template else None,
    )
    await chain.land(
        [batch_of(range(9))], start_offset=0, end_offset=9, bounds=ObjectBounds(rows_max=3)
    )


async def write(store: Store, n: int, attempt: str) -> OutputFile:
    path = data_key("lake", n, attempt=attempt, task=0, extension=".parquet")
    body = attempt.encode()
    await store.create(path, (body,))
    return OutputFile(path=path, rows=2, bytes=len(body), checksum=checksum_of(body))


async def commit(store: Store, n: int, file: OutputFile) -> None:
    ledger = await Ledger.open(store, "lake", environment=ENVIRONMENT)
    source = SourceRange(start=str(n), end=str(n + 1))
    batch = MicroBatch(query_id="q", batch_id=n, sources=(source,))
    await ledger.commit(batch, Effects(files=(file,)), n=n)


async def looked_at(store: Store, **more) -> OutputSurvey:
    return await survey(store, environment=ENVIRONMENT, **more)


def kinds(report: OutputSurvey) -> list[tuple[str, str]]:
    return [(problem.kind, problem.key) for problem in report.problems]


@pytest.mark.parametrize("template", [None, HIVE_TEMPLATE])
@in_event_loop
async def test_a_whole_chain_is_whole_with_its_numbers(template: str | None):
    store = new_store()
    await land_chain(store, template)
    report = await looked_at(store, verify=True)
    assert report.is_whole
    (chain,) = report.chains
    assert (chain.objects, chain.first_offset, chain.next_offset, chain.records) == (3, 0, 9, 9)


@in_event_loop
async def test_a_missing_object_is_a_hole_wherever_it_was():
    for missing in (0, 1):
        store = new_store()
        await land_chain(store)
        await store.delete([CHAIN_KEYS[missing]])
        assert kinds(await looked_at(store)) == [("hole", CHAIN_KEYS[missing + 1])]


@in_event_loop
async def test_an_object_that_begins_inside_another_is_an_overlap():
    store, other = new_store(), new_store()
    await land_chain(store)
    chain = Chain(other, "orders", 3, format=JsonLines(), environment=ENVIRONMENT)
    await chain.land([batch_of(range(4, 8))], start_offset=4, end_offset=8)
    await store.create(chain.key(4), (await other.read(chain.key(4)),))
    assert kinds(await looked_at(store)) == [("overlap", chain.key(4))]


@in_event_loop
async def test_foreign_copied_and_harmed_objects_are_named():
    store = new_store()
    await land_chain(store)
    await store.create("orders+3+notes.txt", (b"x",))
    await store.create(f"orders+3+{9:020d}.jsonl.zst", (await store.read(CHAIN_KEYS[0]),))
    await store.create(f"orders+3+{10:020d}.jsonl.zst", (b"x" * 2000,))
    await store.create("elsewhere.txt", (b"x",))
    report = await looked_at(store)
    assert sorted(kind for kind, _ in kinds(report)) == ["corrupt", "foreign", "foreign"]
    assert report.others == ("elsewhere.txt",)


@in_event_loop
async def test_a_chain_without_its_origin_is_not_whole():
    store = new_store()
    await land_chain(store)
    await store.delete(["_orders+3+origin"])
    assert kinds(await looked_at(store)) == [("missing", key) for key in CHAIN_KEYS]


@in_event_loop
async def test_a_damaged_origin_is_named_once():
    store = new_store()
    await land_chain(store)
    await store.delete(["_orders+3+origin"])
    await store.create("_orders+3+origin", (b'{"\xff',))
    report = await looked_at(store)
    assert ("corrupt", "_orders+3+origin") in kinds(report)
    assert report.others == ()


@in_event_loop
async def test_a_changed_byte_is_found_where_everything_is_read():
    store = new_store()
    await land_chain(store)
    body = bytearray(await store.read(CHAIN_KEYS[2]))
    body[5] ^= 1
    await store.delete([CHAIN_KEYS[2]])
    await store.create(CHAIN_KEYS[2], (bytes(body),))
    assert (await looked_at(store)).is_whole
    assert kinds(await looked_at(store, verify=True)) == [("corrupt", CHAIN_KEYS[2])]


@in_event_loop
async def test_files_that_no_entry_names_are_orphans_and_never_counted():
    store = new_store()
    await commit(store, 0, await write(store, 0, "won"))
    orphan = await write(store, 0, "lost")
    report = await looked_at(store, verify=True)
    assert report.is_whole
    (sink,) = report.sinks
    assert (len(sink.files), sink.rows) == (1, 2)
    assert [row.key for row in sink.orphans] == [orphan.path]


@in_event_loop
async def test_a_file_of_the_ledger_that_is_gone_or_changed_is_named():
    store = new_store()
    files = [await write(store, n, f"run{n}") for n in range(3)]
    for n, file in enumerate(files):
        await commit(store, n, file)
    await store.delete([file.path for file in files])
    await store.create(files[1].path, (b"longer than it was",))
    await store.create(files[2].path, (b"RUN2",))
    found = kinds(await looked_at(store, verify=True))
    assert found == [
        ("missing", files[0].path),
        ("corrupt", files[1].path),
        ("corrupt", files[2].path),
    ]


@in_event_loop
async def test_a_sweep_deletes_what_lost_and_keeps_what_may_still_be_committed():
    store = new_store()
    await commit(store, 0, await write(store, 0, "won"))
    lost = await write(store, 0, "lost")
    coming = await write(store, 1, "coming")
    swept = await sweep(store, "lake", environment=ENVIRONMENT)
    assert [row.key for row in swept.deleted] == [lost.path]
    assert [row.key for row in swept.kept] == [coming.path]
    await commit(store, 1, coming)
    assert (await looked_at(store, verify=True)).is_whole


@in_event_loop
async def test_a_replaced_file_is_swept_only_after_its_grace():
    store = new_store()
    old = await write(store, 0, "old")
    await commit(store, 0, old)
    ledger = await Ledger.open(store, "lake", environment=ENVIRONMENT)
    await ledger.rewrite(removed=[old.path], files=[await write(store, 1, "new")], n=1)
    early = await sweep(store, "lake", environment=ENVIRONMENT)
    assert not early.deleted
    late = await sweep(store, "lake", environment=ENVIRONMENT, grace_ms=0)
    assert [row.key for row in late.deleted] == [old.path]
    assert (await looked_at(store)).is_whole


async def in_directory(path: Path) -> None:
    store = open_store(str(path), environment=ENVIRONMENT)
    await land_chain(store)
    await commit(store, 0, await write(store, 0, "won"))
    await write(store, 0, "lost")
    await store.close()


def test_the_command_prints_what_is_there_and_succeeds_where_it_is_whole(tmp_path: Path):
    run(in_directory(tmp_path))
    result = CliRunner().invoke(command, [str(tmp_path), "--files", "--verify"])
    assert result.exit_code == 0, result.output
    assert "0..8" in result.output
    assert CHAIN_KEYS[1] in result.output
    assert "whole: 4 objects, every byte checked" in result.output
    assert "orphan   data/lake/" in result.output


async def compacted(path: Path) -> None:
    """Six files that one has replaced, and two that no entry names."""
    store = open_store(str(path), environment=ENVIRONMENT)
    old = [await write(store, n, f"old{n}") for n in range(6)]
    for n, file in enumerate(old):
        await commit(store, n, file)
    ledger = await Ledger.open(store, "lake", environment=ENVIRONMENT)
    new = await write(store, 6, "new")
    await ledger.rewrite(removed=[file.path for file in old], files=[new], n=6)
    for attempt in ("lost", "killed"):
        await write(store, 0, attempt)
    await store.close()


def test_orphans_are_counted_and_listed_and_replaced_files_are_not_taken_for_them(tmp_path: Path):
    run(compacted(tmp_path))
    lines = CliRunner().invoke(command, [str(tmp_path)]).output.splitlines()
    (row,) = [line.split() for line in lines if line.startswith("lake ")]
    assert row[-2:] == ["2", "6"], "orphans and replaced files"
    assert sum(line.startswith("orphan   ") for line in lines) == 2
    swept = CliRunner().invoke(command, [str(tmp_path), "--sweep"]).output.splitlines()
    assert "swept    lake: 8 files, 34 B" in swept
    left = CliRunner().invoke(command, [str(tmp_path)]).output.splitlines()
    (row,) = [line.split() for line in left if line.startswith("lake ")]
    assert row[-2:] == ["0", "0"]
    assert not any(line.startswith(("orphan ", "replaced ")) for line in [*swept, *left])


def test_the_command_fails_and_names_the_hole(tmp_path: Path):
    run(in_directory(tmp_path))
    (tmp_path / CHAIN_KEYS[1]).unlink()
    result = CliRunner().invoke(command, [str(tmp_path), "--topic", "orders"])
    assert result.exit_code == 2
    assert "offsets 3 to 5 are missing" in result.output


def test_the_command_speaks_json_and_sweeps(tmp_path: Path):
    run(in_directory(tmp_path))
    result = CliRunner().invoke(command, [str(tmp_path), "--json", "--sweep"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert told["whole"] is True
    assert told["chains"][0]["records"] == 9
    assert len(told["swept"]["lake"]) == 1
    assert len(list((tmp_path / "data/lake").iterdir())) == 1


def test_an_address_where_nothing_landed_does_not_look_like_success(tmp_path: Path):
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize("format", EVERY_FORMAT, ids=lambda format: format.name)
@in_event_loop
async def test_chains_of_every_format_are_proved(format: Format):
    store = new_store()
    chain = Chain(store, "orders", 3, format=format, environment=ENVIRONMENT)
    await chain.land(
        [batch_of(range(9))], start_offset=0, end_offset=12, bounds=ObjectBounds(rows_max=3)
    )
    await chain.land([], start_offset=12, end_offset=20)
    report = await looked_at(store, verify=True)
    assert report.is_whole
    assert [row.format for row in report.chains] == [format.name]
    assert [(row.objects, row.records) for row in report.chains] == [(4, 9)]
    await store.delete(["_orders+3+origin"])
    assert len(kinds(await looked_at(store))) == 4
