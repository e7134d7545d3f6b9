"""A consumer group whose members come, go, are killed and are paused, and whose broker is killed.

`python -m tests.chaos.groups --steps 40` prints figures and every broken promise; its exit code
says whether there was one. Members are processes of all clients in one group. Every few steps it
is left alone, and must come to rest: each partition has one owner, and each record has been read.
Owns the choice of what happens; a member that ends by itself is counted, and not replaced.
"""

import argparse
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed, wait_until
from tests.support.client_process import (
    PROGRAMS,
    ClientProcess,
    Program,
    ProgramAbility,
    why_missing,
)

Broker = HoldfastBroker | KafkaBroker
PARTITIONS = 8
TOPIC = "numbers"
MEMBERS_MAX = 5
REST_SECONDS_MAX = 120.0
REST_EVERY = 5
SESSION_MS = 6_000
PAUSES_S = (1.0, 8.0)
"""Within its session, and past it."""
BATCH_RECORDS = 80


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    happened: dict[str, int] = dataclasses.field(default_factory=dict)
    ended_by_themselves: dict[str, int] = dataclasses.field(default_factory=dict)
    last_words: list[str] = dataclasses.field(default_factory=list)
    rest_seconds: list[float] = dataclasses.field(default_factory=list)
    records: int = 0
    reads: int = 0
    refused_commits: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)


def add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


class Run:
    """One broker, one group, and all who were ever in it."""

    def __init__(
        self, broker: Broker, folder: Path, programs: Sequence[Program], seed: int, assignor: str
    ) -> None:
        self.broker = broker
        self.figures = Figures()
        self.random = random.Random(seed)
        self._programs = programs
        self._folder = folder
        self._assignor = assignor
        self._everybody: list[ClientProcess] = []
        self._members: list[ClientProcess] = []
        self._paused: list[tuple[float, ClientProcess]] = []
        settings = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        self._feed = Producer({**settings, "enable.idempotence": True})
        self._join()

    def feed(self) -> None:
        for _ in range(BATCH_RECORDS):
            number = self.figures.records
            self._feed.produce(TOPIC, value=b"%d" % number, partition=number % PARTITIONS)
            self.figures.records += 1
        assert self._feed.flush(60) == 0

    def step(self) -> None:
        """One thing happens, whatever the group is doing; then somebody commits."""
        self._wake(only_due=True)
        self._note_ended()
        doable = ["broker is killed"]
        if len(self._members) < MEMBERS_MAX:
            doable += ["joins"] * 4
        if len(self._members) > 1:
            doable += ["leaves", "is killed", "is killed", "is paused", "is paused"]
        what = self.random.choice(doable)
        add(self.figures.happened, what)
        self._do(what)
        self.feed()
        try:
            if self._members:
                self.random.choice(self._members).tell("commit")
        except BrokenPipeError:
            self._note_ended()

    def _do(self, what: str) -> None:
        match what:
            case "joins":
                self._join()
            case "broker is killed":
                self.broker.kill()
                self.broker.start()
            case "leaves":
                leaving = self._take()
                if not leaving.has_told_all:
                    leaving.tell("leave")
            case "is killed":
                self._take().kill()
            case _:
                paused = self._take()
                paused.pause()
                until = time.monotonic() + self.random.choice(PAUSES_S)
                self._paused.append((until, paused))

    def _join(self) -> None:
        program = self.random.choice(self._programs)
        number = len(self._everybody)
        be = {
            "role": "member",
            "bootstrap": self.broker.bootstrap,
            "group": "readers",
            "topic": TOPIC,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 500,
            "assignor": self._assignor,
            "commit_on_revoke": True,
        }
        log = self._folder / f"member-{number}-{program.name}.log"
        self._members.append(ClientProcess(program, be, log=log))
        self._everybody.append(self._members[-1])

    def _take(self) -> ClientProcess:
        return self._members.pop(self.random.randrange(len(self._members)))

    def _wake(self, *, only_due: bool) -> None:
        """Those who wake up past their session find that they are members no more."""
        now = time.monotonic()
        due = [paused for paused in self._paused if not only_due or paused[0] <= now]
        for paused in due:
            self._paused.remove(paused)
            wait_until(
                lambda until=paused[0]: time.monotonic() >= until,
                seconds_max=max(PAUSES_S) + 1,
                what="the pause is over",
            )
            paused[1].resume()
            self._members.append(paused[1])

    def _note_ended(self) -> None:
        for ended in [member for member in self._members if not member.is_running]:
            self._members.remove(ended)
            add(self.figures.ended_by_themselves, ended.program.name)
            self.figures.last_words.append(ended.last_words()[-1500:])

    def rest(self) -> None:
        """Leave the group alone: it must come to rest."""
        self._wake(only_due=False)
        self._note_ended()
        if not self._members:
            self._join()
        self.feed()
        begun = time.monotonic()
        for is_so, what in ((self._is_shared, "one owner each"), (self._is_read, "all read")):
            try:
                wait_until(is_so, seconds_max=REST_SECONDS_MAX, what=what)
            except PeerFailed as failure:
                told = "\n".join(f"{m.owned} {m.last_words()[-1200:]}" for m in self._members)
                self.figures.problems.append(f"{failure}: {self._unread()}\n{told}")
        self.figures.rest_seconds.append(round(time.monotonic() - begun, 1))

    def _is_shared(self) -> bool:
        self._note_ended()
        owned = sorted(number for member in self._members for number in member.owned)
        return owned == list(range(PARTITIONS)) and all(member.owned for member in self._members)

    def _unread(self) -> list[int]:
        read = {value for member in self._everybody for value in member.values}
        return [number for number in range(self.figures.records) if str(number) not in read][:5]

    def _is_read(self) -> bool:
        return not self._unread()

    def end(self) -> None:
        self.figures.reads = sum(len(member.values) for member in self._everybody)
        for member in self._everybody:
            for event in member.events:
                if event["event"] == "committed" and event["error"] != 0:
                    add(self.figures.refused_commits, str(event["error"]))
            member.kill()
        self.broker.stop()


def run(
    folder: Path,
    *,
    steps: int,
    seed: int,
    broker: Broker,
    programs: Sequence[Program] = PROGRAMS,
    assignor: str = "range",
) -> Figures:
    begun = time.monotonic()
    able = [
        program
        for program in programs
        if assignor == "range" or ProgramAbility.COOPERATIVE in program.abilities
    ]
    ran = Run(broker.start(), folder, able, seed, assignor)
    try:
        for number in range(1, steps + 1):
            ran.step()
            if number % REST_EVERY == 0 or number == steps:
                ran.rest()
    finally:
        ran.end()
        ran.figures.seconds = round(time.monotonic() - begun, 1)
    return ran.figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.groups", description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", choices=("holdfast", "kafka"), default="holdfast")
    parser.add_argument("--assignor", choices=("range", "cooperative"), default="range")
    options = parser.parse_args()
    programs = [program for program in PROGRAMS if why_missing(program) is None]
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as name:
        folder = Path(name)
        kind = HoldfastBroker if options.cluster == "holdfast" else KafkaBroker
        figures = run(
            folder,
            steps=options.steps,
            seed=options.seed,
            broker=kind(folder / "broker"),
            programs=programs,
            assignor=options.assignor,
        )
    print(json.dumps(dataclasses.asdict(figures), indent=1))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
