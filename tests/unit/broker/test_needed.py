"""Which objects may take room from a full disk's reserve."""

from collections.abc import Sequence

import pytest

from holdfast.broker.lanes.needed import is_needed_to_serve
from holdfast.cluster.facts import (
    BrokerRegistered,
    ClusterCreated,
    ControlFact,
    ProducerIdsReserved,
    encode_facts,
)
from holdfast.identifiers import CONTROL_LANE, LaneId, LaneNumber, WriterId
from holdfast.lane.entry import CHAIN_START, EntryKind, SealedEntry, seal
from holdfast.lane.keys import entry_key, snapshot_key

REGISTERED = BrokerRegistered(0, "127.0.0.1", 9092)
CREATED = ClusterCreated("cluster", 1)


def sealed(kind: EntryKind, lane: int, facts: bytes = b"", payload: bytes = b"") -> SealedEntry:
    return seal(
        kind=kind,
        lane=LaneId(lane),
        number=LaneNumber(7),
        claim=LaneNumber(3),
        writer=WriterId(bytes(16)),
        previous=CHAIN_START,
        facts=facts,
        payload=[payload],
        written_ms=0,
    )


def is_needed(entry: SealedEntry) -> bool:
    return is_needed_to_serve(entry_key(entry.header.lane, entry.header.number), entry.body)


@pytest.mark.parametrize("lane", [CONTROL_LANE, 1])
@pytest.mark.parametrize("kind", [EntryKind.CLAIM, EntryKind.RELEASE])
def test_claims_and_releases_of_all_lanes_are_needed(kind: EntryKind, lane: int):
    assert is_needed(sealed(kind, lane))


@pytest.mark.parametrize("facts", [[REGISTERED], [CREATED, REGISTERED], [REGISTERED, REGISTERED]])
def test_registrations_of_brokers_are_needed(facts: Sequence[ControlFact]):
    assert is_needed(sealed(EntryKind.DATA, CONTROL_LANE, encode_facts(facts)))


@pytest.mark.parametrize(
    "facts", [[ProducerIdsReserved(1000)], [REGISTERED, ProducerIdsReserved(1000)]]
)
def test_what_clients_ask_of_the_control_lane_is_not_needed(facts: Sequence[ControlFact]):
    assert not is_needed(sealed(EntryKind.DATA, CONTROL_LANE, encode_facts(facts)))


def test_records_and_objects_of_other_kinds_are_not_needed():
    assert not is_needed(sealed(EntryKind.DATA, 1, b"facts", b"records"))
    assert not is_needed_to_serve(snapshot_key(LaneId(1), 7), [b"a snapshot"])
    assert not is_needed_to_serve("topics/x/000000/segment", [b"a segment"])
