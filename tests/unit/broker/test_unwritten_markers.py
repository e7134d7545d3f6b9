"""A participant that is away: its markers are tried again, and the log says so twice in all."""

import logging

import pytest
from tests.support.brokers import pass_time
from tests.support.clusters import Several, simulate
from tests.unit.broker.spread import RoutedProducer, Spread, is_end

from holdfast.broker.transactions.unwritten import UnwrittenMarkers
from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable
from holdfast.protocol.message import Message

AWAY_S = 8.0


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if message.startswith("markers_")]


def test_the_log_says_once_that_markers_wait_and_once_that_they_are_written(
    caplog: pytest.LogCaptureFixture,
):
    async def test(world: Several) -> None:
        spread = await Spread.start(world, 2)
        here, other = spread.brokers
        name = spread.name_where(lambda broker: broker is here)
        producer = await RoutedProducer(spread, name).started()
        partition = spread.partitions_of(other)[0]
        await producer.write(partition, b"value")
        tries: list[Message] = []

        async def away(own: Address, to: Address, request: Message) -> None:
            del own, to
            if is_end(request):
                tries.append(request)
                raise BrokerUnavailable("away")

        world.wires.before.append(away)
        await producer.commit()
        await pass_time(AWAY_S)
        assert len(tries) > 5
        (begun,) = said(caplog)
        assert begun.startswith("markers_not_written") and name in begun
        (waiting,) = [len(each.unwritten) for each in here.transactions.values() if each.unwritten]
        assert waiting == 1
        world.wires.before.remove(away)
        await pass_time(2)
        assert await spread.committed_values(partition) == [b"value"]
        _, ended = said(caplog)
        assert ended.startswith("markers_written") and f"tries={len(tries)}" in ended
        assert not any(len(each.unwritten) for each in here.transactions.values())

    with caplog.at_level(logging.WARNING, logger="holdfast.broker"):
        simulate(test)


def test_all_that_wait_at_the_same_time_are_counted_in_one_line(caplog: pytest.LogCaptureFixture):
    unwritten = UnwrittenMarkers(3)
    error = BrokerUnavailable("away")
    for now in (10.0, 10.5):
        unwritten.failed("a", error, now)
        unwritten.failed("b", error, now)
    unwritten.over("never waited", 11.0, is_written=True)
    unwritten.over("a", 11.0, is_written=True)
    assert len(said(caplog)) == 1
    unwritten.over("b", 12.5, is_written=True)
    assert said(caplog)[1] == "markers_written lane=3 seconds=2.5 transactions=2 tries=4"
    unwritten.failed("a", error, 20.0)
    unwritten.over("a", 21.0, is_written=False)
    assert said(caplog)[3] == (
        "markers_left_to_the_next_owner lane=3 seconds=1.0 transactions=1 tries=1"
    )
