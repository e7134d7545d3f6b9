"""Put-if-absent on a real S3 server whose answers, or requests, get lost on the way."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.peers.seaweedfs import SeaweedFs
from tests.support.async_tests import in_event_loop
from tests.support.bad_proxy import BadProxy, Mishap

from holdfast.environment import SystemEnvironment
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.store.interface import CreateAnswer, Store
from holdfast.store.objects import open_object_store
from holdfast.store.put_if_absent import Lost, Won, put_if_absent

Scenario = Callable[[Store, Store, BadProxy], Coroutine[Any, Any, None]]

OURS = b"our writer's id." + b"records" * 100
THEIRS = b"their writer id." + b"other records" * 50
KEY = "lanes/1/00000000000000000007"


def run(server: SeaweedFs, scenario: Scenario, *, stalls: bool = False) -> None:
    """Run with one store through the proxy, and one straight to the server.

    Only a test that stalls has use for a short timeout; elsewhere a busy server may take its time.
    """

    async def main() -> None:
        prefix = f"lost/{uuid.uuid4().hex}"
        async with BadProxy(server.port) as proxy:
            url = server.url(prefix, endpoint=proxy.endpoint)
            timeout_seconds = 2 if stalls else 60
            through = open_object_store(
                f"{url}&timeout_seconds={timeout_seconds}", variables=server.variables
            )
            straight = open_object_store(server.url(prefix), variables=server.variables)
            try:
                await scenario(through, straight, proxy)
            finally:
                await through.close()
                await straight.close()

    asyncio.run(main())


async def put(store: Store, body: bytes) -> Won | Lost:
    return await put_if_absent(
        store,
        KEY,
        [body[:30], body[30:]],
        is_ours=lambda found: found == body[:16],
        identify_bytes=16,
        environment=SystemEnvironment(),
        deadline_seconds=60.0,
    )


LANDED = [Mishap.LOSE_ANSWER, Mishap.ERROR_AFTER, Mishap.STALL]
NOT_LANDED = [Mishap.LOSE_REQUEST, Mishap.BUSY, Mishap.CONFLICT]


@pytest.mark.parametrize("mishap", LANDED)
def test_a_create_that_landed_without_an_answer_is_won(seaweedfs: SeaweedFs, mishap: Mishap):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        proxy.plan["PUT"].append(mishap)
        outcome = await put(through, OURS)
        # On a busy machine a try may time out by itself, and there are more than two.
        assert isinstance(outcome, Won) and outcome.attempts >= 2
        assert await straight.read(KEY) == OURS
        assert proxy.happened["PUT", mishap] == 1

    run(seaweedfs, scenario, stalls=mishap is Mishap.STALL)


@pytest.mark.parametrize("mishap", LANDED)
def test_after_a_lost_answer_the_store_itself_calls_our_object_existing(
    seaweedfs: SeaweedFs, mishap: Mishap
):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        proxy.plan["PUT"].append(mishap)
        with pytest.raises(StoreUnavailable):
            await through.create(KEY, [OURS])
        await proxy.server_has_acted(mishap)
        assert await straight.create(KEY, [OURS]) is CreateAnswer.EXISTS

    run(seaweedfs, scenario, stalls=mishap is Mishap.STALL)


@pytest.mark.parametrize("mishap", NOT_LANDED)
def test_a_create_that_never_arrived_is_tried_again_and_won(seaweedfs: SeaweedFs, mishap: Mishap):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        proxy.plan["PUT"] += [mishap, mishap]
        outcome = await put(through, OURS)
        assert isinstance(outcome, Won) and outcome.attempts >= 3
        assert await straight.read(KEY) == OURS

    run(seaweedfs, scenario)


@pytest.mark.parametrize("mishap", [*LANDED, *NOT_LANDED])
def test_a_rival_who_was_first_is_named_whatever_is_lost(seaweedfs: SeaweedFs, mishap: Mishap):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        assert await put(straight, THEIRS) == Won(attempts=1)
        proxy.plan["PUT"].append(mishap)
        outcome = await put(through, OURS)
        assert isinstance(outcome, Lost) and outcome.body == THEIRS[:16]
        assert await straight.read(KEY) == THEIRS

    run(seaweedfs, scenario, stalls=mishap is Mishap.STALL)


@pytest.mark.parametrize("mishap", [Mishap.LOSE_ANSWER, Mishap.CUT_ANSWER, Mishap.BUSY])
def test_a_failing_read_back_is_read_again(seaweedfs: SeaweedFs, mishap: Mishap):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        proxy.plan["PUT"].append(Mishap.LOSE_ANSWER)
        proxy.plan["GET"] += [mishap] * 2
        assert isinstance(await put(through, OURS), Won)
        assert proxy.happened["GET", mishap] == 2

    run(seaweedfs, scenario)


@pytest.mark.parametrize("mishap", [mishap for mishap in Mishap if mishap is not Mishap.NONE])
def test_one_create_is_one_request_whatever_the_answer(seaweedfs: SeaweedFs, mishap: Mishap):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        proxy.plan["PUT"].append(mishap)
        with contextlib.suppress(StoreUnavailable):
            await through.create(KEY, [OURS])
        assert proxy.happened == {("PUT", mishap): 1}

    run(seaweedfs, scenario, stalls=mishap is Mishap.STALL)


def test_a_read_of_half_an_answer_is_never_returned(seaweedfs: SeaweedFs):
    async def scenario(through: Store, straight: Store, proxy: BadProxy) -> None:
        await straight.create("large", [OURS * 100])
        proxy.plan["GET"] += [Mishap.CUT_ANSWER] * 20
        for bounds in ({}, {"length": 9000}, {"start": 50}, {"start": 50, "length": 9000}):
            with pytest.raises(StoreUnavailable):
                await through.read("large", **bounds)
        proxy.plan["GET"].clear()
        assert await through.read("large") == OURS * 100

    run(seaweedfs, scenario)


@in_event_loop
async def test_wrong_credentials_are_an_outage_that_names_the_remedy_and_no_secret(
    seaweedfs: SeaweedFs,
):
    variables = seaweedfs.variables | {"AWS_SECRET_ACCESS_KEY": "canary-of-a-secret"}
    store = open_object_store(seaweedfs.url("denied"), variables=variables)
    calls = (store.create("k", [b"x"]), store.read("k"), store.list(""), store.delete(["k"]))
    for call in calls:
        with pytest.raises(StoreUnavailable, match="check the credentials") as caught:
            await call
        assert "canary" not in str(caught.value) and "canary" not in store.url
    await store.close()


@in_event_loop
async def test_a_bucket_that_is_not_there_is_an_outage_and_not_an_empty_store(seaweedfs: SeaweedFs):
    url = seaweedfs.url("x").replace(f"//{seaweedfs.bucket}/", "//no-such-bucket/")
    store = open_object_store(url, variables=seaweedfs.variables)
    for call in (store.read("k"), store.list("")):
        with pytest.raises(StoreUnavailable):
            await call
    await store.close()


@in_event_loop
async def test_a_server_that_is_gone_is_an_outage_for_every_call():
    store = open_object_store(
        "s3://bucket/prefix?endpoint=http://127.0.0.1:9&region=x&timeout_seconds=1",
        variables={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )
    calls = (
        store.create("k", [b"x"]),
        store.read("k"),
        store.size("k"),
        store.list(""),
        store.delete(["k"]),
    )
    for call in calls:
        with pytest.raises(StoreUnavailable) as caught:
            await call
        assert not isinstance(caught.value, ObjectNotFound)
    await store.close()
