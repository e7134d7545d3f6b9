"""A well-behaved client in a process of its own: produce, fetch, note how long it took.

Owns its timing alone: no attacker shares its interpreter. It runs until its standard input ends,
and then prints one JSON object.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.peers.process import die_with_parent

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.environment import SystemEnvironment
from holdfast.records.record import Record

TOPIC = "neighbour"
PAUSE_SECONDS = 0.005
ROUND_TRIP_SECONDS_MAX = 60.0
ROOT = Path(__file__).parents[3]


class Timings(NamedTuple):
    """Round trips of produce and fetch, in milliseconds."""

    milliseconds: list[float]
    wrong: list[str]
    """What a client must never see."""

    def at(self, share: float) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else -1.0


class Neighbour:
    """The client as a child process, from its first round trip on."""

    def __init__(self, bootstrap: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.load.neighbour", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            preexec_fn=die_with_parent,
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"begun\n"

    def finish(self) -> Timings:
        out, _ = self._child.communicate(timeout=ROUND_TRIP_SECONDS_MAX + 30)
        found = json.loads(out)
        return Timings(found["milliseconds"], found["wrong"])


async def _use(bootstrap: str) -> Timings:
    timings = Timings([], [])
    told_to_end = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with Cluster(bootstrap, environment=SystemEnvironment(), deadline_ms=60_000) as cluster:
        with contextlib.suppress(Exception):  # an earlier one has created it
            await admin.create_topics(cluster, [admin.NewTopic(TOPIC, 1)])
        producer = IdempotentProducer(cluster)
        await producer.send(TOPIC, 0, [Record(0, -1, None, b"first")])
        print("begun", flush=True)
        number = 0
        while not told_to_end.done():
            number += 1
            value = b"%d" % number
            begun = time.perf_counter()
            told = await producer.send(TOPIC, 0, [Record(0, -1, None, value)])
            seen = list(records_of(await fetch(cluster, TOPIC, 0, told.base_offset)))
            timings.milliseconds.append((time.perf_counter() - begun) * 1_000)
            if not seen or seen[0].value != value:
                timings.wrong.append(f"offset {told.base_offset}: {seen[:1]} is not {value!r}")
            await asyncio.sleep(PAUSE_SECONDS)
    return timings


if __name__ == "__main__":
    result = asyncio.run(_use(sys.argv[1]))
    print(json.dumps(result._asdict()), flush=True)
