"""The other brokers that this one reaches at their addresses, and those that it does not reach.

Owns the knowledge about the ways to other brokers, and the log lines that name a broken one. A
broker may be alive and unreachable: it pings this one, or others pass on its reports. Must never
say whether a broker is alive.
"""

import logging
from typing import NamedTuple

from holdfast.client.address import Address
from holdfast.environment import Environment
from holdfast.identifiers import BrokerId

log = logging.getLogger("holdfast.cluster")

AFTER_S = 3.0
"""How long a broker that is alive may fail to answer before it counts as unreachable. One ping may
fail, and a paused broker is silent before it counts as gone."""
REPEAT_S = 30.0
"""How often the log names a broker that stays unreachable."""


class Unreachable(NamedTuple):
    """A broker that is alive and does not answer at its address."""

    address: Address
    since: float
    logged_at: float


class Reachability:
    """The ways from one broker to the others."""

    def __init__(self, environment: Environment) -> None:
        self._failing: dict[BrokerId, Unreachable] = {}
        self._environment = environment
        self._reached: dict[BrokerId, Address] = {}
        self._accepted_at: dict[BrokerId, float] = {}

    def answered(self, broker_id: BrokerId, address: Address) -> None:
        """Note that a broker has answered at its address."""
        self._reached[broker_id] = address
        was_failing = self._failing.pop(broker_id, None)
        if was_failing is not None and was_failing.logged_at > 0:
            log.info("broker_reachable_again broker=%d address=%s", broker_id, address)

    def was_reached(self, broker_id: BrokerId, address: Address) -> bool:
        """True if the broker has ever answered there. A refused connection then means it is
        gone."""
        return self._reached.get(broker_id) == address

    def failed(
        self, own_id: BrokerId, broker_id: BrokerId, address: Address, error: Exception
    ) -> None:
        """Note that a broker that is alive does not answer at its address. Log it if that lasts."""
        now = self._environment.monotonic()
        known = self._failing.get(broker_id)
        if known is None or known.address != address:
            known = Unreachable(address, now, float("-inf"))
        if now - known.since >= AFTER_S and now - known.logged_at >= REPEAT_S:
            log.warning(
                "broker_unreachable from=%d to=%d address=%s seconds=%.0f error=%s. The broker is"
                " alive: it pings this broker, other brokers hear it, or it writes reports to the"
                " store. Start it with an --advertise address that all brokers can reach. Until"
                " then no lane moves from it to this broker",
                own_id,
                broker_id,
                address,
                now - known.since,
                error,
            )
            known = known._replace(logged_at=now)
        self._failing[broker_id] = known

    def silent(self, broker_id: BrokerId) -> None:
        """Forget that a broker is unreachable: no broker hears it, so its address is not at
        fault."""
        self._failing.pop(broker_id, None)

    def forget(self, broker_id: BrokerId) -> None:
        """Forget a broker that is gone. The next process at its address is another one."""
        self._failing.pop(broker_id, None)
        self._reached.pop(broker_id, None)
        self._accepted_at.pop(broker_id, None)

    def unreachable(self) -> dict[BrokerId, Address]:
        """Return the brokers that are alive and unreachable, with the addresses that were tried."""
        now = self._environment.monotonic()
        return {
            broker_id: found.address
            for broker_id, found in list(self._failing.items())
            if now - found.since >= AFTER_S
        }

    def accepted(self, broker_id: BrokerId) -> None:
        """Note that a broker that did not answer has accepted a new connection: it is paused."""
        self._accepted_at[broker_id] = self._environment.monotonic()

    def accepts(self, broker_id: BrokerId, within_s: float) -> bool:
        """True if a broker accepted a connection in the last `2 * within_s` seconds."""
        accepted_at = self._accepted_at.get(broker_id, float("-inf"))
        return self._environment.monotonic() - accepted_at < 2 * within_s
