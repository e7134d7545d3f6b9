"""Dead letters: whole, with a reason, and never taken for landed where no object holds them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.support.async_tests import in_event_loop
from tests.support.landing import ENVIRONMENT, batch, new_store, row

from holdfast.cli.landed import command
from holdfast.errors import CallError
from holdfast.inspect.output_survey import survey
from holdfast.landing.blocking import run
from holdfast.landing.chain import Chain, Landed, NotLanded
from holdfast.landing.dead_letters import DeadLetters, dead_batch
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.known import new_format
from holdfast.landing.keys import HIVE_TEMPLATE, KeyTemplate
from holdfast.landing.landed import records
from holdfast.store.address import open_store
from holdfast.store.interface import Store

HEADERS = [{"key": "trace", "value": b"\x00\xff"}]
VALUES = [b"{}", b"no", b"\xff\n", None, b"[1]", b"x" * 200]
SINK = new_format("jsonl", record_bytes_max=100)


def whole_batch(first: int = 0) -> pa.RecordBatch:
    return batch(
        row(first + i, value=value, key=b"\xfe", headers=HEADERS) for i, value in enumerate(VALUES)
    )


def letters_on(store: Store, template: str | None = None) -> DeadLetters:
    chosen = KeyTemplate(template) if template else KeyTemplate()
    return DeadLetters(store, "orders", 3, template=chosen, environment=ENVIRONMENT)


async def land_dead(
    store: Store, batch: pa.RecordBatch, format: Format = SINK, start: int = 0
) -> Landed | NotLanded:
    _, unfit = format.sort_out(batch)
    return await letters_on(store).land([dead_batch(batch, unfit)], start_offset=start)


@in_event_loop
async def test_unfit_records_are_kept_whole_with_their_reasons():
    store = new_store()
    outcome = await land_dead(store, whole_batch())
    assert isinstance(outcome, Landed)
    assert outcome.next_offset == 6
    assert [row.key for row in await store.list("_dead/")] == [
        "_dead/_orders+3+origin",
        "_dead/orders+3+00000000000000000000.jsonl.zst",
    ]
    found = [
        row
        async for part in records(store, environment=ENVIRONMENT, topic="orders", dead=True)
        for row in part.to_pylist()
    ]
    reasons = [row.pop("reason") for row in found]
    assert found == [whole_batch().to_pylist()[i] for i in (1, 2, 3, 5)]
    assert [reason.split(",")[0] for reason in reasons] == [
        "its value is not one JSON text",
        "its value has a line feed or a carriage return inside",
        "its value is null",
        "it is larger than 100 bytes: it has 208",
    ]


@in_event_loop
async def test_dead_letters_are_not_among_the_records_of_their_topic():
    store = new_store()
    fit, _ = SINK.sort_out(whole_batch())
    await land_dead(store, whole_batch())
    chain = Chain(store, "orders", 3, format=SINK, environment=ENVIRONMENT)
    await chain.land([fit], start_offset=0, end_offset=6)
    values = [
        value
        async for part in records(store, environment=ENVIRONMENT, topic="orders")
        for value in part.column("value").to_pylist()
    ]
    assert values == [b"{}", b"[1]"]


@in_event_loop
async def test_landing_them_again_adds_only_what_is_new():
    store = new_store()
    await land_dead(store, whole_batch())
    again = await land_dead(store, whole_batch())
    assert isinstance(again, Landed)
    assert again.created == ()
    both = pa.concat_batches([whole_batch(), whole_batch(6)])
    more = await land_dead(store, both)
    assert [(facts.first_offset, facts.records) for facts in more.created] == [(6, 4)]


@in_event_loop
async def test_offsets_between_dead_letters_are_covered():
    store = new_store()
    await land_dead(store, whole_batch())
    later = await land_dead(store, whole_batch(1000), start=900)
    assert [(f.first_offset, f.last_offset) for f in later.created] == [(6, 1005)]
    assert (await survey(store, environment=ENVIRONMENT)).is_whole


@in_event_loop
async def test_a_record_that_another_member_passed_as_fit_is_refused_and_not_lost():
    store = new_store()
    lenient = new_format("jsonl", require_json=False, record_bytes_max=100)
    await land_dead(store, whole_batch(), lenient)
    outcome = await land_dead(store, whole_batch())
    assert isinstance(outcome, NotLanded)
    assert "cannot land the record at offset 1" in outcome.reason
    assert "the same format, layout" in outcome.reason


def test_a_batch_without_all_columns_cannot_become_dead_letters():
    _, unfit = SINK.sort_out(whole_batch())
    with pytest.raises(CallError, match="key, topic"):
        dead_batch(whole_batch().select(["value", "offset"]), unfit)
    with pytest.raises(CallError, match="not in the record batch"):
        dead_batch(whole_batch(50), unfit)
    with pytest.raises(CallError, match="no dead letters"):
        run(letters_on(new_store()).land([], start_offset=0))


@pytest.mark.parametrize("template", [None, HIVE_TEMPLATE])
def test_the_command_counts_them_by_reason(tmp_path: Path, template: str | None):
    url = f"file://{tmp_path}"

    async def main() -> None:
        store = open_store(url, environment=ENVIRONMENT)
        letters = letters_on(store, template)
        for first in (0, 10):
            _, unfit = SINK.sort_out(whole_batch(first))
            await letters.land([dead_batch(whole_batch(first), unfit)], start_offset=first)
        await store.close()

    run(main())
    shown = CliRunner().invoke(command, [url])
    assert shown.exit_code == 0, shown.output
    assert "DEAD LETTERS" in shown.output
    assert "it is larger than 100 bytes" in shown.output
    assert "whole: 2 objects" in shown.output
    report = json.loads(CliRunner().invoke(command, [url, "--json", "--verify"]).stdout)
    assert report["chains"][0]["is_dead"]
    assert report["chains"][0]["records"] == 8
    assert report["chains"][0]["reasons"]["its value is null"] == 2
    assert report["chains"][0]["reasons"]["it is larger than 100 bytes"] == 2
