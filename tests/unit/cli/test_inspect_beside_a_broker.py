"""`holdfast inspect --verify` while a broker appends, rewrites and deletes: no false alarm."""

import asyncio
from pathlib import Path

from tests.unit.cli.stores import StoreBuilder

from holdfast.environment import SystemEnvironment
from holdfast.inspect.findings import Findings, Weight
from holdfast.inspect.survey import SurveyParts, survey
from holdfast.inspect.verification import Verification
from holdfast.store.read_only import open_read_only

ROUNDS = 25


async def _write(builder: StoreBuilder, stopping: asyncio.Event) -> int:
    """Append, and now and then rewrite everything into segments and delete the lane objects."""
    rewrites = 0
    while not stopping.is_set():
        for i in range(45):
            await builder.append("busy", i % 3, 4)
        await builder.rewrite_all()
        rewrites += 1
    return rewrites


def test_a_lane_that_moves_under_the_walk_is_never_called_harmed(tmp_path: Path):
    async def run() -> tuple[list[Findings], int]:
        builder = StoreBuilder(tmp_path)
        await builder.start()
        await builder.topic("busy", 3)
        stopping = asyncio.Event()
        writing = asyncio.create_task(_write(builder, stopping))
        environment = SystemEnvironment()
        store = open_read_only(str(tmp_path), environment=environment)
        rounds: list[Findings] = []
        for _ in range(ROUNDS):
            assert not (await survey(store, environment, SurveyParts(entries=3))).problems
            findings = Findings()
            await Verification(store, environment, findings).run()
            rounds.append(findings)
        stopping.set()
        rewrites = await writing
        await builder.stop(release=True)
        last = Findings()
        await Verification(store, environment, last).run()
        rounds.append(last)
        await store.close()
        await builder.store.close()
        return rounds, rewrites

    rounds, rewrites = asyncio.run(run())
    assert rewrites > 5
    assert [finding for findings in rounds for finding in findings.of(Weight.HARM)] == []
    assert rounds[-1].found == []
    assert rounds[-1].objects > 5
