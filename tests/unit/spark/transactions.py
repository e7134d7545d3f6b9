"""Logs with open, committed and aborted transactions."""

from tests.unit.spark.stores import Filler

FUTURE = 1 << 42
"""In ms: past the time of every marker."""


async def transactions(builder: Filler) -> None:
    """0-1 plain, 2-3 aborted, 4 committed, 5 abort, 6 commit, 7 plain, 8 aborted, 9 abort."""
    builder.append_next(2, timestamp=FUTURE)
    await builder.flush()
    builder.append_next(2, producer_id=1, timestamp=FUTURE)
    builder.append_next(1, producer_id=2, timestamp=FUTURE)
    await builder.flush()
    await builder.end(1, committed=False)
    await builder.end(2, committed=True)
    builder.append_next(1, timestamp=FUTURE)
    builder.append_next(1, producer_id=2, timestamp=FUTURE)
    await builder.flush()
    await builder.end(2, committed=False)


async def goes_on(builder: Filler) -> None:
    """10 committed of the producer that had aborted, 11 commit, 12 open, 13 plain."""
    builder.append_next(1, producer_id=1, timestamp=FUTURE)
    await builder.flush()
    await builder.end(1, committed=True)
    builder.append_next(1, producer_id=1, timestamp=FUTURE)
    builder.append_next(1, timestamp=FUTURE)
    await builder.flush()
