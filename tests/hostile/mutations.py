"""Valid requests with some bytes changed, by the thousand, from one seed.

`python -m tests.hostile.mutations --frames 200000` runs more than the tests do. Owns the choice of
changes; the frame's size is always right, so that what is inside it is what is tried.
"""

import argparse
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.hostile.cases import lengths, produce, reads, topics
from tests.hostile.conftest import MEMORY_GROWTH_MAX, Broker
from tests.peers.holdfast import HoldfastBroker
from tests.support.hostile_bytes import Peer, batch, frame, header, request

from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0xFE)
CHANGES_MAX = 3
HEADER_BYTES = 18
HEADER_SHARE = 0.05
FRAMES_PER_CONNECTION = 3
WAIT_SECONDS = 0.5
SENTINEL_ID = 1_234_567
SENTINEL = frame(header(ApiKey.API_VERSIONS, 0, correlation_id=SENTINEL_ID))
GOOD_BATCH = batch(b"one", b"two", producer_id=5, producer_epoch=0, base_sequence=0)
SEEDS: list[tuple[Message, int]] = [
    (produce.produce(GOOD_BATCH, timeout_ms=500), 3),
    (produce.produce(GOOD_BATCH, timeout_ms=500), 9),
    (produce.produce(batch(b"x", attributes=4), timeout_ms=500), 11),
    (lengths.FETCH, 4),
    (lengths.FETCH, 12),
    (reads.fetch(5, max_wait_ms=1), 12),
    (reads.list_offsets(-1), 1),
    (reads.list_offsets(1_700_000_000_000), 9),
    (reads.epoch_end(0), 4),
    (topics.create("mutated"), 7),
    (topics.alter("retention.ms", "1000"), 1),
    (topics.delete_records(0), 2),
    (MetadataRequest(topics=[MetadataRequestTopic(name="target")]), 9),
    (MetadataRequest(topics=[MetadataRequestTopic(name="target")]), 1),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
]


def mutated(chance: random.Random) -> bytes:
    """One frame."""
    message, version = chance.choice(SEEDS)
    payload = bytearray(request(message, version)[4:])
    for _ in range(chance.randint(1, CHANGES_MAX)):
        first = 0 if chance.random() < HEADER_SHARE else min(HEADER_BYTES, len(payload) - 1)
        position = chance.randrange(first, len(payload))
        match chance.randrange(5):
            case 0:
                payload[position] = chance.choice(INTERESTING)
            case 1:
                payload[position] ^= 1 << chance.randrange(8)
            case 2:
                del payload[position : position + chance.randrange(1, 5)]
            case 3:
                payload[position:position] = chance.randbytes(chance.randrange(1, 5))
            case _:
                width = chance.choice((2, 4, 8))
                number = chance.choice((-2, -1, 0, 2 ** (8 * width - 1) - 1))
                payload[position : position + width] = number.to_bytes(width, "big", signed=True)
        if not payload:
            payload = bytearray(b"\x00")
    return frame(bytes(payload))


def send_all(port: int, *, frames: int, seed: int) -> Counter[str]:
    """Send them over many connections; counts what became of them."""
    chance = random.Random(seed)
    outcome: Counter[str] = Counter()
    while outcome["sent"] < frames:
        with Peer(port, seconds_max=WAIT_SECONDS) as peer:
            for _ in range(FRAMES_PER_CONNECTION):
                peer.send(mutated(chance))
                outcome["sent"] += 1
            peer.send(SENTINEL)
            try:
                while (reply := peer.reply()) is not None:
                    (correlation_id,) = struct.unpack_from(">i", reply)
                    if correlation_id == SENTINEL_ID:
                        outcome["connections that lived"] += 1
                        break
                    outcome["answered"] += 1
            except TimeoutError:
                outcome["left waiting"] += 1  # a fetch whose changed byte is its time to wait
            outcome["connections"] += 1
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.mutations", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutations-") as folder:
        process = HoldfastBroker(Path(folder)).start()
        broker = Broker(process)
        begun = time.monotonic()
        outcome = send_all(process.port, frames=options.frames, seed=options.seed)
        broker.use_as_a_neighbour()
        grown = process.process.memory_bytes() - broker.memory_bytes
        bugs = broker.bugs_in_the_log()
        process.stop()
    print(f"{dict(outcome)} in {time.monotonic() - begun:.1f} s, {grown >> 20} MiB more")
    print("\n".join(bugs[:20]))
    sys.exit(1 if bugs or grown > MEMORY_GROWTH_MAX else 0)


if __name__ == "__main__":
    main()
