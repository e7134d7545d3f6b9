"""Runs `holdfast sink` on Spark: its members are long-running tasks of one job.

Owns the job. Spark places the tasks and replaces those that die; to the consumer group, a lost
executor is one more rebalance. Each task is one member, like a process of `holdfast sink`, with the
same rules for hand-offs: nothing depends on Spark knowing which task is alive. Must never restart a
member that cannot go on.
"""

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.environment import SystemEnvironment
from holdfast.errors import CallError, ConfigurationError, HoldfastError, RetryError, StopError
from holdfast.sink.reports import failure_line, line_of
from holdfast.sink.run import run_sink
from holdfast.sink.settings import SinkSettings
from holdfast.sink.status import SinkStatus
from holdfast.spark.pipelines.preflight import check_output
from holdfast.spark.runtime.command_session import job_session
from holdfast.spark.sink.desk import Desk

log = logging.getLogger(__name__)

FAILURES_MAX: Final = 1_000_000
"""How often a task may fail. Spark gives up after 4 by default; a sink may run for years."""
REPORT_S: Final = 0.5
LOCAL = re.compile(r"local(\[(\*|[0-9]+)(,[0-9]+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What a task needs to run its member."""

    settings: SinkSettings
    host: str
    port: int
    secret: str
    once: bool


def run_members(
    settings: SinkSettings,
    *,
    members: int,
    master: str | None,
    stop: threading.Event,
    once: bool,
    report: Callable[[SinkStatus], None],
    tell: Callable[[str], None],
    verbose: bool = False,
) -> SinkStatus:
    """Run the members until `stop` is set or, with `once`, all that was there has landed."""
    if members < 1:
        raise ConfigurationError(f"--members {members}: at least 1 is needed")
    check_output(settings.output.store)
    settings_of_job = {
        "spark.task.maxFailures": str(FAILURES_MAX),
        "spark.speculation": "false",
        "spark.excludeOnFailure.enabled": "false",
        **settings.spark_conf,
    }
    name = f"holdfast sink {settings.member.group_id}"
    spark: Any = job_session(
        master_for(master or settings.spark_master, members),
        name,
        settings_of_job,
        tell=tell,
        verbose=verbose,
    )
    try:
        context = spark.sparkContext
        host = str(context.getConf().get("spark.driver.host"))
        secret = SystemEnvironment().new_uuid().hex
        desk = Desk(host, secret)
        plan = MemberPlan(settings=settings, host=host, port=desk.port, secret=secret, once=once)
        try:
            return _watch(_Job(context, plan, members), desk, stop, report)
        finally:
            desk.close()
    finally:
        spark.stop()


def master_for(master: str | None, members: int) -> str:
    """Return the master; a local one gets a core for each member and a limit of failures."""
    given = master or "local"
    if LOCAL.fullmatch(given):
        return f"local[{members},{FAILURES_MAX}]"
    return given


class _Job:
    """The tasks, as one Spark job in a thread."""

    def __init__(self, context: Any, plan: MemberPlan, members: int) -> None:
        self.error: BaseException | None = None
        self._tasks = context.parallelize(range(members), members).mapPartitionsWithIndex(
            partial(member_task, plan)
        )
        self.ended = threading.Event()
        threading.Thread(target=self._run, name="sink-job", daemon=True).start()

    def _run(self) -> None:
        try:
            self._tasks.count()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def _watch(
    job: _Job, desk: Desk, stop: threading.Event, report: Callable[[SinkStatus], None]
) -> SinkStatus:
    last = (0, 0)
    while not job.ended.wait(REPORT_S):
        status = desk.status()
        report(status)
        if last != (status.epoch, desk.members):
            last = (status.epoch, desk.members)
            log.info("sink.members epoch=%d members=%d", *last)
        if stop.is_set() or desk.failure is not None:
            desk.stop()
    failure = desk.failure
    if failure is not None:
        family = StopError if failure.must_look else CallError
        raise family(f"member {failure.member}: {failure.failed}")
    if job.error is not None:
        raise RetryError(f"the Spark job ended: {job.error}") from job.error
    return desk.status()


def member_task(plan: MemberPlan, member: int, rows: Iterable[int]) -> Iterator[int]:
    """Run one task: a member, until its connection to the driver ends."""
    for _ in rows:
        asyncio.run(_member(plan, member))
    yield from ()


async def _member(plan: MemberPlan, member: int) -> None:
    reader, writer = await asyncio.open_connection(plan.host, plan.port)
    writer.write(f"{plan.secret} {member}\n".encode())
    stop = asyncio.Event()

    async def wait_for_the_end() -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        stop.set()

    def report(status: SinkStatus) -> None:
        if not writer.is_closing():
            writer.write(line_of(member, status))

    ending = asyncio.ensure_future(wait_for_the_end())
    try:
        report(await run_sink(plan.settings, stop=stop, once=plan.once, report=report))
    except RetryError:
        raise
    except HoldfastError as error:
        writer.write(failure_line(member, str(error), must_look=isinstance(error, StopError)))
    finally:
        ending.cancel()
        with contextlib.suppress(OSError):
            await writer.drain()
            writer.close()
