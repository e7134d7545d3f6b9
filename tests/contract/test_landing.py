"""Landing and the ledger on every store: rivals on one chain, and one winner for each entry."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
from tests.support.async_tests import run_by_fixture

from holdfast.columnar.schema import SCHEMA
from holdfast.environment import SystemEnvironment
from holdfast.inspect.output_survey import survey
from holdfast.landing.chain import Chain, Landed
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.landed import records
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, MicroBatch, SourceRange
from holdfast.landing.ledger_rules import CommitRefusal, CommitRefused
from holdfast.landing.packing import ObjectBounds
from holdfast.store.interface import Store

ENVIRONMENT = SystemEnvironment()
SIZE = 40
RIVALS = 3
BATCHES = 6

Run = Callable[[Callable[[Store], Coroutine[Any, Any, None]]], None]


def rows(start: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"value": b"v%d" % n, "topic": "orders", "partition": 0, "offset": n}
            for n in range(start, end)
        ],
        schema=SCHEMA,
    )


async def land_all(store: Store, step: int) -> None:
    chain = Chain(store, "orders", 0, format=Parquet(), environment=ENVIRONMENT)
    position = 0
    while position < SIZE:
        end = min(SIZE, position + 4 * step)
        outcome = await chain.land(
            [rows(position, end)],
            start_offset=position,
            end_offset=end,
            bounds=ObjectBounds(rows_max=step),
        )
        assert isinstance(outcome, Landed)
        position = outcome.next_offset


@run_by_fixture("run")
async def test_rivals_with_other_boundaries_build_one_chain(store: Store):
    await asyncio.gather(*(land_all(store, step) for step in (2, 3, 5)))
    report = await survey(store, environment=ENVIRONMENT, verify=True)
    assert report.is_whole, report.problems
    landed = [
        offset
        async for batch in records(store, environment=ENVIRONMENT, topic="orders")
        for offset in batch.column("offset").to_pylist()
    ]
    assert landed == list(range(SIZE))


def test_of_rival_drivers_one_commits_each_micro_batch(run: Run):
    async def drive(store: Store) -> list[int]:
        ledger = await Ledger.open(store, "lake", environment=ENVIRONMENT)
        won: list[int] = []
        for n in range(BATCHES):
            source = SourceRange(start=str(n), end=str(n + 1))
            batch = MicroBatch(query_id="q", batch_id=n, sources=(source,))
            outcome = await ledger.commit(batch, Effects(state=b"%d" % n), n=n)
            if isinstance(outcome, Committed):
                won.append(n)
            elif isinstance(outcome, CommitRefused):
                assert outcome.refusal is CommitRefusal.OLD_CHECKPOINT
        return won

    async def scenario(store: Store) -> None:
        won = await asyncio.gather(*(drive(store) for _ in range(RIVALS)))
        assert sorted(n for part in won for n in part) == list(range(BATCHES))
        ledger = await Ledger.open(store, "lake", environment=ENVIRONMENT)
        assert [entry.state async for entry in ledger.entries()] == [
            b"%d" % n for n in range(BATCHES)
        ]

    run(scenario)
