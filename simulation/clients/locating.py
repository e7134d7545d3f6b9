"""How a client finds the leader of a partition, a coordinator or the controller.

Owns the requests (Metadata and FindCoordinator) and how their responses are read. A client can ask
any broker, and any broker may be wrong: then the broker that it named refuses. Must never look into
a broker.
"""

import enum
from typing import Any

from holdfast.client.address import Address
from holdfast.protocol.message import Message
from holdfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 5


class Sought(enum.Enum):
    """The kind of thing that a key names."""

    PARTITION = "partition"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CONTROLLER = "controller"


def question(sought: Sought, key: str) -> tuple[Message, int]:
    """Return the request to send to any broker, and its version."""
    match sought:
        case Sought.PARTITION:
            topics = [MetadataRequestTopic(name=key.rpartition("/")[0])]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            return request, METADATA_VERSION
        case Sought.CONTROLLER:
            return MetadataRequest(topics=[], allow_auto_topic_creation=False), METADATA_VERSION
        case _:
            kind = int(sought is Sought.TRANSACTIONAL_ID)
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            return request, FIND_COORDINATOR_VERSION


def place(sought: Sought, key: str, answer: Any) -> Address | None:
    """Return the address that the answer names, or None if it names no broker."""
    match sought:
        case Sought.PARTITION:
            partitions = answer.topics[0].partitions
            number = int(key.rpartition("/")[2])
            leader = partitions[number].leader_id if number < len(partitions) else -1
            return _address(answer, leader)
        case Sought.CONTROLLER:
            return _address(answer, answer.controller_id)
        case _:
            found = answer.coordinators[0]
            return None if found.error_code else Address(found.host, found.port)


def _address(answer: Any, node_id: int) -> Address | None:
    for broker in answer.brokers:
        if broker.node_id == node_id:
            return Address(broker.host, broker.port)
    return None
