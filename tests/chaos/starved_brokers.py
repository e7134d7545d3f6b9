"""Brokers that hardly run: SIGSTOP and SIGCONT in slices, while a client writes to all partitions.

`python -m tests.chaos.starved_brokers --stopped 4 --runs 0.3 --seconds 50` starves one broker of
three; with `--all` all of them, each in slices of its own. Prints which lanes were claimed, and for
how long a partition took no record.
"""

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Message, Producer
from tests.chaos.stopped_majority import BROKERS, PARTITIONS, TOPIC, three_brokers
from tests.peers.holdfast import HoldfastBroker

SETTLE_SECONDS = 8.0
RECOVER_SECONDS_MAX = 120.0
PAUSE_SECONDS = 0.2
CLAIMED = re.compile(r"lane_claimed lane=(\d+) number=\d+ leader_epoch=(\d+) ")


class Claimed(NamedTuple):
    """A claim of a lane, as a broker's log has it."""

    lane: int
    leader_epoch: int
    by: int


class Outcome(NamedTuple):
    """What one run has seen."""

    claims: list[Claimed]
    """The lanes that brokers claimed while brokers were starved, and after it."""
    owners: dict[int, int]
    """Which broker had each lane before that."""
    paused: frozenset[int]
    """Brokers that noticed meanwhile that they had not run for a while."""
    away_seconds: float
    """The longest time in which a partition acknowledged nothing."""
    recovered_seconds: float
    """How long after all ran again each partition had acknowledged something."""


def problems(outcome: Outcome, starved: tuple[int, ...]) -> list[str]:
    """What must not happen, however busy the machine is: a broker that ran loses a lane, one that
    hardly runs takes one, or a lane moves more than once."""
    found: list[str] = []
    owners = dict(outcome.owners)
    for claim in outcome.claims:
        owner = owners[claim.lane]
        moved = f"lane {claim.lane} moved from broker {owner} to {claim.by}"
        if owner not in outcome.paused:
            found.append(f"{moved}, though broker {owner} ran all the time")
        if claim.by in starved:
            found.append(f"{moved}, which hardly ran")
        if owner != outcome.owners[claim.lane]:
            found.append(f"{moved}, and had moved before")
        owners[claim.lane] = claim.by
    return found


class Writer:
    """One producer, which writes to all partitions, and when each was acknowledged last."""

    def __init__(self, bootstrap: str) -> None:
        self.acked_at: dict[int, float] = {}
        self.away_seconds = 0.0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "socket.timeout.ms": 5_000, "log_level": 0}
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._told)
            self._producer.poll(0)
            self._over.wait(PAUSE_SECONDS)

    def _told(self, error: object, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            now = time.monotonic()
            before = self.acked_at.get(partition, now)
            self.away_seconds = max(self.away_seconds, now - before)
            self.acked_at[partition] = now

    def has_written_since(self, moment: float) -> bool:
        acked = [self.acked_at.get(partition, 0.0) for partition in range(PARTITIONS)]
        return min(acked) > moment

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(30)


def starve(
    broker: HoldfastBroker, stopped_s: float, runs_s: float, until: float, chance: random.Random
) -> None:
    """Stop a broker for most of the time; the slices differ by up to a third."""
    while time.monotonic() < until:
        broker.process.pause()
        time.sleep(stopped_s * (1 + chance.random() / 3))
        broker.process.resume()
        time.sleep(runs_s * (1 + chance.random() / 3))


def claims(brokers: dict[int, HoldfastBroker]) -> set[Claimed]:
    return {
        Claimed(int(lane), int(leader_epoch), number)
        for number, broker in brokers.items()
        for lane, leader_epoch in CLAIMED.findall(broker.process.log_text())
    }


def pauses(brokers: dict[int, HoldfastBroker]) -> dict[int, int]:
    """How often each broker noticed that it had not run for a while."""
    return {
        number: broker.process.log_text().count("broker_was_paused ")
        for number, broker in brokers.items()
    }


def run(
    folder: Path, *, stopped_s: float, runs_s: float, seconds: float, starved: tuple[int, ...]
) -> Outcome:
    """Starve brokers for so long, then let them run."""
    with three_brokers(folder) as brokers:
        writer = Writer(",".join(broker.bootstrap for broker in brokers.values()))
        writer.start()
        try:
            time.sleep(SETTLE_SECONDS)
            before, pauses_before = claims(brokers), pauses(brokers)
            until = time.monotonic() + seconds
            threads = [
                threading.Thread(
                    target=starve,
                    args=(brokers[number], stopped_s, runs_s, until, random.Random(number)),
                )
                for number in starved
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            over_at = time.monotonic()
            while not writer.has_written_since(over_at):
                if time.monotonic() - over_at > RECOVER_SECONDS_MAX:
                    raise RuntimeError("a partition takes no records, though all brokers run")
                time.sleep(PAUSE_SECONDS)
            recovered = time.monotonic() - over_at
            new = sorted(claims(brokers) - before)
            paused = {n for n, count in pauses(brokers).items() if count > pauses_before[n]}
        finally:
            writer.stop()
        owners = {claim.lane: claim.by for claim in sorted(before)}
        return Outcome(new, owners, frozenset(paused), writer.away_seconds, recovered)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stopped", type=float, default=0.9)
    parser.add_argument("--runs", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=50.0)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    starved = BROKERS if options.all else BROKERS[:1]
    with tempfile.TemporaryDirectory(prefix="holdfast-starved-") as folder:
        outcome = run(
            Path(folder),
            stopped_s=options.stopped,
            runs_s=options.runs,
            seconds=options.seconds,
            starved=starved,
        )
    found = problems(outcome, starved)
    for claim in outcome.claims:
        print(f"lane {claim.lane} was claimed by broker {claim.by}")
    print(
        f"{len(outcome.claims)} claims, brokers {sorted(outcome.paused)} noticed that they did not"
        f" run, a partition was away for {outcome.away_seconds:.1f} s at most, all were back"
        f" {outcome.recovered_seconds:.1f} s after the end"
    )
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
