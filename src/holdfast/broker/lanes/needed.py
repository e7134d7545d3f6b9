"""The objects that a broker must write before it can serve reads.

Pure. Owns that list: claims and releases, which move a lane from one broker to the next, and the
registration of brokers. A directory store keeps a reserve for them (store/reserve.py), so each of
them is small, and a start of a broker needs only a few. Must never name an object with records, nor
one that clients can ask for at will.
"""

from holdfast.cluster.facts import BrokerRegistered, ClusterCreated, decode_facts
from holdfast.identifiers import CONTROL_LANE
from holdfast.lane.entry import EntryKind, parse_header
from holdfast.lane.keys import ENTRIES_PREFIX
from holdfast.store.interface import Buffers


def is_needed_to_serve(key: str, body: Buffers) -> bool:
    """True if no broker serves a lane before this object is in the store."""
    if not key.startswith(ENTRIES_PREFIX):
        return False
    head, facts = body[:2]
    header = parse_header(head, key=key)
    if header.kind is not EntryKind.DATA:
        return True
    return header.lane == CONTROL_LANE and all(
        isinstance(fact, ClusterCreated | BrokerRegistered) for fact in decode_facts(bytes(facts))
    )
