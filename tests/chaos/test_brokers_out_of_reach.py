"""Brokers that do not hear each other: wrong addresses, brokers that stand still, and a broker that
hardly runs. What is asserted is who takes which lane, never how fast a machine is."""

import itertools
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chaos import starved_brokers
from tests.chaos.stopped_majority import BROKERS, seconds_until_served
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import Process, free_port, wait_until

from holdfast.broker.cluster.reachability import REPEAT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LANES = 4
A_MINUTE = 60.0
CLAIMED = re.compile(r"lane_claimed lane=(\d+) ")
UNREACHABLE = re.compile(r"broker_unreachable from=(\d+) to=(\d+) address=(\S+) seconds=(\d+) ")


@contextmanager
def running(
    folder: Path, brokers: int, advertised: dict[int, str] | None = None
) -> Iterator[dict[int, HoldfastBroker]]:
    started: dict[int, HoldfastBroker] = {}
    try:
        for number in range(1, brokers + 1):
            address = (advertised or {}).get(number)
            arguments = ["--id", str(number), "--lanes", str(LANES)]
            arguments += ["--advertise", address] if address else []
            broker = HoldfastBroker(
                folder / f"broker-{number}", store=str(folder / "store"), arguments=arguments
            )
            started[number] = broker.start()
        yield started
    finally:
        for broker in started.values():
            broker.kill()


def claims(broker: HoldfastBroker) -> list[int]:
    return [int(lane) for lane in CLAIMED.findall(broker.process.log_text())]


def owned(broker: HoldfastBroker) -> set[int]:
    """The lanes that a broker serves."""
    url = f"http://127.0.0.1:{broker.metrics_port}/ready"
    with urllib.request.urlopen(url, timeout=10) as page:
        return set(json.load(page)["lanes"])


def wait_until_named_again(broker: HoldfastBroker, number: int, dead: dict[int, str]) -> None:
    """Wait until the log has named each broker out of reach twice, each with its address."""

    def named() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {other: [] for other in dead}
        for own, other, address, seconds in UNREACHABLE.findall(broker.process.log_text()):
            assert (int(own), address) == (number, dead[int(other)])
            found[int(other)].append(int(seconds))
        return found

    broker.process.wait_until(
        lambda: all(len(seconds) >= 2 for seconds in named().values()),
        seconds_max=120,
        what=f"broker {number} names {sorted(dead)} again",
    )
    for seconds in named().values():  # repeated, but no flood: the line itself says since when
        steps = [after - before for before, after in itertools.pairwise(seconds)]
        assert min(steps) >= REPEAT_S - 1, seconds


def pass_time(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_brokers_with_a_wrong_address_keep_their_lanes_and_are_named_in_log_and_metric(
    tmp_path: Path,
):
    dead = {number: f"127.0.0.1:{free_port()}" for number in (2, 3)}
    with running(tmp_path, 3, dead) as brokers:
        names = {1: {2, 3}, 2: {3}, 3: {2}}
        for number, unreachable in names.items():
            broker = brokers[number]
            for other in unreachable:
                wait_until(
                    lambda broker=broker, other=other: (
                        broker.metric("holdfast_unreachable_broker", broker=str(other)) == 1
                    ),
                    seconds_max=60,
                    what="the metric names it",
                )
        before = {number: claims(broker) for number, broker in brokers.items()}
        for number, unreachable in names.items():
            others = {other: dead[other] for other in unreachable}
            wait_until_named_again(brokers[number], number, others)
        assert {number: claims(broker) for number, broker in brokers.items()} == before
        for broker in brokers.values():
            assert "lane_lost" not in broker.process.log_text()


@pytest.mark.parametrize("count", [2, 3])
def test_brokers_none_of_which_reaches_another_leave_each_others_lanes_alone(
    tmp_path: Path, count: int
):
    """Before, they took the lanes from each other in turn, for ever."""
    dead = {number: f"127.0.0.1:{free_port()}" for number in range(1, count + 1)}
    with running(tmp_path, count, dead) as brokers:
        for number, broker in brokers.items():
            for other in brokers.keys() - {number}:
                line = f"broker_unreachable from={number} to={other} address={dead[other]} "
                broker.process.wait_until(
                    lambda broker=broker, line=line: line in broker.process.log_text(),
                    seconds_max=60,
                    what=line,
                )
        before = {number: claims(broker) for number, broker in brokers.items()}
        pass_time(A_MINUTE)
        assert {number: claims(broker) for number, broker in brokers.items()} == before
        for number, broker in brokers.items():
            others = {other: address for other, address in dead.items() if other != number}
            wait_until_named_again(broker, number, others)
            taken = claims(broker)
            assert len(taken) == len(set(taken)), f"broker {number} took {taken}"
        owner = next(number for number, broker in brokers.items() if owned(broker))
        lanes = owned(brokers[owner])
        brokers[owner].kill()
        others = [broker for number, broker in brokers.items() if number != owner]
        wait_until(
            lambda: lanes <= {lane for broker in others for lane in owned(broker)},
            seconds_max=120,
            what="a broker that is dead loses its lanes",
        )


def test_two_of_three_brokers_that_stand_still_lose_their_lanes_to_the_third(tmp_path: Path):
    """Before, it took itself for cut off, and left their lanes alone for 30 s."""
    seconds_until_served(tmp_path)


def starve(process: Process, *, stopped_s: float, runs_s: float, times: int) -> None:
    for _ in range(times):
        process.pause()
        pass_time(stopped_s)
        process.resume()
        pass_time(runs_s)


@pytest.mark.parametrize(("stopped_s", "runs_s", "times"), [(1.0, 0.05, 20), (4.0, 0.3, 5)])
def test_a_broker_that_hardly_runs_takes_no_lane_of_one_that_is_well(
    tmp_path: Path, stopped_s: float, runs_s: float, times: int
):
    with running(tmp_path, 2) as brokers:
        starved, well = brokers[1], brokers[2]
        wait_until(lambda: len(claims(well)) >= LANES // 2, seconds_max=60, what="lanes are shared")
        pass_time(3)
        taken = claims(starved)
        starve(starved.process, stopped_s=stopped_s, runs_s=runs_s, times=times)
        assert claims(starved) == taken, starved.process.log_text()[-3000:]
        assert "lane_lost" not in well.process.log_text()


@pytest.mark.parametrize(
    ("starved", "stopped_s", "runs_s"), [(BROKERS[:1], 4.0, 0.3), (BROKERS, 3.0, 0.5)]
)
def test_brokers_that_hardly_run_take_nothing_and_all_lanes_are_served_once_they_run(
    tmp_path: Path, starved: tuple[int, ...], stopped_s: float, runs_s: float
):
    """Before, a broker that ran lost two lanes once on a very busy machine."""
    outcome = starved_brokers.run(
        tmp_path, stopped_s=stopped_s, runs_s=runs_s, seconds=20.0, starved=starved
    )
    assert set(starved) <= outcome.paused
    assert starved_brokers.problems(outcome, starved) == []


def test_the_check_of_who_took_what_finds_each_kind_of_problem():
    def found(*claims: tuple[int, int, int], starved: tuple[int, ...] = ()) -> list[str]:
        owners = {0: 1, 1: 2, 2: 3}
        made = [starved_brokers.Claimed(*claim) for claim in claims]
        outcome = starved_brokers.Outcome(made, owners, frozenset({1}), 0.0, 0.0)
        return starved_brokers.problems(outcome, starved)

    assert found((0, 1, 2)) == []
    assert len(found((1, 1, 3))) == 1  # broker 2 ran
    assert len(found((0, 1, 2), starved=(2,))) == 1
    assert len(found((0, 1, 2), (0, 2, 3))) == 2  # to and fro, and broker 2 ran
