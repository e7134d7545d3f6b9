"""`make chaos-hostile`: each attack on a real broker, beside a client that is timed.

Owns the run, its table, and what must hold; it exits with 1 where something does not. Each attack
has a broker of its own, so that no figure is another's.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.hostile.load.attacks import (
    ATTACKS,
    LARGE_FRAME_BYTES,
    SLOW_READERS,
    Attack,
    classic_members,
    groups,
    many_groups,
    members,
    producer_ids,
    slow_readers,
    unfinished_frames,
)
from tests.hostile.load.neighbour import Neighbour, Timings
from tests.peers.holdfast import HoldfastBroker
from tests.support.hostile_bytes import Peer, request

from holdfast.cli.server.serving import REPLY_SHARE
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.server.limits import ServerLimits

MIB = 1024 * 1024
MEMORY_MIB = 64
"""Of --memory: the records that the broker keeps."""
P99_MS_MAX = 250.0
REQUESTS_MIB = ServerLimits().queued_bytes_max // MIB
REPLIES_MIB = MEMORY_MIB // REPLY_SHARE
OTHER_MIB = 48
"""Records in the tail that the attack and the neighbour write, and what the allocator keeps."""
HEADER = (
    "| attack | sent | round trips | p50 ms | p99 ms | longest ms | memory before | highest |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


class Allowance(NamedTuple):
    """By how much the broker may grow in an attack."""

    mib: int
    bytes_for_each: int = 0
    """For each thing that the attack makes the broker remember."""

    def bytes_max(self, sent: int) -> int:
        return self.mib * MIB + self.bytes_for_each * sent


ALLOWANCES: dict[Attack, Allowance] = {
    # Large frames get three quarters of the request memory, and one of them may go above that.
    unfinished_frames: Allowance(REQUESTS_MIB * 3 // 4 + LARGE_FRAME_BYTES // MIB + OTHER_MIB),
    groups: Allowance(OTHER_MIB, 2_500),
    members: Allowance(OTHER_MIB, 3_000),
    classic_members: Allowance(OTHER_MIB, 10_000),
    producer_ids: Allowance(OTHER_MIB, 1_200),
    # The wide topic fills the tail and the cache. Each reader may hold one batch above the bound.
    slow_readers: Allowance(MEMORY_MIB + REPLIES_MIB + SLOW_READERS),
}
"""Of attacks that are not here: OTHER_MIB."""


class Outcome(NamedTuple):
    """What an attack did to others."""

    sent: int
    timings: Timings
    memory_before: int
    memory_highest: int
    growth_max: int

    def row(self, name: str) -> str:
        timings = self.timings
        return (
            f"| {name} | {self.sent:,} | {len(timings.milliseconds):,} | {timings.at(0.5):.1f} "
            f"| {timings.at(0.99):.1f} | {timings.at(1.0):.0f} "
            f"| {self.memory_before // MIB} MiB | {self.memory_highest // MIB} MiB |"
        )

    def problems(self) -> list[str]:
        """What does not hold, whatever the machine is busy with."""
        found = [f"the neighbour saw what is wrong: {each}" for each in self.timings.wrong[:3]]
        if not self.timings.milliseconds:
            found.append("the neighbour had no round trip")
        if not self.sent:
            found.append("the attack sent nothing")
        grown = self.memory_highest - self.memory_before
        if grown > self.growth_max:
            found.append(
                f"memory grew by {grown // MIB} MiB; {self.growth_max // MIB} MiB are allowed"
            )
        return found

    def slowness(self) -> list[str]:
        """What does not hold and may be the fault of a busy machine."""
        p99 = self.timings.at(0.99)
        if p99 <= P99_MS_MAX:
            return []
        return [f"p99 of the neighbour is {p99:.0f} ms; {P99_MS_MAX:.0f} ms are allowed"]


def broker_under_attack(folder: Path) -> HoldfastBroker:
    """A broker with the topics that attacks aim at."""
    broker = HoldfastBroker(folder, arguments=["--memory", str(MEMORY_MIB)]).start()
    topics = [CreatableTopic(name=name) for name in ("target", "wide", "compacted")]
    for topic in topics:
        topic.num_partitions, topic.replication_factor = 1, 1
    topics[-1].configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    with Peer(broker.port) as peer:
        peer.send(request(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7))
        assert peer.reply() is not None
    return broker


def attack(
    broker: HoldfastBroker, attack: Attack, seconds: float, allowance: Allowance | None = None
) -> Outcome:
    """Run an attack beside the neighbour, and watch the broker's memory."""
    allowance = allowance or ALLOWANCES.get(attack, Allowance(OTHER_MIB))
    neighbour = Neighbour(broker.bootstrap)
    before = highest = broker.process.memory_bytes()
    with ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(attack, broker.port, seconds)
        while not attacking.done():
            highest = max(highest, broker.process.memory_bytes())
            time.sleep(0.05)
    timings = neighbour.finish()
    sent = attacking.result()
    return Outcome(sent, timings, before, highest, allowance.bytes_max(sent))


def many_groups_allowance(count: int) -> Allowance:
    """What the groups take, and replies that list all of them."""
    return Allowance(OTHER_MIB + REPLIES_MIB + count * ALLOWANCES[groups].bytes_for_each // MIB)


def nothing(port: int, seconds: float) -> int:
    """One connection that is opened and closed: what the neighbour sees by itself."""
    with Peer(port):
        time.sleep(seconds)
    return 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--only", help="attacks whose names contain this")
    given = parser.parse_args()
    many = many_groups(given.groups)
    allowances = {**ALLOWANCES, many: many_groups_allowance(given.groups)}
    attacks = {"nothing": nothing, **ATTACKS, f"{given.groups:,} groups, and lists of them": many}
    problems: list[str] = []
    print(HEADER, flush=True)
    for name, one in attacks.items():
        if given.only and given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            broker = broker_under_attack(Path(folder))
            try:
                outcome = attack(broker, one, given.seconds, allowances.get(one))
            finally:
                broker.stop()
        print(outcome.row(name), flush=True)
        problems += [f"{name}: {each}" for each in outcome.problems() + outcome.slowness()]
    for problem in problems:
        print(problem, flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
