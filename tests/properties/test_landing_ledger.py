"""Drivers, zombies and restored checkpoints over a bad store: micro-batches tile the source.

A driver here does what Spark does: it writes the offsets of a batch to its checkpoint, runs it,
publishes, and notes the batch as done. Checkpoints are shared, copied, deleted and restored. Each
entry also carries a state that was made from the state before it, so that an entry which was
published on top of another than it ran on would show.
"""

import asyncio
import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.faults.faulty_store import FaultPlan, FaultyStore
from simulation.virtual_loop import VirtualLoop

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.inspect.output_survey import survey
from holdfast.landing.data_files import checksum_of, data_key
from holdfast.landing.landed import committed_files
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, Entry, MicroBatch, OutputFile, SourceRange
from holdfast.landing.ledger_rules import AlreadyCommitted, Commit, CommitRefusal, CommitRefused
from holdfast.store.memory import MemoryStore
from holdfast.store.put_if_absent import Lost, put_if_absent, same_bytes

SINK = "lake"
SIZE = 60


@dataclass
class Checkpoint:
    """Spark's offset log and commit log; nothing guards it against two drivers."""

    query_id: str
    start: int
    offsets: list[tuple[int, int]] = field(default_factory=list)
    done: int = 0

    def next_batch(self, chance: random.Random) -> tuple[int, tuple[int, int]]:
        if self.done < len(self.offsets):
            return self.done, self.offsets[self.done]
        start = self.offsets[-1][1] if self.offsets else self.start
        end = min(SIZE, start + chance.choice((0, 1, 3, 8, 20)))
        self.offsets.append((start, end))
        return self.done, (start, end)


def text(offset: int) -> str:
    return json.dumps({"orders": {"0": offset}})


def position_of(entry: Entry | None) -> int:
    return 0 if entry is None else json.loads(entry.sources[0].end)["orders"]["0"]


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.environment = SeededEnvironment(seed=seed, clock=VirtualClock())
        self.inside = MemoryStore(environment=self.environment)
        self.store = FaultyStore(
            self.inside,
            plan=FaultPlan.even(0.03, latency_seconds=(0.0, 0.05)),
            chance=random.Random(seed + 1),
        )
        self.checkpoint = Checkpoint("first", 0)
        self.copies: list[Checkpoint] = []
        self.queries = 0
        self.refusals: list[CommitRefusal] = []

    def some_checkpoint(self) -> Checkpoint:
        """The shared one, an old copy that someone restored, or a new one from the start."""
        draw = self.chance.random()
        if draw < 0.2 and self.copies:
            return copy.deepcopy(self.chance.choice(self.copies))
        if draw < 0.3:
            self.queries += 1
            return Checkpoint(f"query {self.queries}", 0)
        return self.checkpoint

    async def drive(self, *, until_done: bool) -> None:
        ledger = await Ledger.open(self.store, SINK, environment=self.environment)
        checkpoint = self.checkpoint if until_done else self.some_checkpoint()
        while position_of(ledger.head) < SIZE:
            outcome = await self.micro_batch(ledger, checkpoint)
            if (
                isinstance(outcome, CommitRefused)
                and outcome.refusal is not CommitRefusal.OVERTAKEN
            ):
                self.refusals.append(outcome.refusal)
                if not until_done:
                    return
                # What the message says: a new checkpoint at the ledger's position.
                self.queries += 1
                start = position_of(ledger.head)
                checkpoint = self.checkpoint = Checkpoint(f"query {self.queries}", start)

    async def micro_batch(
        self, ledger: Ledger, checkpoint: Checkpoint
    ) -> Committed | AlreadyCommitted | CommitRefused:
        batch_id, (start, end) = checkpoint.next_batch(self.chance)
        await asyncio.sleep(self.chance.random())
        batch = MicroBatch(
            query_id=checkpoint.query_id,
            batch_id=batch_id,
            sources=(SourceRange(start=text(start), end=text(end)),),
        )
        outcome: Any = await ledger.plan(batch)
        if isinstance(outcome, Commit):
            effects = await self.run(ledger, outcome.n, start, end)
            outcome = await ledger.commit(batch, effects, n=outcome.n)
        if not isinstance(outcome, CommitRefused):
            self.copies.append(copy.deepcopy(checkpoint))
            checkpoint.done = max(checkpoint.done, batch_id + 1)
        return outcome

    async def run(self, ledger: Ledger, n: int, start: int, end: int) -> Effects:
        state = json.loads(ledger.head.state) if ledger.head else {"sum": 0, "entries": 0}
        state = {"sum": state["sum"] + sum(range(start, end)), "entries": state["entries"] + 1}
        body = json.dumps(list(range(start, end))).encode()
        attempt = self.environment.new_uuid().hex
        path = data_key(SINK, n, attempt=attempt, task=0, extension=".json")
        won = await put_if_absent(
            self.store,
            path,
            (body,),
            is_ours=same_bytes((body,)),
            identify_bytes=None,
            environment=self.environment,
        )
        assert not isinstance(won, Lost)
        file = OutputFile(path=path, rows=end - start, bytes=len(body), checksum=checksum_of(body))
        return Effects(files=(file,), state=json.dumps(state).encode())


async def play(world: World, loop: VirtualLoop) -> None:
    tasks: dict[str, asyncio.Task[Any]] = {}
    for number in range(world.chance.randint(1, 4)):
        name = f"driver {number}"
        tasks[name] = loop.spawn(name, world.drive(until_done=False), name=name)
        await asyncio.sleep(world.chance.random() * 5)
        if world.chance.random() < 0.3:
            loop.kill(name)
            tasks.pop(name)
        elif world.chance.random() < 0.3:
            loop.pause(name, world.chance.random() * 60)
    await world.drive(until_done=True)
    await asyncio.gather(*tasks.values())
    await world.store.settle()


async def check(world: World) -> None:
    ledger = await Ledger.open(world.inside, SINK, environment=world.environment)
    entries = [entry async for entry in ledger.entries()]
    position = 0
    for entry in entries:
        assert json.loads(entry.sources[0].start or "")["orders"]["0"] == position
        position = position_of(entry)
    assert position == SIZE
    assert json.loads(entries[-1].state) == {"sum": sum(range(SIZE)), "entries": len(entries)}
    landed: list[int] = []
    found = await committed_files(world.inside, SINK, environment=world.environment)
    for file in found.files:
        landed += json.loads(await world.inside.read(file.path))
    assert landed == list(range(SIZE))
    report = await survey(world.inside, environment=world.environment, verify=True)
    assert report.is_whole, report.problems


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**31))
def test_committed_micro_batches_tile_the_source_exactly(seed: int):
    world = World(seed)
    loop = VirtualLoop(seed=seed)
    try:
        loop.run_until_complete(play(world, loop))
        loop.run_until_complete(check(world))
    finally:
        loop.close()
    assert loop.problems == []


def test_the_play_reaches_every_refusal_that_a_checkpoint_can_cause():
    seen: set[CommitRefusal] = set()
    for seed in range(120):
        world = World(seed)
        loop = VirtualLoop(seed=seed)
        try:
            loop.run_until_complete(play(world, loop))
        finally:
            loop.close()
        seen.update(world.refusals)
    assert {
        CommitRefusal.OLD_CHECKPOINT,
        CommitRefusal.TWO_DRIVERS,
        CommitRefusal.CHECKPOINT_DELETED,
    } <= seen
