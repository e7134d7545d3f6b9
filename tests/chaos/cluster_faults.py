"""Kill, stop and drain the brokers of a cluster again and again under load; read the store cold.

`python -m tests.chaos.cluster_faults --kills 500 --stops 500` prints figures and every broken
promise; its exit code says whether there was one. Owns the choice of the broker, of the instant and
of how long it stands still: shorter than anybody notices, past its silence, past the validity of
its claims. Some faults fall into others. While a broker stands still, questions gather in its
sockets (sleepers.py).

With `--ack disk` all records, with `--ack mixed` those of the client families, are acknowledged
from the brokers' disks, and go to the store only where a broker lets go of a lane. Then the brokers
are started on their disks once more, one after the other and alone, before the store is read.
"""

import argparse
import dataclasses
import http.client
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from tests.chaos import observers as observed
from tests.chaos.families import TOPIC
from tests.chaos.sleepers import Sleeper
from tests.chaos.stores import ChaosStore, chaos_store
from tests.chaos.under_load import UnderLoad
from tests.peers.holdfast_cluster import LANES_COME_BACK_AT_ONCE
from tests.peers.process import free_port, wait_until
from tests.support.warm_broker import ChaosBroker

from holdfast.verify.history import MarkerKind

BROKERS = (1, 2, 3)
LANES = 6
STOP_SECONDS = (0.05, 0.5, 2.0, 4.0, 7.0, 12.0)
CLAIM_VALID_MS = 2_000
END_SECONDS_MAX = 60.0
LEAD_SECONDS_MAX = 60.0
METRICS_SECONDS_MAX = 5.0
BY_DISK = {"holdfast.ack": "disk", "holdfast.flush.ms": "86400000"}
ON_DISK = {"store": (), "mixed": (TOPIC,), "disk": (TOPIC, observed.TOPIC)}
"""Which topics are acknowledged from a disk."""
ACKED_FROM_DISK = re.compile(r"^holdfast_spool_acked_records_total (\S+)$", re.MULTILINE)


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    kills: int = 0
    stops: int = 0
    drains: int = 0
    asked_while_stopped: int = 0
    told_after_wake: dict[str, int] = dataclasses.field(default_factory=dict)
    kills_during_stops: int = 0
    sent: int = 0
    acked: int = 0
    acked_by: dict[str, int] = dataclasses.field(default_factory=dict)
    acked_from_disk: int = 0
    """At least so many, as the brokers said before each was ended."""
    unknown: int = 0
    errors_told: dict[str, int] = dataclasses.field(default_factory=dict)
    history_calls: int = 0
    history_ok: int = 0
    followed: int = 0
    truncation_alarms: int = 0
    """Of librdkafka, told to the follower (families.Follower says why)."""
    followers_wedged: int = 0
    """As often librdkafka locked itself up, and the follower began anew."""
    epoch_ends_told: int = 0
    cold_records: int = 0
    downtime_ms: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)

    def summary(self) -> dict[str, object]:
        shown = dataclasses.asdict(self)
        del shown["downtime_ms"]  # to the next ack of any partition, and others go on
        shown["problems"] = self.problems[:20]
        shown["problem_count"] = len(self.problems)
        return shown


class ClusterRun(UnderLoad):
    """One store, three ids, many processes."""

    def __init__(
        self,
        folder: Path,
        store: ChaosStore,
        *,
        seed: int,
        per_second: float,
        life_s: float,
        ack: str,
        stop_seconds: Sequence[float],
        without: str | None,
    ) -> None:
        self.ack = ack
        self.stop_seconds = stop_seconds
        self.without = without
        self.metrics_ports = {broker_id: free_port() for broker_id in BROKERS}
        self.folder = folder
        self.store = store
        self.random = random.Random(seed)
        self.life_s = life_s
        self.figures = Figures()
        self.ports = {broker_id: free_port() for broker_id in BROKERS}
        self._count = 0
        self.standby = {broker_id: self._warm(broker_id) for broker_id in BROKERS}
        self.live: dict[int, ChaosBroker] = {}
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        super().__init__(bootstrap, self.figures, seed=seed, per_second=per_second)
        self.configs = dict.fromkeys(ON_DISK[ack], BY_DISK)

    def _warm(self, broker_id: int, port: int | None = None) -> ChaosBroker:
        self._count += 1
        return ChaosBroker(
            self.folder,
            name=f"broker-{broker_id}-{self._count:04d}",
            store=self.store.url,
            port=port or self.ports[broker_id],
            variables=self.store.variables,
            arguments=(
                *("--id", str(broker_id)),
                *("--lanes", str(LANES)),
                *("--claim-valid-ms", str(CLAIM_VALID_MS)),
                *LANES_COME_BACK_AT_ONCE,
                *self._disk_of(broker_id),
                *(("--without", self.without) if self.without else ()),
            ),
        )

    def _disk_of(self, broker_id: int) -> tuple[str, ...]:
        if broker_id not in BROKERS or self.ack == "store":
            return ()
        disk = self.folder / f"disk-{broker_id}"
        disk.mkdir(parents=True, exist_ok=True)
        metrics = f"127.0.0.1:{self.metrics_ports[broker_id]}"
        return ("--spool", str(disk), "--metrics", metrics)

    def _count_acks(self, broker_id: int) -> None:
        """How many records a broker has acknowledged from its disk; before it is ended."""
        if self.ack == "store":
            return
        asked = http.client.HTTPConnection(
            "127.0.0.1", self.metrics_ports[broker_id], timeout=METRICS_SECONDS_MAX
        )
        try:
            asked.request("GET", "/metrics")
            told = ACKED_FROM_DISK.search(asked.getresponse().read().decode())
        except OSError:
            return
        finally:
            asked.close()
        self.figures.acked_from_disk += int(float(told[1])) if told else 0

    def start(self, broker_id: int) -> None:
        broker = self.live[broker_id] = self.standby[broker_id]
        self.standby[broker_id] = self._warm(broker_id)
        broker.go()
        broker.wait_ready()
        self.observers.mark(MarkerKind.CLAIM, broker.name)

    def begin(self) -> None:
        for broker_id in BROKERS:
            broker = self.live[broker_id] = self.standby[broker_id]
            self.standby[broker_id] = self._warm(broker_id)
            broker.go()
            broker.wait_ready()
        self.begin_load()
        wait_until(self._all_lead, seconds_max=LEAD_SECONDS_MAX, what="all brokers lead something")

    def _all_lead(self) -> bool:
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(TOPIC, timeout=20)
        return {each.leader for each in found.topics[TOPIC].partitions.values()} == set(BROKERS)

    def rest(self) -> None:
        """Until the log takes records again, and a while more."""
        self.wait_for_ack(time.monotonic())
        if self.random.random() < 0.5:
            time.sleep(self.random.uniform(0, self.life_s))

    def kill(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self._kill(broker_id)
        if self.random.random() < 0.5:
            time.sleep(self.random.uniform(0, self.life_s))
        self.start(broker_id)

    def _kill(self, broker_id: int) -> None:
        self._count_acks(broker_id)
        broker = self.live.pop(broker_id)
        broker.kill()
        self.harmed()
        self.observers.mark(MarkerKind.KILL, broker.name)
        self.figures.kills += 1

    def stop(self) -> None:
        broker_id = self.random.choice(BROKERS)
        broker = self.live[broker_id]
        sleeper = Sleeper(self.observers, broker)
        sleeper.connect()
        broker.signal(signal.SIGSTOP)
        self.harmed()
        self.observers.mark(MarkerKind.PAUSE, broker.name)
        self.figures.stops += 1
        seconds = self.random.choice(self.stop_seconds)
        self.figures.asked_while_stopped += sleeper.ask()
        other = None
        if self.random.random() < 0.2:
            other = self.random.choice([each for each in BROKERS if each != broker_id])
            self._kill(other)
            self.figures.kills_during_stops += 1
        time.sleep(seconds)
        sleeper.wakes()
        broker.signal(signal.SIGCONT)
        if other is not None:
            self.start(other)
        sleeper.hear()
        told = self.figures.told_after_wake
        for answer, count in sleeper.told.items():
            told[answer] = told.get(answer, 0) + count

    def drain(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self._count_acks(broker_id)
        broker = self.live.pop(broker_id)
        broker.signal(signal.SIGTERM)
        self.harmed()
        self._expect_end(broker)
        self.figures.drains += 1
        self.start(broker_id)

    def _expect_end(self, broker: ChaosBroker) -> None:
        code = broker.exit_code(seconds_max=END_SECONDS_MAX)
        if code != 0:
            said = broker.process.log_text()[-400:]
            self.figures.problems.append(f"{broker.name} ended with {code}: {said}")

    def finish(self) -> None:
        self.finish_load()
        for broker_id in self.live:
            self._count_acks(broker_id)
        for broker in (*self.live.values(), *self.standby.values()):
            broker.kill()
            said = broker.process.log_text()
            if "Traceback" in said:
                at = said.index("Traceback")
                self.figures.problems.append(f"{broker.name}: {said[at : at + 1500]}")

    def check(self) -> None:
        self.store = self.store.moved()
        if self.ack != "store":
            self._bring_in_disks()
        self.compare(self.store, self._warm(9, free_port()))

    def _bring_in_disks(self) -> None:
        """As a person would: each broker is started on its disk, alone, and ended cleanly."""
        for broker_id in self.random.sample(BROKERS, len(BROKERS)):
            broker = self._warm(broker_id, free_port())
            broker.go()
            broker.wait_ready()
            broker.signal(signal.SIGTERM)
            self._expect_end(broker)


def run(
    folder: Path,
    *,
    kills: int,
    stops: int,
    seed: int,
    store: str,
    per_second: float,
    life_s: float,
    ack: str = "mixed",
    stop_seconds: Sequence[float] = STOP_SECONDS,
    without: str | None = None,
) -> Figures:
    """The whole of it: load, faults, cold read, checks."""
    begun = time.monotonic()
    with chaos_store(store, folder) as where:
        chaos = ClusterRun(
            folder,
            where,
            seed=seed,
            per_second=per_second,
            life_s=life_s,
            ack=ack,
            stop_seconds=stop_seconds,
            without=without,
        )
        chaos.begin()
        figures = chaos.figures
        shown, step = 0, max(1, min(50, (kills + stops) // 10))
        while (figures.kills < kills or figures.stops < stops) and not chaos.is_stuck():
            left = [kills - figures.kills, stops - figures.stops, max(kills, stops) / 20]
            weights = [max(0.0, float(each)) for each in left]
            fault = chaos.random.choices([chaos.kill, chaos.stop, chaos.drain], weights)[0]
            fault()
            chaos.rest()
            if (figures.kills + figures.stops) // step > shown:
                shown = (figures.kills + figures.stops) // step
                print(
                    f"{figures.kills} kills, {figures.stops} stops, {figures.drains} drains,"
                    f" {chaos.ledger.acked_count} acked, {len(figures.problems)} problems",
                    file=sys.stderr,
                    flush=True,
                )
        chaos.finish()
        chaos.check()
    chaos.tell(begun)
    return chaos.figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.cluster_faults", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--stops", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("directory", "s3"), default="directory")
    parser.add_argument("--ack", choices=tuple(ON_DISK), default="mixed")
    parser.add_argument("--rate", type=float, default=1500, help="records per second, at most")
    parser.add_argument("--life", type=float, default=2.0, help="seconds between faults, at most")
    parser.add_argument(
        "--stop-seconds",
        type=float,
        nargs="+",
        default=STOP_SECONDS,
        help="how long a broker stands still: one of these, by chance",
    )
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as scratch:
        figures = run(
            options.keep or Path(scratch),
            kills=options.kills,
            stops=options.stops,
            seed=options.seed,
            store=options.store,
            per_second=options.rate,
            life_s=options.life,
            ack=options.ack,
            stop_seconds=options.stop_seconds,
        )
    print(json.dumps(figures.summary(), indent=2))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
