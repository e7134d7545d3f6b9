"""The lines that a program of the tests exchanges with the test: events out, commands in.

Owns the standard streams and the bookkeeping of what a member owns. It must never decide anything.
"""

import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

POLL_SECONDS = 0.05
WORKER_RECORDS_MAX = 20
Command = dict[str, Any]


def config() -> dict[str, Any]:
    """What this process is to be."""
    return json.loads(sys.argv[1])


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def listen(heard: Callable[[Command], None]) -> None:
    """Hand over each command; the end of the input is the command to leave."""

    def read() -> None:
        for line in sys.stdin:
            heard(json.loads(line))
        heard({"do": "leave"})

    threading.Thread(target=read, daemon=True).start()


def commands() -> "queue.SimpleQueue[Command]":
    waiting: queue.SimpleQueue[Command] = queue.SimpleQueue()
    listen(waiting.put)
    return waiting


def next_command(waiting: "queue.SimpleQueue[Command]") -> Command | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


class Holdings:
    """What a member owns, and the offset after the last record that it told of."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}

    def assigned(self, partitions: Iterable[int]) -> None:
        self.owned |= set(partitions)
        tell("owned", partitions=sorted(self.owned))

    def gone(self, partitions: Iterable[int], *, lost: bool = False) -> None:
        going = set(partitions)
        self.owned -= going
        for partition in going:
            self.positions.pop(partition, None)
        if lost:
            tell("lost", partitions=sorted(going))
        tell("owned", partitions=sorted(self.owned))

    def positions_of(self, partitions: Iterable[int]) -> dict[int, int]:
        return {p: self.positions[p] for p in partitions if p in self.positions}

    def consumed(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Partition, offset and value of each."""
        told = [[partition, offset, value.decode()] for partition, offset, value in records]
        for partition, offset, _ in told:
            self.positions[partition] = offset + 1
        if told:
            tell("records", records=told)


def offsets_of(command: Command, holdings: Holdings) -> dict[int, int]:
    """What to commit: as the command says, else all positions."""
    asked: Mapping[str, int] | None = command.get("offsets")
    if asked is None:
        return dict(holdings.positions)
    return {int(partition): offset for partition, offset in asked.items()}


def tell_committed(offsets: Mapping[int, int], error: int) -> None:
    tell("committed", offsets=dict(offsets), error=error)


def transformed(value: bytes) -> bytes:
    return b"transformed-" + value
