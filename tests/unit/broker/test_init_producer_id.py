"""InitProducerId: an id is given once, whoever asks, and whatever broker was killed before."""

import asyncio

import pytest
from tests.unit.broker.administered import (
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
    until,
)

from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("version", range(6))
@on_gated_store
async def test_an_id_is_never_given_twice_also_across_a_kill(store: GatedStore, version: int):
    given: list[int] = []
    for _ in range(3):
        broker = await started(store)
        for _ in range(3):
            response = await ask(broker, InitProducerIdRequest(), version)
            assert (names([response]), response.producer_epoch) == (["NONE"], 0)
            given.append(response.producer_id)
    assert len(set(given)) == 9
    assert min(given) >= 0


@on_gated_store
async def test_a_producer_that_names_its_old_id_gets_a_new_one(store: GatedStore):
    broker = await started(store)
    first = await ask(broker, InitProducerIdRequest(), 4)
    request = InitProducerIdRequest(producer_id=first.producer_id, producer_epoch=3)
    second = await ask(broker, request, 4)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 0)])
@on_gated_store
async def test_an_old_id_without_its_epoch_is_refused(
    store: GatedStore, producer_id: int, producer_epoch: int
):
    broker = await started(store)
    request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=producer_epoch)
    assert names([await ask(broker, request, 4)]) == ["INVALID_REQUEST"]


@on_gated_store
async def test_an_empty_transactional_id_is_refused(store: GatedStore):
    broker = await started(store)
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    response = await ask(broker, request, 4)
    assert (names([response]), response.producer_id) == (["INVALID_REQUEST"], -1)


@on_gated_store
async def test_a_transactional_id_keeps_its_producer_id_over_epochs_and_brokers(store: GatedStore):
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    broker = await started(store)
    answers = [await ask(broker, request, 4) for _ in range(2)]
    again = await started(store)
    answers.append(await ask(again, request, 4))
    assert [answer.producer_epoch for answer in answers] == [0, 1, 2]
    assert len({answer.producer_id for answer in answers}) == 1


@on_gated_store
async def test_a_producer_that_hangs_up_harms_neither_the_lane_nor_the_next_producer(
    store: GatedStore,
):
    broker = await started(store)
    store.gate.clear()
    first = asyncio.ensure_future(ask(broker, InitProducerIdRequest(), 4))
    second = asyncio.ensure_future(ask(broker, InitProducerIdRequest(), 4))
    await until(lambda: broker.state.next_producer_id > 0)
    first.cancel()
    await asyncio.wait({first})
    store.gate.set()
    assert names([await second]) == ["NONE"]
    await create(broker, "a")


@on_gated_store
async def test_a_broker_that_lost_the_control_lane_asks_to_try_again(store: GatedStore):
    first = await started(store)
    await started(store)
    for _ in range(2):
        response = await ask(first, InitProducerIdRequest(), 4)
        assert names([response]) == ["COORDINATOR_LOAD_IN_PROGRESS"]
