"""Several brokers in virtual time on one store, which hear each other without sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tests.support.brokers import VALID_MS, Cluster
from tests.support.lanes import simulate as simulate_lanes

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import PEER_CLIENT_ID
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer as answer_of
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.settings import BrokerSettings
from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable, NobodyListens
from holdfast.environment import Environment
from holdfast.identifiers import BrokerId
from holdfast.lane.pending import GroupSettings
from holdfast.lane.spool.disk import Disk
from holdfast.protocol.message import Message
from holdfast.store.interface import Store

R = TypeVar("R", bound=Message)
SETTLED_S = 4.0
"""Brokers that started at once have shared the lanes by then."""
Hook = Callable[[Address, Address, Message], Awaitable[None]]
"""Told who asks whom, and what."""


class Wires:
    """Who listens where, and who is cut off."""

    def __init__(self) -> None:
        self.listening: dict[Address, Broker] = {}
        self.silent: set[Address] = set()
        """They keep what they are asked and answer nothing: the network drops everything."""
        self.standing: set[Address] = set()
        """As silent, but connections to them are accepted: their processes are stopped."""
        self.before: list[Hook] = []
        """Told of each message before it arrives."""
        self.after: list[Hook] = []
        """Told of each message before its answer arrives."""


class Direct:
    """One broker's way to the others."""

    def __init__(self, wires: Wires, own: Address) -> None:
        self._wires = wires
        self._own = own
        self.is_dead = False

    async def ask(
        self, address: Address, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R:
        del answer
        await asyncio.sleep(0.001)
        if self.is_dead:
            raise BrokerUnavailable("a dead process asks nobody")
        for hook in list(self._wires.before):
            await hook(self._own, address, request)
        other = self._wires.listening.get(address)
        if other is None:
            raise NobodyListens(f"nobody listens at {address}")
        if not {self._own, address}.isdisjoint(self._wires.silent | self._wires.standing):
            await asyncio.sleep(timeout_s)
            raise BrokerUnavailable(f"{address} did not answer")
        context = RequestContext(api_version=version, client_id=PEER_CLIENT_ID, client_host="peer")
        try:
            async with asyncio.timeout(timeout_s):
                answered = await answer_of(other, request, context)
                for hook in list(self._wires.after):
                    await hook(self._own, address, request)
                return answered
        except TimeoutError:
            raise BrokerUnavailable(f"{address} did not answer") from None

    async def accepts(self, address: Address, *, timeout_s: float) -> bool:
        del timeout_s
        await asyncio.sleep(0.001)
        is_cut = not {self._own, address}.isdisjoint(self._wires.silent)
        return address in self._wires.listening and not is_cut

    async def close(self) -> None:
        """Nothing is open."""


class Several(Cluster):
    """A world whose lanes are shared by brokers."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.wires = Wires()
        self._looked_after: dict[Broker, Maintenance] = {}

    def make(
        self,
        broker_id: int,
        *,
        store: Store | None = None,
        port: int = 9092,
        environment: Environment | None = None,
        disk: Disk | None = None,
        **settings: Any,
    ) -> Broker:
        """A broker that others can ask, and that has not started."""
        address = Address(f"broker-{broker_id}", port)
        settings.setdefault("group", GroupSettings(claim_valid_ms=VALID_MS))
        settings.setdefault("lanes", 4)
        broker = Broker(
            store=store or self.store,
            environment=environment or self.environment(),
            settings=BrokerSettings(
                broker_id=BrokerId(broker_id), host=address.host, port=address.port, **settings
            ),
            network=Direct(self.wires, address),
            disk=disk,
        )
        self.wires.listening[address] = broker
        return broker

    async def join(self, broker_id: int, **options: Any) -> Broker:
        """Start one more broker of the cluster."""
        broker = self.make(broker_id, **options)
        await broker.start()
        maintenance = self._looked_after[broker] = Maintenance(broker)
        maintenance.start()
        return broker

    async def leave(self, broker: Broker) -> None:
        """As SIGTERM."""
        await broker.drain(30)
        await self._looked_after.pop(broker).stop()
        self.hang_up(broker)
        await broker.stop(release=True)

    async def kill(self, broker: Broker) -> None:
        """As SIGKILL: nothing is released, nobody is told."""
        if isinstance(broker.network, Direct):
            broker.network.is_dead = True
        await self.stall(broker)

    async def stall(self, broker: Broker) -> None:
        """It hears nothing more and looks after nothing, but what it has begun goes on."""
        self.hang_up(broker)
        await self._looked_after.pop(broker).stop()
        if broker.membership is not None:
            await broker.membership.stop()

    async def stand_still(self, broker: Broker) -> None:
        """As SIGSTOP: it does nothing more, but its machine accepts connections for it."""
        if isinstance(broker.network, Direct):
            broker.network.is_dead = True
        self.wires.standing.add(self.address(broker))
        await self._looked_after.pop(broker).stop()
        if broker.membership is not None:
            await broker.membership.stop()

    def hang_up(self, broker: Broker) -> None:
        del self.wires.listening[Address(broker.settings.host, broker.settings.port)]

    def address(self, broker: Broker) -> Address:
        return Address(broker.settings.host, broker.settings.port)

    def silence(self, broker: Broker) -> None:
        """Cut a broker off from the others; it has the store still."""
        self.wires.silent.add(Address(broker.settings.host, broker.settings.port))

    def heal(self, broker: Broker) -> None:
        self.wires.silent.discard(Address(broker.settings.host, broker.settings.port))


def simulate(test: Callable[[Several], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    return simulate_lanes(test, seed, world_type=Several)
