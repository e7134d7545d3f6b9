"""Harmed stores: a broker refuses and names the object, or serves the rest. Never wrong bytes."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.hostile.damaged import PARTITIONS, DamagedStore, Reading, SoundStore, read_all, value
from tests.hostile.forked import ForkedBroker

Harm = Callable[[DamagedStore], Path]
LANE = 1
BROKERS_AT_ONCE = 6
PARTITION = 0


def _cut(find: Callable[[DamagedStore], Path], at: Callable[[int], int]) -> Harm:
    def harm(store: DamagedStore) -> Path:
        path = find(store)
        path.write_bytes(path.read_bytes()[: at(path.stat().st_size)])
        return path

    return harm


def _flip(find: Callable[[DamagedStore], Path], at: int) -> Harm:
    def harm(store: DamagedStore) -> Path:
        path = find(store)
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)
        return path

    return harm


def _replace(find: Callable[[DamagedStore], Path], other: Callable[[DamagedStore], Path]) -> Harm:
    def harm(store: DamagedStore) -> Path:
        path = find(store)
        path.write_bytes(other(store).read_bytes())
        return path

    return harm


def _remove(find: Callable[[DamagedStore], Path]) -> Harm:
    def harm(store: DamagedStore) -> Path:
        path = find(store)
        path.unlink()
        return path

    return harm


def _data(store: DamagedStore) -> Path:
    return store.data(LANE)


def _claim(store: DamagedStore) -> Path:
    return store.replayed(LANE)[0]


def _control(store: DamagedStore) -> Path:
    return store.entries(0)[1]


def _newest_snapshot(store: DamagedStore) -> Path:
    return store.snapshots(LANE)[-1]


def _segment(store: DamagedStore) -> Path:
    return store.segment(PARTITION)


def _next_entry(store: DamagedStore) -> Path:
    newest = store.entries(LANE)[-1]
    path = newest.with_name(f"{int(newest.name) + 1:020d}")
    path.touch()
    return path


LANE_HEADER_BYTES = 84
REFUSES: dict[str, Harm] = {
    "an empty lane object": _cut(_data, lambda _: 0),
    "a lane object of one byte": _cut(_data, lambda _: 1),
    "a lane object cut in its header": _cut(_data, lambda _: 40),
    "a lane object cut after its header": _cut(_data, lambda _: LANE_HEADER_BYTES),
    "a lane object cut in its facts": _cut(_data, lambda _: LANE_HEADER_BYTES + 20),
    "another lane's bytes": _replace(_data, lambda store: store.data(LANE + 1)),
    "another number's bytes": _replace(_data, lambda store: store.replayed(LANE)[-1]),
    "an older number's bytes": _replace(_data, lambda store: store.entries(LANE)[0]),
    "a snapshot in place of a lane object": _replace(_data, _newest_snapshot),
    "a flipped bit in the magic": _flip(_data, 0),
    "a flipped bit in the kind": _flip(_data, 4),
    "a flipped bit in the lane": _flip(_data, 7),
    "a flipped bit in the number": _flip(_data, 15),
    "a flipped bit in the claim": _flip(_data, 23),
    "a flipped bit in the writer": _flip(_data, 30),
    "a flipped bit in the hash before": _flip(_data, 45),
    "a flipped bit in the length of the facts": _flip(_data, 58),
    "a flipped bit in the facts": _flip(_data, LANE_HEADER_BYTES + 10),
    "an empty claim": _cut(_claim, lambda _: 0),
    "a flipped bit in a claim": _flip(_claim, LANE_HEADER_BYTES + 5),
    "a missing object in the middle of a lane": _remove(_data),
    "an empty object at the next number": _next_entry,
    "an empty object in the control lane": _cut(_control, lambda _: 0),
    "a flipped bit in the control lane": _flip(_control, LANE_HEADER_BYTES + 8),
    "a missing object in the control lane": _remove(_control),
}
SERVES_THE_REST: dict[str, Harm] = {
    "a lane object cut in its payload": _cut(_data, lambda size: size - 1),
    "a flipped bit in the payload": _flip(_data, -40),
    "a flipped bit in the last byte": _flip(_data, -1),
    "an empty segment": _cut(_segment, lambda _: 0),
    "a segment cut in its header": _cut(_segment, lambda _: 20),
    "a segment cut in its index": _cut(_segment, lambda _: 80),
    "a segment cut in the middle": _cut(_segment, lambda size: size // 2),
    "a segment cut by one byte": _cut(_segment, lambda size: size - 1),
    "a flipped bit in a segment's header": _flip(_segment, 25),
    "a flipped bit in a segment's index": _flip(_segment, 75),
    "a flipped bit in a segment's records": _flip(_segment, -30),
    "another partition's segment": _replace(_segment, lambda store: store.segment(1)),
    "a missing segment": _remove(_segment),
}
HARMLESS: dict[str, Harm] = {
    "a stranger beside the lane objects": lambda store: _stranger(store, "lanes/0001/README"),
    "a stranger beside the snapshots": lambda store: _stranger(store, "snapshots/0001/x.tmp"),
    "a stranger beside the floors": lambda store: _stranger(store, "floors/0001/12"),
    "a stranger at the top": lambda store: _stranger(store, "hello.txt"),
}
REFUSES_OR_SERVES_ALL: dict[str, Harm] = {
    "an empty snapshot": _cut(_newest_snapshot, lambda _: 0),
    "a snapshot of one byte": _cut(_newest_snapshot, lambda _: 1),
    "a snapshot cut in its header": _cut(_newest_snapshot, lambda _: 30),
    "a snapshot cut by one byte": _cut(_newest_snapshot, lambda size: size - 1),
    "a flipped bit in a snapshot's header": _flip(_newest_snapshot, 10),
    "a flipped bit in a snapshot's state": _flip(_newest_snapshot, -9),
    "another lane's snapshot": _replace(
        _newest_snapshot, lambda store: store.snapshots(LANE + 1)[-1]
    ),
    "a missing snapshot": _remove(_newest_snapshot),
    "a missing floor": _remove(lambda store: store.floors(LANE)[-1]),
}
CASES = {
    "refuses": REFUSES,
    "serves the rest": SERVES_THE_REST,
    "serves all": HARMLESS,
    "refuses or serves all": REFUSES_OR_SERVES_ALL,
}


def _stranger(store: DamagedStore, key: str) -> Path:
    path = store.root / key
    path.write_bytes(b"what is this?")
    return path


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a broker made of one harmed store."""

    harmed: str
    code: int | None
    log: str
    readings: list[Reading]


class Trials:
    """Every harmed store with a broker of its own, several at a time, judged one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sound = SoundStore(folder / "sound")
        harms = {name: harm for table in CASES.values() for name, harm in table.items()}
        harms["none"] = lambda store: store.root
        with ThreadPoolExecutor(BROKERS_AT_ONCE) as threads:
            self.outcomes = dict(
                zip(harms, threads.map(self._try, harms.keys(), harms.values()), strict=True)
            )

    def _try(self, name: str, harm: Harm) -> Outcome:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        store = self.sound.copy(folder)
        harmed = store.key(harm(store))
        broker = ForkedBroker(str(store.root), folder / "broker.log")
        try:
            code = broker.wait()
            readings = read_all(broker.port) if code is None else []
            return Outcome(harmed, code, broker.log_text(), readings)
        finally:
            broker.kill()


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


def _case(verdict: str, name: str):
    return pytest.param(verdict, name, id=name.replace(" ", "-"))


@pytest.mark.parametrize(
    ("verdict", "name"),
    [_case(verdict, name) for verdict, harms in CASES.items() for name in harms],
)
def test_a_harmed_store_is_refused_or_its_rest_is_served(trials, verdict, name):
    outcome = trials.outcomes[name]
    if outcome.code is not None:
        assert "refuses" in verdict, outcome.log
        assert_refusal(outcome)
        return
    told = [(reading.end, reading.error) for reading in outcome.readings]
    assert "serves" in verdict, f"it serves in spite of {outcome.harmed}: {told}"
    assert_no_wrong_bytes(trials.sound, outcome, damaged=verdict == "serves the rest")


def assert_refusal(outcome: Outcome) -> None:
    """One line that names the object, or at least its lane; no trace."""
    assert outcome.code not in (0, -9)
    assert "Traceback" not in outcome.log, outcome.log
    message = outcome.log.splitlines()[-1]
    assert message.startswith("holdfast: ")
    lane = f"lane {int(outcome.harmed.split('/')[1])}"
    assert outcome.harmed in message or lane in message, message


def assert_no_wrong_bytes(sound: SoundStore, outcome: Outcome, *, damaged: bool) -> None:
    for partition, reading in enumerate(outcome.readings):
        count = sound.counts[partition]
        expected = [value(partition, number) for number in range(count)]
        assert reading.values == expected[: len(reading.values)]
        assert reading.end == count, f"the log of {partition} ends at {reading.end}, not {count}"
        if damaged and partition == PARTITION:
            assert "KAFKA_STORAGE_ERROR" in reading.error or "CORRUPT" in reading.error, (
                f"read {len(reading.values)} of {count}: {reading.error!r}"
            )
        else:
            assert len(reading.values) == count, f"{partition}: {reading.error}"


def test_the_sound_store_is_served_whole(trials):
    outcome = trials.outcomes["none"]
    assert outcome.code is None
    assert len(outcome.readings) == PARTITIONS
    assert_no_wrong_bytes(trials.sound, outcome, damaged=False)
