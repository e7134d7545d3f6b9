"""Consume, transform, produce: exactly once, while the workers and their broker are killed.

`python -m tests.chaos.transactions --kills 40` prints figures and every record that is missing
from an output, or twice in it; its exit code says whether there was one. A worker of each client
family reads one topic and writes another in transactions that carry its offsets. Owns the choice
of victims and instants; a worker that ends by itself is started again, as a supervisor would.
"""

import argparse
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed, wait_until
from tests.support.client_process import PROGRAMS, ClientProcess, Program, why_missing

Broker = HoldfastBroker | KafkaBroker
PARTITIONS = 3
INPUT = "input"
INSTANTS = ("anywhere", "begun", "produced", "offsets_sent", "transaction")
BATCH_RECORDS = 60
STUCK_SECONDS = 30.0
CATCH_UP_SECONDS_MAX = 180.0
ANYWHERE_SECONDS_MAX = 0.6


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    worker_kills: dict[str, int] = dataclasses.field(default_factory=dict)
    by_instant: dict[str, int] = dataclasses.field(default_factory=dict)
    broker_kills: int = 0
    zombies: int = 0
    zombies_ended: int = 0
    ended_by_themselves: dict[str, int] = dataclasses.field(default_factory=dict)
    stuck: dict[str, int] = dataclasses.field(default_factory=dict)
    last_words: list[str] = dataclasses.field(default_factory=list)
    records: int = 0
    transactions: dict[str, int] = dataclasses.field(default_factory=dict)
    aborted: dict[str, int] = dataclasses.field(default_factory=dict)
    outputs_read: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.worker_kills.values()) + self.broker_kills


def add(counts: dict[str, int], name: str, count: int = 1) -> None:
    counts[name] = counts.get(name, 0) + count


class Worker:
    """One client family's place between the topics, whatever process is in it."""

    def __init__(self, program: Program, bootstrap: str, folder: Path, figures: Figures) -> None:
        self.program = program
        self.output = f"output-{program.name}"
        self._folder = folder
        self._figures = figures
        self._starts = 0
        self._be = {
            "role": "worker",
            "bootstrap": bootstrap,
            "group": f"workers-{program.name}",
            "topic": INPUT,
            "output": self.output,
            "instance_id": f"worker-{program.name}",
            "transactional_id": f"worker-{program.name}",
            "transaction_timeout_ms": 20_000,
            "session_timeout_ms": 20_000,
            "heartbeat_interval_ms": 500,
        }
        self.process = self._start()

    @property
    def group(self) -> str:
        return self._be["group"]

    def _start(self) -> ClientProcess:
        self._starts += 1
        log = self._folder / f"{self.program.name}-{self._starts}.log"
        return ClientProcess(self.program, self._be, log=log)

    def replace(self) -> ClientProcess:
        """Another process in the same place; the one before is handed out."""
        before, self.process = self.process, self._start()
        return before

    def count(self, ended: ClientProcess) -> None:
        for event in ended.events:
            if event["event"] == "transaction":
                add(self._figures.transactions, self.program.name)
            elif event["event"] == "aborted":
                add(self._figures.aborted, self.program.name)

    def keep_up(self) -> None:
        """Start anew where it has ended by itself."""
        if not self.process.has_told_all:
            return
        ended = self.replace()
        self._figures.last_words.append(ended.last_words()[-1500:])
        add(self._figures.ended_by_themselves, self.program.name)
        self.count(ended)
        ended.kill()

    def give_up(self) -> None:
        """It makes no progress, though its broker is up."""
        self._figures.last_words.append(self.process.last_words()[-1500:])
        add(self._figures.stuck, self.program.name)
        self.process.kill()
        self.count(self.replace())

    def kill(self, instant: str) -> None:
        self.process.kill()
        self.count(self.replace())
        add(self._figures.worker_kills, self.program.name)
        add(self._figures.by_instant, instant)


class Run:
    """One broker, one input, a worker of each family."""

    def __init__(self, broker: Broker, folder: Path, programs: Sequence[Program], seed: int):
        self.broker = broker
        self.figures = Figures()
        self.random = random.Random(seed)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [INPUT, *(f"output-{program.name}" for program in programs)]
        created = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
        for future in created.values():
            future.result(60)
        self._feed = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.workers = [
            Worker(program, broker.bootstrap, folder, self.figures) for program in programs
        ]

    def feed(self) -> None:
        for _ in range(BATCH_RECORDS):
            number = self.figures.records
            self._feed.produce(INPUT, value=b"%d" % number, partition=number % PARTITIONS)
            self.figures.records += 1
        assert self._feed.flush(60) == 0

    def step(self, *, broker_too: bool, zombie: bool) -> None:
        """Kill one worker at some instant of a transaction, or the broker."""
        victim = self.random.choice(self.workers)
        instant = self.random.choice(INSTANTS)
        self._reach(victim, "transaction")
        self.feed()
        if instant == "anywhere":
            time.sleep(self.random.uniform(0, ANYWHERE_SECONDS_MAX))
        else:
            self._reach(victim, instant)
        if broker_too:
            self.broker.kill()
            self.figures.broker_kills += 1
            self.broker.start()
        elif zombie:
            self._haunt(victim)
        else:
            victim.kill(instant)

    def _reach(self, worker: Worker, event: str) -> None:
        """Wait until this worker tells an event that it has not told yet."""
        if event == "offsets_sent" and worker.program.name == "franz-go":
            event = "produced"  # its session sends offsets and commits in one call
        for _ in range(5):
            worker.keep_up()
            self.feed()
            try:
                worker.process.wait_for(
                    event, after=len(worker.process.events), seconds_max=STUCK_SECONDS
                )
                return
            except PeerFailed:
                if not worker.process.has_told_all:
                    worker.give_up()
        raise PeerFailed(f"{worker.program.name}: no {event}\n{worker.process.last_words()}")

    def _haunt(self, worker: Worker) -> None:
        """A worker is paused and replaced; when it wakes up it must end nothing."""
        worker.process.pause()
        zombie = worker.replace()
        self._reach(worker, "transaction")
        told = len(zombie.events)
        zombie.resume()
        self.figures.zombies += 1
        try:
            wait_until(lambda: zombie.has_told_all, seconds_max=20, what="the zombie has ended")
            self.figures.zombies_ended += 1
        except PeerFailed:
            self.figures.last_words.append(zombie.last_words()[-600:])
        late = [event["event"] for event in zombie.events[told:]]
        # One that was told before its pause may be read by us after it.
        if late.count("transaction") > 1:
            self.figures.problems.append(f"{worker.program.name}: a zombie committed: {late}")
        zombie.kill()
        worker.count(zombie)

    def finish(self) -> None:
        """Let all workers come to the end of the input, and read what they wrote."""
        self.feed()
        for worker in self.workers:
            try:
                wait_until(
                    lambda worker=worker: self._has_caught_up(worker),
                    seconds_max=CATCH_UP_SECONDS_MAX,
                    what=f"{worker.program.name} has worked off the input",
                )
            except PeerFailed as failure:
                self.figures.problems.append(f"{failure}\n{worker.process.last_words()}")
        for worker in self.workers:
            worker.process.kill()
            worker.count(worker.process)
            self._check(worker)

    def _has_caught_up(self, worker: Worker) -> bool:
        worker.keep_up()
        ends = self.figures.records // PARTITIONS
        return committed(self.broker.bootstrap, worker.group) == [ends] * PARTITIONS

    def _check(self, worker: Worker) -> None:
        found = Counter(read_committed(self.broker.bootstrap, worker.output))
        self.figures.outputs_read[worker.program.name] = found.total()
        for number in range(self.figures.records):
            times = found.pop(f"transformed-{number}", 0)
            if times != 1:
                self.figures.problems.append(f"{worker.program.name}: {number} is {times} times")
        if found:
            self.figures.problems.append(f"{worker.program.name}: never sent: {list(found)[:5]}")

    def end(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        self.broker.stop()


def committed(bootstrap: str, group: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
        return [found.offset for found in reader.committed(wanted, timeout=20)]
    except KafkaException:
        return []  # a transaction is open on them, or the broker is not back yet
    finally:
        reader.close()


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """All committed records, up to the end of each partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in reader.consume(1000, timeout=0.5):
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return values


def run(
    folder: Path,
    *,
    kills: int,
    seed: int,
    broker: Broker,
    programs: Sequence[Program] = PROGRAMS,
    broker_every: int = 4,
    zombie_every: int = 7,
) -> Figures:
    """Every so many kills are of the broker, and every so many workers are paused instead."""
    begun = time.monotonic()
    ran = Run(broker.start(), folder, programs, seed)
    try:
        step = 0
        while ran.figures.kills < kills:
            step += 1
            ran.step(
                broker_too=broker_every > 0 and step % broker_every == 0,
                zombie=zombie_every > 0 and step % zombie_every == 0,
            )
        ran.finish()
    finally:
        ran.end()
        ran.figures.seconds = round(time.monotonic() - begun, 1)
    return ran.figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions", description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", choices=("holdfast", "kafka"), default="holdfast")
    parser.add_argument("--lanes", type=int, default=1, help="of Holdfast's store")
    parser.add_argument("--only", help="one client family")
    options = parser.parse_args()
    programs = [p for p in PROGRAMS if options.only in (None, p.name)]
    missing = [why for why in map(why_missing, programs) if why is not None]
    if missing:
        sys.exit("; ".join(missing))
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as name:
        folder = Path(name)
        lanes = ("--lanes", str(options.lanes))
        broker: Broker = (
            HoldfastBroker(folder / "broker", arguments=lanes)
            if options.cluster == "holdfast"
            else KafkaBroker(folder / "broker")
        )
        figures = run(
            folder, kills=options.kills, seed=options.seed, broker=broker, programs=programs
        )
    print(json.dumps(dataclasses.asdict(figures), indent=1))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
