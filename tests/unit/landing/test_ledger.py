"""The ledger: what is committed, what is a replay, what is refused and with which words."""

import json

import pytest
from tests.support.async_tests import in_event_loop
from tests.support.landing import ENVIRONMENT, new_store

from holdfast.errors import CallError, CorruptObject
from holdfast.landing.blocking import run
from holdfast.landing.data_files import data_key, number_of
from holdfast.landing.landed import committed_files, files
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import (
    Effects,
    MicroBatch,
    OutputFile,
    SourceRange,
    decode_entry,
    entry_key,
)
from holdfast.landing.ledger_rules import (
    AlreadyCommitted,
    Commit,
    CommitRefusal,
    CommitRefused,
    decide,
)
from holdfast.landing.ledger_summary import BLOCK, summary_key
from holdfast.store.counting import CountingStore
from holdfast.store.interface import Store


def batch(batch_id: int, start: int | None, end: int, query_id: str = "q") -> MicroBatch:
    text = None if start is None else json.dumps({"t": {"0": start}})
    source = SourceRange(start=text, end=json.dumps({"t": {"0": end}}))
    return MicroBatch(query_id=query_id, batch_id=batch_id, sources=(source,))


def effects(n: int, attempt: str = "a") -> Effects:
    path = data_key("s", n, attempt=attempt, task=0, extension=".parquet")
    return Effects(files=(OutputFile(path=path, rows=1, bytes=1),), state=b"\x00%d" % n)


async def opened(store: Store) -> Ledger:
    return await Ledger.open(store, "s", environment=ENVIRONMENT)


async def fill(store: Store, count: int) -> Ledger:
    ledger = await opened(store)
    for n in range(count):
        outcome = await ledger.commit(batch(n, n * 10, n * 10 + 10), effects(n), n=n)
        assert isinstance(outcome, Committed)
    return ledger


@in_event_loop
async def test_entries_are_found_again_with_their_state():
    store = new_store()
    await fill(store, 3)
    head = (await opened(store)).head
    assert head is not None
    assert (head.n, head.state) == (2, b"\x002")


@in_event_loop
async def test_a_replay_of_the_newest_batch_is_already_committed_and_its_files_do_not_count():
    store = new_store()
    await fill(store, 2)
    ledger = await opened(store)
    again = await ledger.commit(batch(1, 10, 20), effects(1, "b"), n=1)
    assert again == AlreadyCommitted(n=1)
    paths = [file.path for file in await files(store, "s", environment=ENVIRONMENT)]
    assert paths == [effects(n).files[0].path for n in range(2)]


@in_event_loop
async def test_another_query_that_begins_where_the_ledger_ends_may_go_on():
    ledger = await fill(new_store(), 2)
    assert await ledger.plan(batch(0, 20, 30, "new")) == Commit(n=2)


@in_event_loop
async def test_offsets_are_compared_as_json_and_not_as_text():
    ledger = await fill(new_store(), 1)
    source = SourceRange(start='{ "t" : {"0":10}}', end='{"t":{"0":20}}')
    other = MicroBatch(query_id="q", batch_id=1, sources=(source,))
    assert await ledger.plan(other) == Commit(n=1)


@pytest.mark.parametrize(
    ("later", "refusal", "remedy"),
    [
        (batch(1, 10, 20), CommitRefusal.OLD_CHECKPOINT, "restored from an old copy"),
        (batch(2, 20, 35), CommitRefusal.TWO_DRIVERS, "Stop one of them"),
        (batch(4, 40, 50), CommitRefusal.LEDGER_BEHIND, "Restore the whole ledger"),
        (batch(0, 0, 50, "new"), CommitRefusal.CHECKPOINT_DELETED, "Set startingOffsets"),
        (batch(0, None, 50, "new"), CommitRefusal.CHECKPOINT_DELETED, "another sink id"),
        (batch(7, 70, 80, "other"), CommitRefusal.ANOTHER_QUERY, "its own sink id"),
    ],
)
@in_event_loop
async def test_a_refusal_names_both_positions_and_the_remedy(
    later: MicroBatch, refusal: CommitRefusal, remedy: str
):
    outcome = decide((await fill(new_store(), 3)).head, later)
    assert isinstance(outcome, CommitRefused)
    assert outcome.refusal is refusal
    assert remedy in outcome.message
    assert '{"t": {"0": 30}}' in outcome.message
    assert later.sources[0].end in outcome.message


@in_event_loop
async def test_of_two_drivers_with_the_same_batch_one_commits_and_the_other_learns_of_it():
    store = new_store()
    first, second = await opened(store), await opened(store)
    assert isinstance(await first.commit(batch(0, 0, 10), effects(0), n=0), Committed)
    assert await second.commit(batch(0, 0, 10), effects(0, "b"), n=0) == AlreadyCommitted(n=0)
    loser = await second.commit(batch(0, 0, 12), effects(0, "b"), n=0)
    assert isinstance(loser, CommitRefused)
    assert loser.refusal is CommitRefusal.TWO_DRIVERS


@in_event_loop
async def test_a_batch_that_still_fits_but_ran_on_an_older_entry_must_run_again():
    store = new_store()
    await fill(store, 1)
    timer, data = await opened(store), await opened(store)
    assert isinstance(await timer.commit(batch(1, 10, 10, "t"), effects(1), n=1), Committed)
    outcome = await data.commit(batch(1, 10, 20), effects(1, "b"), n=1)
    assert isinstance(outcome, CommitRefused)
    assert outcome.refusal is CommitRefusal.OVERTAKEN


@in_event_loop
async def test_a_file_named_for_another_entry_cannot_be_committed():
    ledger = await opened(new_store())
    with pytest.raises(CallError, match="its name is not one for this entry"):
        await ledger.commit(batch(0, 0, 10), effects(1), n=0)


@in_event_loop
async def test_a_rewrite_replaces_files_and_leaves_the_position_as_it_was():
    store = new_store()
    ledger = await fill(store, 3)
    old = [effects(n).files[0].path for n in range(3)]
    outcome = await ledger.rewrite(removed=old[:2], files=effects(3, "c").files, n=3)
    assert isinstance(outcome, Committed)
    found = await committed_files(store, "s", environment=ENVIRONMENT)
    assert [file.path for file in found.files] == [old[2], effects(3, "c").files[0].path]
    assert [file.path for file in found.replaced] == old[:2]
    assert await ledger.plan(batch(2, 20, 30)) == AlreadyCommitted(n=3)
    assert await ledger.plan(batch(3, 30, 40)) == Commit(n=4)
    assert outcome.entry.state == b"\x002"


@in_event_loop
async def test_a_rewrite_that_was_overtaken_is_refused():
    store = new_store()
    ledger = await fill(store, 1)
    await (await opened(store)).commit(batch(1, 10, 20), effects(1), n=1)
    outcome = await ledger.rewrite(removed=[], files=effects(1, "c").files, n=1)
    assert isinstance(outcome, CommitRefused)


@in_event_loop
async def test_summaries_keep_the_reads_for_a_long_ledger_few():
    store = new_store()
    await fill(store, 2 * BLOCK + 5)
    counted = CountingStore(store)
    found = await committed_files(counted, "s", environment=ENVIRONMENT)
    assert len(found.files) == 2 * BLOCK + 5
    assert counted.requests["read"] < 12
    await store.delete([summary_key("s", 0)])
    without = await committed_files(counted, "s", environment=ENVIRONMENT)
    assert without.files == found.files


@in_event_loop
async def test_an_entry_from_another_history_is_noticed():
    store, other = new_store(), new_store()
    await fill(store, 2)
    ledger = await opened(other)
    await ledger.commit(batch(0, 0, 10, "x"), effects(0), n=0)
    await ledger.commit(batch(1, 10, 20, "x"), effects(1), n=1)
    key = entry_key("s", 1)
    await store.delete([key])
    await store.create(key, (await other.read(key),))
    with pytest.raises(CorruptObject, match="does not follow the entry before it"):
        await committed_files(store, "s", environment=ENVIRONMENT)


@in_event_loop
async def test_a_changed_entry_is_noticed_at_every_byte():
    store = new_store()
    await fill(store, 1)
    body = await store.read(entry_key("s", 0))
    for position in range(len(body)):
        changed = bytearray(body)
        changed[position] ^= 1
        with pytest.raises(CorruptObject):
            decode_entry(bytes(changed), sink_id="s", n=0)


@pytest.mark.parametrize("sink_id", ["", "a/b", "..", "-a", "x" * 101])
def test_a_sink_id_that_cannot_be_a_folder_is_refused(sink_id: str):
    with pytest.raises(CallError, match="sink id"):
        run(Ledger.open(new_store(), sink_id, environment=ENVIRONMENT))


def test_output_files_lie_in_folders_of_their_partition_columns():
    path = data_key(
        "s",
        7,
        attempt="ab",
        task=3,
        extension=".parquet",
        partition_values={"day": "a/b%", "x": None},
    )
    assert path.startswith("data/s/day=a=2Fb=25/x=__HIVE_DEFAULT_PARTITION__/")
    assert number_of(path, "s") == 7
    assert number_of(path, "t") is None
