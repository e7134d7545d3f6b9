"""The whole of seed 001 with real processes: members of a sink come, go, die and stand still.

`python -m tests.chaos.sink_incident --rebalances 200 [--kafka] [--classic] [--spark]`. Seven
partitions, a producer that never stops, members of `holdfast sink` that are started, ended, killed
and paused past their session, while batches are open and under way. At the end the log is read from
its first record, and what has landed must equal it, record by record.
"""

import argparse
import asyncio
import contextlib
import random
import re
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.spark_cluster import StandaloneCluster
from tests.chaos.spark_process import send, variables
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed, Process, wait_until

from holdfast.client.admin import list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import fetch, records_of
from holdfast.environment import SystemEnvironment
from holdfast.inspect.output_survey import survey
from holdfast.landing.landed import records
from holdfast.store.address import open_store

TOPIC = "incident"
PARTITIONS = 7
MEMBERS_MAX = 4
MEMBERS_ON_SPARK = 3
SPARK_SECONDS_MAX = 240.0
RESTART_SECONDS_MAX = 30.0
SESSION_S = 6.0
"""The shortest that Apache Kafka accepts of a classic member at its defaults."""
PACE_S = 1.5
ONCE_SECONDS_MAX = 180.0
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
}
CLASSIC_TIMES = f""""session.timeout.ms" = {int(SESSION_S * 1000)}
"heartbeat.interval.ms" = 500"""
EPOCH = re.compile(r"sink\.(?:assigned|revoked|lost|members) epoch=(-?[0-9]+)")


@dataclass
class Figures:
    """What a run tells."""

    rebalances: int = 0
    started: int = 0
    killed: int = 0
    paused: int = 0
    ended: int = 0
    produced: int = 0
    landed: int = 0
    objects: int = 0
    abandoned: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list[str])

    def lines(self) -> list[str]:
        return [
            f"rebalances   {self.rebalances} ({self.started} members started, {self.ended} ended,"
            f" {self.killed} SIGKILLs, {self.paused} pauses past the session)",
            f"records      {self.produced} in the log, {self.landed} landed in {self.objects}"
            f" objects; {self.abandoned} batches abandoned at a revoke",
            f"time         {self.seconds:.0f} s",
            f"problems     {len(self.problems)}",
            *self.problems[:20],
        ]


class Load(threading.Thread):
    """Records to all partitions, each with its own number."""

    def __init__(self, bootstrap: str, *, per_second: float) -> None:
        super().__init__(name="load", daemon=True)
        self.stopping = threading.Event()
        self.acked = 0
        self.failed: list[str] = []
        self._per_second = per_second
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        )

    def run(self) -> None:
        number = 0
        pad = "x" * 300
        while not self.stopping.is_set():
            for _ in range(50):
                value = b'{"number":%d,"pad":"%s"}' % (number, pad.encode())
                self._producer.produce(
                    TOPIC, value=value, partition=number % PARTITIONS, on_delivery=self._told
                )
                number += 1
            self._producer.poll(0)
            self.stopping.wait(50 / self._per_second)
        self._producer.flush(60)

    def _told(self, error: object, message: object) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failed.append(str(error))


class SinkMember:
    """One process of `holdfast sink`."""

    def __init__(
        self,
        number: int,
        incident: "Incident",
        *more: str,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.log = incident.folder / f"member-{number}.log"
        holdfast = Path(sys.executable).parent / "holdfast"
        program = (
            [str(holdfast), "sink"]
            if incident.module is None
            else [sys.executable, "-m", incident.module]
        )
        arguments = [str(incident.config), "--verbose", *more]
        self.process = Process([*program, *arguments], log=self.log, environment=variables)
        self.paused_until: float | None = None


class Incident:
    """A broker, a store, and members that are not left in peace."""

    def __init__(
        self,
        broker: KafkaBroker | HoldfastBroker,
        folder: Path,
        *,
        seed: int,
        protocol: str,
        module: str | None = None,
        store: str | None = None,
        per_second: float = 2_000,
        age: str = "2s",
    ) -> None:
        self.broker = broker
        self.folder = folder
        self.module = module
        self.store = store or str(folder / "landed")
        self.figures = Figures()
        self._random = random.Random(seed)
        self._members: list[SinkMember] = []
        self._all: list[SinkMember] = []
        self._load = Load(broker.bootstrap, per_second=per_second)
        self.config = folder / "sink.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            f"""[source]
"bootstrap.servers" = "{broker.bootstrap}"
"group.id" = "incident"
topics = ["{TOPIC}"]
"group.protocol" = "{protocol}"
{CLASSIC_TIMES if protocol == "classic" else ""}
"max.poll.interval.ms" = 15000

[output]
to = "{self.store}"
layout = "envelope"

[batch]
age = "{age}"
bytes = "1MiB"

[spark]
conf = {{ "spark.executor.memory" = "500m" }}
"""
        )

    def run(self, *, rebalances: int, seconds_max: float) -> Figures:
        begun = time.monotonic()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        self._load.start()
        try:
            self._start()
            while self._rebalances() < rebalances and not self.figures.problems:
                if time.monotonic() - begun > seconds_max:
                    break
                self._harm()
                time.sleep(self._random.uniform(0.3, 2 * PACE_S))
                self._wake(all_of_them=False)
                self._check_alive()
        finally:
            self._load.stopping.set()
            self._load.join(90)
            self._wake(all_of_them=True)
            self._end()
        self._finish()
        self.figures.rebalances = self._rebalances()
        if self.figures.rebalances < rebalances:
            self.figures.problems.append(f"void: only {self.figures.rebalances} rebalances")
        self.figures.seconds = time.monotonic() - begun
        return self.figures

    def _end(self) -> None:
        for member in self._members:
            member.process.stop()

    def _start(self) -> None:
        member = SinkMember(len(self._all), self)
        self._all.append(member)
        self._members.append(member)
        self.figures.started += 1

    def _harm(self) -> None:
        awake = [member for member in self._members if member.paused_until is None]
        choices = ["start"] * (len(self._members) < MEMBERS_MAX)
        if len(awake) > 1:
            choices += ["end", "kill", "kill", "pause"]
        if not choices:
            return
        choice = self._random.choice(choices)
        if choice == "start":
            self._start()
            return
        member = self._random.choice(awake)
        if choice == "pause":
            member.process.pause()
            member.paused_until = time.monotonic() + SESSION_S + self._random.uniform(0.5, 4)
            self.figures.paused += 1
            return
        self._members.remove(member)
        if choice == "kill":
            member.process.kill()
            self.figures.killed += 1
        else:
            member.process.signal(signal.SIGTERM)
            self.figures.ended += 1

    def _wake(self, *, all_of_them: bool) -> None:
        now = time.monotonic()
        for member in self._members:
            if member.paused_until is not None and (all_of_them or now >= member.paused_until):
                member.process.resume()
                member.paused_until = None

    def _check_alive(self) -> None:
        for member in list(self._members):
            code = member.process.exit_code()
            if code is not None:
                self._members.remove(member)
                last = member.log.read_text()[-600:]
                self.figures.problems.append(f"a member ended by itself with {code}: {last}")

    def _rebalances(self) -> int:
        """The newest generation, or epoch, of the group: each rebalance adds one."""
        logs = [member.log.read_text() for member in self._all]
        return max((int(epoch) for log in logs for epoch in EPOCH.findall(log)), default=0)

    def _finish(self) -> None:
        """One member alone lands the rest; then both sides are read."""
        last = SinkMember(len(self._all), self, "--once")
        self._all.append(last)
        wait_until(
            lambda: last.process.exit_code() is not None,
            seconds_max=ONCE_SECONDS_MAX,
            what="one member lands the rest",
        )
        if last.process.exit_code() != 0:
            text = last.log.read_text()[-800:]
            self.figures.problems.append(f"--once ended with {last.process.exit_code()}: {text}")
        self.figures.problems += self._load.failed[:3]
        self.figures.abandoned = sum(
            member.log.read_text().count("sink.revoke.abandoned") for member in self._all
        )
        asyncio.run(self._compare())

    async def _compare(self) -> None:
        told = self.figures
        environment = SystemEnvironment()
        store = open_store(self.store, environment=environment)
        found: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        try:
            async for batch in records(store, environment=environment):
                for row in batch.to_pylist():
                    offsets = found[row["partition"]]
                    if row["offset"] in offsets:
                        told.problems.append(f"doubled: {row['partition']} at {row['offset']}")
                    offsets[row["offset"]] = row["value"]
            surveyed = await survey(store, environment=environment)
            told.problems += [str(problem) for problem in surveyed.problems]
            told.objects = sum(len(chain.keys) for chain in surveyed.chains)
        finally:
            await store.close()
        async with Cluster(self.broker.bootstrap, environment=environment) as cluster:
            for partition in range(PARTITIONS):
                logged = await _logged(cluster, partition)
                told.produced += len(logged)
                told.landed += len(found[partition])
                told.problems += differences(partition, logged, found[partition])
        if self._load.acked > told.produced:
            told.problems.append(f"the log has {told.produced} of {self._load.acked} acknowledged")


class OnSpark(Incident):
    """The members are tasks on a standalone cluster; executors and Python workers are harmed."""

    _cluster: StandaloneCluster

    def _start(self) -> None:
        self._cluster = StandaloneCluster(self.folder / "spark", workers=MEMBERS_ON_SPARK).start()
        driver = SinkMember(
            len(self._all),
            self,
            *("--members", str(MEMBERS_ON_SPARK), "--master", self._cluster.url),
            variables=variables(self._cluster.mark),
        )
        self._all.append(driver)
        self._members.append(driver)
        self.figures.started += MEMBERS_ON_SPARK
        driver.process.wait_until(
            lambda: f"members={MEMBERS_ON_SPARK}" in driver.process.log_text(),
            seconds_max=SPARK_SECONDS_MAX,
            what="all tasks are members",
        )

    def _harm(self) -> None:
        """Once all are at work again, or have had the time for it."""
        with contextlib.suppress(PeerFailed):
            wait_until(
                lambda: len(self._cluster.python_workers()) >= MEMBERS_ON_SPARK,
                seconds_max=RESTART_SECONDS_MAX,
                what="all tasks run",
            )
        workers = self._cluster.python_workers()
        executors = self._cluster.executors()
        choice = self._random.choice(["executor", "worker", "pause"])
        if choice == "executor" and executors:
            self.figures.killed += send([self._random.choice(executors)], signal.SIGKILL)
        elif choice == "worker" and workers:
            self.figures.killed += send([self._random.choice(workers)], signal.SIGKILL)
        elif workers:
            worker = self._random.choice(workers)
            self.figures.paused += send([worker], signal.SIGSTOP)
            time.sleep(SESSION_S + self._random.uniform(0.5, 2))
            send([worker], signal.SIGCONT)

    def _end(self) -> None:
        super()._end()
        self._cluster.stop()


def differences(partition: int, logged: dict[int, bytes], landed: dict[int, bytes]) -> list[str]:
    """What the landed records of a partition have other than its log."""
    missing = sorted(logged.keys() - landed.keys())
    extra = sorted(landed.keys() - logged.keys())
    other = sorted(n for n in logged.keys() & landed.keys() if logged[n] != landed[n])
    return [
        f"partition {partition}: {len(offsets)} records {what}, the first at offset {offsets[0]}"
        for what, offsets in (("lost", missing), ("not in the log", extra), ("changed", other))
        if offsets
    ]


async def _logged(cluster: Cluster, partition: int) -> dict[int, bytes]:
    end = (await list_offset(cluster, TOPIC, partition)).offset
    offset = 0
    logged: dict[int, bytes] = {}
    while offset < end:
        answer = await fetch(cluster, TOPIC, partition, offset)
        for record in records_of(answer):
            logged[record.offset] = record.value or b""
        offset = answer.next_offset
    return logged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rebalances", type=int, default=200)
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka")
    parser.add_argument("--classic", action="store_true", help="cooperative-sticky, not KIP-848")
    parser.add_argument("--spark", action="store_true", help="members as tasks of a Spark job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", help="a sink to run in place of `holdfast sink`")
    parser.add_argument("--seconds-max", type=float, default=3_600.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-incident-") as name:
        folder = Path(name)
        broker = broker_for(folder / "broker", is_kafka=given.kafka).start()
        try:
            kind = OnSpark if given.spark else Incident
            figures = kind(
                broker,
                folder,
                seed=given.seed,
                protocol="classic" if given.classic else "consumer",
                module=given.module,
            ).run(rebalances=given.rebalances, seconds_max=given.seconds_max)
        finally:
            broker.stop()
    print("\n".join(figures.lines()))
    sys.exit(1 if figures.problems else 0)


def broker_for(folder: Path, *, is_kafka: bool) -> KafkaBroker | HoldfastBroker:
    """A broker of its own, with short sessions of consumers."""
    if is_kafka:
        minima = {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "100",
        }
        return KafkaBroker(folder, settings=BROKER_SETTINGS | minima)
    given = [("--override", f"{name}={value}") for name, value in BROKER_SETTINGS.items()]
    return HoldfastBroker(folder, arguments=[word for pair in given for word in pair])


if __name__ == "__main__":
    main()
