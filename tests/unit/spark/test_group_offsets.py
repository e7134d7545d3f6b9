"""A query's progress for a consumer group: told once, told again after a failure, never ahead."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from holdfast.errors import ConfigurationError, RetryError
from holdfast.protocol.consumer_protocol import TopicPartition as Where
from holdfast.spark.source.group_offsets import GroupOffsets
from holdfast.spark.source.inputs import SourcePartition
from holdfast.spark.source.offsets import SourceOffset
from holdfast.spark.source.options import parse_options


def at(**positions: int) -> SourceOffset:
    return SourceOffset(
        {SourcePartition("t", int(name[1:]), UUID(int=7)): n for name, n in positions.items()}
    )


class Group:
    def __init__(self) -> None:
        self.told: list[dict[Where, int]] = []
        self.is_away = False

    def commit(self, offsets: Mapping[Where, int]) -> None:
        if self.is_away:
            raise RetryError("away")
        self.told.append(dict(offsets))


def test_only_what_has_moved_is_told():
    group = Group()
    offsets = GroupOffsets("g", group.commit)
    for position in (at(p0=5, p1=1), at(p0=5, p1=1), at(p0=5, p1=3)):
        offsets.committed(position)
    assert group.told == [{Where("t", 0): 5, Where("t", 1): 1}, {Where("t", 1): 3}]


def test_a_group_that_cannot_be_reached_is_told_later_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
):
    group = Group()
    offsets = GroupOffsets("g", group.commit)
    group.is_away = True
    offsets.committed(at(p0=5))
    offsets.committed(at(p0=6))
    group.is_away = False
    offsets.committed(at(p0=6))
    assert group.told == [{Where("t", 0): 6}]
    assert [record.message for record in caplog.records] == ["group_not_told group=g: away"]


def test_a_store_needs_the_address_of_its_brokers_for_the_group_alone():
    least = {"store": "/tmp/s", "subscribe": "t", "commitGroupId": "lag"}
    with pytest.raises(ConfigurationError, match=r"needs kafka.bootstrap.servers beside store"):
        parse_options(least, streaming=True)
    more = {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "me"}
    found = parse_options({**least, **more}, streaming=True)
    assert (found.store, found.bootstrap_servers) == ("/tmp/s", "h:1")
    assert (found.commit_group_id, found.client) == ("lag", {"client.id": "me"})


def test_an_empty_group_is_refused_and_a_batch_query_says_that_it_has_none():
    least = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    with pytest.raises(ConfigurationError, match="commitGroupId is empty"):
        parse_options({**least, "commitGroupId": ""}, streaming=True)
    found = parse_options({**least, "commitGroupId": "lag"}, streaming=False)
    assert any(text.startswith("commitGroupId") for text in found.ignored)
