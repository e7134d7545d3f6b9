"""How often work lets others have their turn."""

from collections.abc import Awaitable, Generator
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.identifiers import CONTROL_LANE
from holdfast.log.data_lane import DataLane


def the_lane(broker: Broker) -> DataLane:
    (lane,) = (lane for number, lane in broker.lanes.items() if number != CONTROL_LANE)
    return lane


class Turns:
    """Work that counts how often it lets others have their turn."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        while True:
            try:
                waits_for = next(steps)
            except StopIteration as done:
                return done.value
            self.count += 1
            yield waits_for
