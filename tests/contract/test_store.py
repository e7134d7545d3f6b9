"""What every store promises, whatever it is made of."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.async_tests import in_event_loop, run_by_fixture

from holdfast.environment import SystemEnvironment
from holdfast.errors import CallError, ObjectNotFound
from holdfast.store.interface import CreateAnswer, Store
from holdfast.store.put_if_absent import Lost, Won, put_if_absent, same_bytes

CREATED, EXISTS = CreateAnswer.CREATED, CreateAnswer.EXISTS


async def keys(store: Store, prefix: str, **bounds: Any) -> list[str]:
    return [entry.key for entry in await store.list(prefix, **bounds)]


@run_by_fixture("run")
async def test_a_created_object_can_be_read_at_once(store: Store):
    for number in range(20):
        body = b"body %d" % number
        assert await store.create(f"lanes/1/{number:020}", [body]) is CREATED
        assert await store.read(f"lanes/1/{number:020}") == body
        assert await store.size(f"lanes/1/{number:020}") == len(body)


@run_by_fixture("run")
async def test_a_taken_key_keeps_its_first_body(store: Store):
    assert await store.create("a/key", [b"first"]) is CREATED
    assert await store.create("a/key", [b"second, and longer"]) is EXISTS
    assert await store.create("a/key", [b"first"]) is EXISTS
    assert await store.read("a/key") == b"first"


@run_by_fixture("run")
async def test_of_many_concurrent_creators_one_wins_and_its_body_stays(store: Store):
    for turn in range(10):
        key = f"race/{turn}"
        bodies = [b"%d" % rival * 500 for rival in range(8)]
        answers = await asyncio.gather(*(store.create(key, [body]) for body in bodies))
        # A store may answer a race with a conflict; then only a repeat tells.
        assert answers.count(CREATED) <= 1
        again = [await store.create(key, [body]) for body in bodies]
        assert again.count(CREATED) + answers.count(CREATED) == 1
        first = (answers if CREATED in answers else again).index(CREATED)
        assert await store.read(key) == bodies[first]


@run_by_fixture("run")
async def test_two_openers_of_one_store_race_as_one(
    store: Store, store_opener: Callable[[], Store]
):
    other = store_opener()
    try:
        for turn in range(10):
            key = f"lanes/0/{turn}"
            answers = await asyncio.gather(
                store.create(key, [b"mine"]), other.create(key, [b"theirs"])
            )
            assert sorted(answer.value for answer in answers) == ["created", "exists"]
            winner = b"mine" if answers[0] is CREATED else b"theirs"
            assert await store.read(key) == await other.read(key) == winner
    finally:
        await other.close()


@run_by_fixture("run")
async def test_put_if_absent_has_one_winner_and_the_losers_see_its_body(store: Store):
    environment = SystemEnvironment()
    bodies = [os.urandom(16) + b"x" * 2000 for _ in range(6)]

    async def rival(body: bytes) -> Won | Lost:
        return await put_if_absent(
            store,
            "lanes/3/7",
            [body[:16], body[16:]],
            is_ours=lambda found: found == body[:16],
            identify_bytes=16,
            environment=environment,
        )

    outcomes = await asyncio.gather(*(rival(body) for body in bodies))
    [winner] = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Won)]
    assert await store.read("lanes/3/7") == bodies[winner]
    losers = [outcome.body for outcome in outcomes if isinstance(outcome, Lost)]
    assert losers == [bodies[winner][:16]] * 5


@run_by_fixture("run")
async def test_put_if_absent_of_the_same_attempt_again_is_won_again(store: Store):
    environment = SystemEnvironment()
    for _ in range(2):
        outcome = await put_if_absent(
            store,
            "lanes/3/8",
            [b"whole body"],
            is_ours=same_bytes([b"whole body"]),
            identify_bytes=None,
            environment=environment,
        )
        assert isinstance(outcome, Won)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (3, None, b"3456789"),
        (8, 100, b"89"),
        (9, 1, b"9"),
        (10, None, b""),
        (10, 1, b""),
        (11, 5, b""),
        (1000, None, b""),
        (0, 0, b""),
        (4, 0, b""),
    ],
)
@run_by_fixture("run")
async def test_a_ranged_read_gives_what_is_in_the_range(
    store: Store, start: int, length: int | None, expected: bytes
):
    await store.create("ten", [b"0123456789"])
    assert await store.read("ten", start=start, length=length) == expected


@run_by_fixture("run")
async def test_an_empty_object_is_an_object(store: Store):
    assert await store.create("empty/none", []) is CREATED
    assert await store.create("empty/blank", [b"", b""]) is CREATED
    for key in ("empty/none", "empty/blank"):
        assert await store.create(key, [b"x"]) is EXISTS
        assert await store.size(key) == 0
        assert await store.read(key) == b""
        assert await store.read(key, length=10) == b""
    assert [entry.size for entry in await store.list("empty/")] == [0, 0]


@run_by_fixture("run")
async def test_an_object_of_eight_mebibytes_comes_back_whole_and_in_parts(store: Store):
    body = os.urandom(8 << 20)
    assert await store.create("large", [body]) is CREATED
    assert await store.size("large") == len(body)
    assert await store.read("large") == body
    middle = await store.read("large", start=(4 << 20) - 1, length=70_001)
    assert middle == body[(4 << 20) - 1 :][:70_001]
    assert await store.read("large", start=len(body) - 1) == body[-1:]


@run_by_fixture("run")
async def test_a_body_of_many_buffers_of_all_kinds_is_their_concatenation(store: Store):
    whole = os.urandom(30_000)
    buffers: list[bytes | bytearray | memoryview] = []
    for start in range(0, len(whole), 6):
        part = whole[start : start + 6]
        buffers += [part[:1], bytearray(part[1:3]), b"", memoryview(part)[3:]]
    assert len(buffers) > 10_000
    assert await store.create("many", buffers) is CREATED
    assert await store.read("many") == whole


@run_by_fixture("run")
async def test_an_unknown_key_is_not_found_by_read_and_none_by_size(store: Store):
    await store.create("here/there", [b"x"])
    for key in ("nowhere", "here/nowhere", "no/such/folder", "here"):
        assert await store.size(key) is None
        for bounds in ({}, {"start": 5}, {"length": 3}, {"start": 1, "length": 0}):
            with pytest.raises(ObjectNotFound):
                await store.read(key, **bounds)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/absolute",
        "trailing/",
        "a//b",
        ".",
        "..",
        "../up",
        "a/../b",
        "a/./b",
        "a/..",
        "nul\x00byte",
        "line\nfeed",
        "back\\slash",
        "per%2fcent",
        "lone\ud800surrogate",
        "p" * 256,
        "/".join(["part"] * 200),
        ".holdfast-tmp/x",
        ".holdfast-reserve",
    ],
)
@run_by_fixture("run")
async def test_a_key_that_could_escape_or_differ_between_stores_is_refused(store: Store, key: str):
    for call in (
        store.create(key, [b"x"]),
        store.read(key),
        store.size(key),
        store.delete(["fine", key]),
    ):
        with pytest.raises(CallError):
            await call
    assert await store.list("") == []


@run_by_fixture("run")
async def test_every_legal_character_comes_back_from_a_listing_as_it_went_in(store: Store):
    names = [f"odd/{c}x{c}" for c in " !$&'()+,-.0:;=@A_aé€😀"]
    for name in names:
        assert await store.create(name, [name.encode()]) is CREATED
    assert await keys(store, "odd/") == sorted(names, key=str.encode)
    for name in names:
        assert await store.read(name) == name.encode()


SCATTERED = [
    "a",
    "b-c/x",
    "b.d",
    "b/1",
    "b/10",
    "b/2/z",
    "b/2/é",
    "b0",
    "c/d/e/f",
    "c/d/e0",
    "c/d0",
]
"""In byte order of the whole key, which is not the order of a walk through folders."""


@run_by_fixture("run")
async def test_a_listing_is_in_byte_order_of_the_whole_key(store: Store):
    for key in reversed(SCATTERED):
        await store.create(key, [key.encode()])
    assert sorted(SCATTERED, key=str.encode) == SCATTERED
    entries = await store.list("")
    assert [entry.key for entry in entries] == SCATTERED
    assert [entry.size for entry in entries] == [len(key.encode()) for key in SCATTERED]
    assert all(entry.modified_ms > 1_600_000_000_000 for entry in entries)


@run_by_fixture("run")
async def test_a_prefix_matches_characters_and_not_parts(store: Store):
    for key in SCATTERED:
        await store.create(key, [b"x"])
    prefixes = ["a", "b", "b/", "b/1", "b/2", "b/2/", "b-", "c/d", "c/d/e", "c/d0", "zz", "b/9"]
    for prefix in prefixes:
        expected = [key for key in SCATTERED if key.startswith(prefix)]
        assert await keys(store, prefix) == expected, prefix


@run_by_fixture("run")
async def test_after_and_limit_page_through_every_key_once(store: Store):
    for key in SCATTERED:
        await store.create(key, [b"x"])
    for prefix in ("", "b", "b/", "c/d"):
        expected = [key for key in SCATTERED if key.startswith(prefix)]
        for limit in (1, 2, 5, 100):
            paged: list[str] = []
            while page := await keys(store, prefix, after=paged[-1] if paged else "", limit=limit):
                assert len(page) <= limit
                paged += page
            assert paged == expected


@run_by_fixture("run")
async def test_after_may_be_any_string_also_one_that_is_no_key(store: Store):
    for key in SCATTERED:
        await store.create(key, [b"x"])
    for after in ("b", "b/", "b/2", "b/2/", "b/2/z", "b/9", "b//", "~", "c/d/e", "c/"):
        for prefix in ("", "b", "b/"):
            expected = [k for k in SCATTERED if k > after and k.startswith(prefix)]
            assert await keys(store, prefix, after=after) == expected, (prefix, after)
    assert await keys(store, "", limit=0) == []


@run_by_fixture("run")
async def test_a_listing_of_more_than_one_page_has_every_key(store: Store):
    expected = [f"lanes/2/{number:020}" for number in range(1200)]
    for start in range(0, len(expected), 40):
        batch = expected[start : start + 40]
        await asyncio.gather(*(store.create(key, [b"x"]) for key in batch))
    assert await keys(store, "lanes/2/") == expected
    assert await keys(store, "lanes/2/", after=expected[1100]) == expected[1101:]
    assert await keys(store, "lanes/2/", after=expected[100], limit=1050) == (expected[101:1151])


@run_by_fixture("run")
async def test_delete_removes_and_does_not_mind_what_is_not_there(store: Store):
    for key in ("d/1", "d/2", "d/3"):
        await store.create(key, [b"x"])
    await store.delete(["d/1", "d/none", "no/such/folder/at/all", "d/3"])
    assert await keys(store, "") == ["d/2"]
    assert await store.size("d/1") is None
    await store.delete(["d/1", "d/3"])
    await store.delete([])
    assert await keys(store, "") == ["d/2"]


@run_by_fixture("run")
async def test_a_deleted_key_is_free_again(store: Store):
    await store.create("again", [b"one"])
    await store.delete(["again"])
    with pytest.raises(ObjectNotFound):
        await store.read("again")
    assert await store.create("again", [b"two"]) is CREATED
    assert await store.read("again") == b"two"


@in_event_loop
async def test_objects_are_there_after_the_store_is_closed_and_opened_again(
    store_opener: Callable[[], Store],
):
    first = store_opener()
    await first.create("kept/1", [b"kept"])
    await first.close()
    await first.close()
    second = store_opener()
    assert await second.read("kept/1") == b"kept"
    assert await second.create("kept/1", [b"other"]) is EXISTS
    await second.close()
