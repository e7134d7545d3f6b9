"""Where a micro-batch is, seen from outside: by the files that it has written so far.

Owns the points at which chaos kills, the wait for one of them, and, after a kill, the telling of
where it really fell. It looks at names of files only, every millisecond, and at the ledger's newest
entry. Must never change anything.
"""

import enum
import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.peers.process import PeerFailed

from holdfast.landing.ledger_entry import Entry, decode_entry

POLL_S = 0.001
LOOKS_BETWEEN_QUESTIONS = 100


class Point(enum.Enum):
    """When to kill."""

    START = "in start-up"
    OFFSETS = "after offsets"
    TASK = "in a task"
    STATE = "after state"
    DATA = "after data"
    ENTRY = "after the ledger entry"
    COMMIT = "after Spark's commit"
    ANYWHERE = "anywhere"


class Window(enum.Enum):
    """Where a kill fell, by what the dead have left."""

    BETWEEN = "between micro-batches"
    OFFSETS = "offsets are written, no state, no output"
    STATE = "state is written, no output"
    DATA = "output is written, no ledger entry"
    ENTRY = "ledger entry is written, not Spark's commit"


@dataclass(slots=True, kw_only=True)
class Watch:
    """The files of one pipeline."""

    checkpoint: Path
    lake: Path
    sink_id: str
    chain_topic: str | None = None
    """Where it lands on chains: there is no ledger, and objects are the output."""

    def numbers(self, log: str) -> list[int]:
        """The micro-batches that one of Spark's logs names."""
        return sorted(int(name) for name in _names([self.checkpoint / log]) if name.isdigit())

    def entries(self) -> int:
        return len([n for n in _names([self.lake / "ledger" / self.sink_id]) if n.isdigit()])

    def head(self) -> Entry | None:
        folder = self.lake / "ledger" / self.sink_id
        newest = max((n for n in _names([folder]) if n.isdigit()), default=None)
        if newest is None:
            return None
        body = (folder / newest).read_bytes()
        return decode_entry(body, sink_id=self.sink_id, n=int(newest)).entry

    def progress(self) -> int:
        """Grows with each micro-batch that counts."""
        if self.chain_topic is not None:
            return max(self.numbers("commits"), default=-1) + 1
        return self.entries()

    def _folders(self, point: Point) -> list[Path]:
        match point:
            case Point.OFFSETS | Point.TASK:
                return [self.checkpoint / "offsets"]
            case Point.STATE if self.chain_topic is None:
                state = self.lake / "state" / self.sink_id
                return [state, *(state / name for name in _names([state]))]
            case Point.STATE | Point.DATA if self.chain_topic is not None:
                return [self.lake]
            case Point.DATA:
                return [self.lake / "data" / self.sink_id]
            case Point.ENTRY if self.chain_topic is None:
                return [self.lake / "ledger" / self.sink_id]
            case _:
                return [self.checkpoint / "commits"]

    def wait_for(
        self,
        point: Point,
        *,
        chance: random.Random,
        is_alive: Callable[[], bool],
        seconds_max: float,
    ) -> None:
        """Return within about a millisecond of the next time that this point is reached."""
        if point in (Point.START, Point.ANYWHERE):
            time.sleep(chance.uniform(0, 0.8 if point is Point.START else 2.5))
            return
        known = set(_whole(_names(self._folders(point))))
        begun = time.monotonic()
        looks = 0
        while not self._is_new(point, known):
            time.sleep(POLL_S)
            looks += 1
            if looks % LOOKS_BETWEEN_QUESTIONS == 0:
                if not is_alive():
                    return
                if time.monotonic() - begun > seconds_max:
                    raise PeerFailed(f"{point.value}: not within {seconds_max} s")
        if point is Point.TASK:
            time.sleep(chance.uniform(0, 0.25))

    def _is_new(self, point: Point, known: set[str]) -> bool:
        names = _whole(_names(self._folders(point)))
        return any(name not in known for name in names if _is_file(name))

    def window(self, since_wall: float) -> Window:
        """Where all that ran since then stopped; ask when nothing runs any more."""
        offsets = max(self.numbers("offsets"), default=-1)
        if offsets <= max(self.numbers("commits"), default=-1):
            return Window.BETWEEN
        if self.chain_topic is not None:
            begun = (self.checkpoint / "offsets" / str(offsets)).stat().st_mtime
            fresh = [p for p in self.lake.glob("*.*") if p.stat().st_mtime > begun]
            return Window.DATA if fresh else Window.OFFSETS
        head = self.head()
        if head is not None and head.batch_id == offsets:
            return Window.ENTRY
        n = 0 if head is None else head.n + 1
        if _fresh((self.lake / "data" / self.sink_id).glob(f"{n:020d}-*"), since_wall):
            return Window.DATA
        if _fresh((self.lake / "state" / self.sink_id).glob(f"*/{n:020d}-*"), since_wall):
            return Window.STATE
        return Window.OFFSETS


def _names(folders: Iterable[Path]) -> list[str]:
    # Every millisecond: a Path for each of a thousand names would take longer than that.
    found: list[str] = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                found += [entry.name for entry in entries]
        except FileNotFoundError:
            continue
    return found


def _whole(names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if not name.startswith((".", "_")))


def _is_file(name: str) -> bool:
    # A bucket's folder is five digits; numbers of ledgers and names of files are longer or shorter.
    return not (len(name) == 5 and name.isdigit())


def _fresh(paths: Iterable[Path], since_wall: float) -> bool:
    return any(path.stat().st_mtime >= since_wall for path in paths)
