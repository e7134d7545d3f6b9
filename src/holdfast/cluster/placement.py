"""Which broker should try to own which lane.

Pure. Decides only which broker tries: put-if-absent alone decides which broker owns a lane. So two
brokers that see different peers, and place lanes differently, cost a hand-off at most. The aim: no
broker has more than one lane more than another, and no lane moves without need.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from holdfast.identifiers import BrokerId, LaneId


def desired_owners(
    lanes: Sequence[LaneId],
    brokers: Collection[BrokerId],
    *,
    owners: Mapping[LaneId, BrokerId],
    preferred: Mapping[LaneId, BrokerId],
) -> dict[LaneId, BrokerId]:
    """Return one of the brokers for each lane; nothing if there are no brokers.

    `owners` has the current owners, as far as they are known. `preferred` is what an administrator
    has asked for; it counts while that broker is among the brokers.
    """
    if not brokers:
        return {}
    chosen = {lane: preferred[lane] for lane in lanes if preferred.get(lane) in brokers}
    held: dict[BrokerId, list[LaneId]] = {broker: [] for broker in sorted(brokers)}
    for lane in lanes:
        owner = owners.get(lane)
        if lane not in chosen and owner is not None and owner in held:
            held[owner].append(lane)
    room = _room(lanes, held, chosen)
    for broker, kept in held.items():
        kept.sort(key=lambda lane, broker=broker: _score(lane, broker), reverse=True)
        chosen.update(dict.fromkeys(kept[: room[broker]], broker))
        room[broker] -= min(len(kept), room[broker])
    for lane in lanes:
        if lane not in chosen:
            broker = max(room, key=lambda b, lane=lane: (room[b] > 0, _score(lane, b)))
            chosen[lane] = broker
            room[broker] -= 1
    return chosen


def _room(
    lanes: Sequence[LaneId],
    held: Mapping[BrokerId, Sequence[LaneId]],
    chosen: Mapping[LaneId, BrokerId],
) -> dict[BrokerId, int]:
    """Return how many lanes each broker may have besides those that were asked for. All have
    equally many, and the remainder goes to brokers that have most already."""
    asked = dict.fromkeys(held, 0)
    for broker in chosen.values():
        asked[broker] += 1
    room = dict.fromkeys(held, 0)
    by_load = sorted(held, key=lambda broker: (-len(held[broker]), broker))
    for _ in range(len(lanes) - len(chosen)):
        broker = min(
            by_load, key=lambda b: (asked[b] + room[b], room[b] >= len(held[b]), by_load.index(b))
        )
        room[broker] += 1
    return room


def _score(lane: LaneId, broker: BrokerId) -> bytes:
    """Return a rendezvous hash: every broker computes the same order of brokers for a lane."""
    return hashlib.blake2b(f"{lane} {broker}".encode(), digest_size=8).digest()
