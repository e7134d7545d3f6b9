"""Transactional batches and markers on a broker that verifies no transaction."""

from typing import Any

from tests.support.brokers import Cluster, log_of, produce, topic

from holdfast.broker.broker import Broker
from holdfast.broker.transactions.markers import add_marker
from holdfast.protocol.api import Refused


async def served(world: Cluster, **settings: Any) -> Broker:
    """A broker with a topic, whose coordinator knows every transaction."""
    broker = await world.broker(**settings)
    broker.verify_transaction = lambda append: None
    await topic(broker)
    return broker


async def write(broker: Broker, producer_id: int, value: bytes = b"v", **more: Any) -> None:
    known = log_of(broker).producers.get(producer_id)
    sequence = known.batches[-1].last_sequence + 1 if known and known.batches else 0
    named = (producer_id, known.epoch if known else 0, sequence)
    response = await produce(broker, [value], producer=named, transactional=True, **more)
    assert response.error_code == 0, response


async def end(
    broker: Broker, producer_id: int, *, committed: bool, epoch: int | None = None
) -> Refused | None:
    led = broker.led(broker.state.topic_named("t"), 0)
    assert led is not None
    known = log_of(broker).producers.get(producer_id)
    refused = add_marker(
        led.lane,
        led.partition,
        producer_id=producer_id,
        producer_epoch=epoch if epoch is not None else (known.epoch if known else 0),
        committed=committed,
        coordinator_epoch=3,
        now_ms=broker.environment.now_ms(),
    )
    await led.lane.flush()
    await led.lane.validate()
    return refused
