"""Several Holdfast brokers on one store, as processes, as a user would start them."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.holdfast import HoldfastBroker

LANES = 6
LANES_COME_BACK_AT_ONCE = ("--rejoin-wait-ms", "0")
"""To a broker that was restarted: more hand-offs, and harder ones for clients."""


class HoldfastCluster:
    """Brokers with the ids 1, 2, ... on one store."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        lanes: int = LANES,
        store: str | None = None,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        module: str | None = None,
    ) -> None:
        self.store = store or str(folder / "store")
        self.variables = dict(variables or {})
        self.brokers = {
            number: HoldfastBroker(
                folder / f"broker-{number}",
                store=self.store,
                arguments=[
                    *("--id", str(number)),
                    *("--lanes", str(lanes)),
                    *(word.format(id=number) for word in arguments),
                ],
                variables=self.variables,
                module=module,
            )
            for number in range(1, brokers + 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> "HoldfastCluster":
        for broker in self.brokers.values():
            broker.start()
        return self

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def pause(self, number: int) -> None:
        os.kill(self.brokers[number].process.pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self.brokers[number].process.pid, signal.SIGCONT)
