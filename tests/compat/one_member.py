"""A process that is one member of a group: it prints what it is told, and commits all the time."""

import asyncio
import sys
from collections.abc import Collection

from holdfast.client.cluster import Cluster
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.member import RunningMember
from holdfast.environment import SystemEnvironment
from holdfast.protocol.consumer_protocol import TopicPartition


class Printing:
    """An owner that says what it holds."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.held |= set(partitions)
        say("assigned", len(self.held))

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        self.held -= set(partitions)
        say("revoked", len(self.held))

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.held -= set(partitions)
        say("lost", len(partitions))


def say(*words: object) -> None:
    print(*words, flush=True)


async def main(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    settings = MemberSettings(
        group_id=group,
        topics=(topic,),
        protocol="classic" if protocol == "classic" else "consumer",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=300,
    )
    environment, owner = SystemEnvironment(), Printing()
    async with Cluster(bootstrap, environment=environment) as cluster:
        member = RunningMember(cluster, settings, owner, environment=environment)
        running = asyncio.create_task(member.run(asyncio.Event()))
        offset = 1_000
        while not running.done():
            offset += 1
            held = dict.fromkeys(owner.held, offset)
            codes = {code.name for code in (await member.commit(held)).values()}
            if held:
                say("committed" if codes == {"NONE"} else "refused", *sorted(codes))
            await asyncio.sleep(0.02)
        await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
