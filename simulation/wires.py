"""The network between simulated brokers: which process listens where, and which links are cut.

Owns addresses, and loss and delay between brokers. A request runs inside the process that serves
it: it dies or pauses with that process. An address without a listener refuses at once, and a paused
process is silent. Must never run a handler in its caller's process.
"""

import asyncio
from typing import Any, Protocol, TypeVar, cast

from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable, NobodyListens
from holdfast.errors import HoldfastError
from holdfast.protocol.message import Message
from simulation.network import Network, settle

R = TypeVar("R", bound=Message)
Reply = asyncio.Future[Any]


class ListeningProcess(Protocol):
    """A process, as other brokers see it."""

    @property
    def is_listening(self) -> bool: ...

    async def answer_peer(self, message: Message, version: int) -> Any: ...


class Wires:
    """All links between brokers."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._listeners: dict[str, ListeningProcess] = {}
        self._at: dict[Address, str] = {}
        self._cut: dict[tuple[str, str], int] = {}
        """(from, to) -> the number of the last cut that includes this link."""
        self._cuts = 0
        self._waiting: dict[str, set[Reply]] = {}
        """The requests that a process has not answered yet."""

    def listen(self, address: Address, process: str, listener: ListeningProcess) -> None:
        self._at[address] = process
        self._listeners[process] = listener

    def process_at(self, address: Address) -> str | None:
        """Return the process that listens at an address now, or None."""
        process = self._at.get(address)
        if process is None or not self._listeners[process].is_listening:
            return None
        return process if self.network.loop.is_alive(process) else None

    def cut(self, ways: set[tuple[str, str]], seconds: float) -> None:
        """Lose everything that is sent on some links, (from, to), for a while."""
        self._cuts += 1
        self._cut |= dict.fromkeys(ways, self._cuts)
        self.network.loop.call_later(
            seconds, self._mend, ways, self._cuts, context=self.network.context
        )

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut

    def heal(self) -> None:
        self._cut.clear()

    def _mend(self, ways: set[tuple[str, str]], number: int) -> None:
        for way in ways:
            if self._cut.get(way) == number:
                del self._cut[way]

    def hang_up(self, process: str) -> None:
        """Fail all requests that wait for a process that died, as its machine would."""
        for reply in self._waiting.pop(process, ()):
            settle(reply, None, BrokerUnavailable(f"{process} is gone"))

    def send(
        self, sender: str, address: Address, message: Message, version: int, reply: Reply
    ) -> None:
        """Have a request arrive at an address, unless it is lost."""
        network = self.network
        process = self.process_at(address)
        if network.loses_request() or (process is not None and self.is_cut(sender, process)):
            return
        if process is None:
            network.deliver(reply, None, NobodyListens(f"nobody listens at {address}"))
            return
        self._waiting.setdefault(process, set()).add(reply)
        network.loop.spawn(process, self._serve(sender, process, message, version, reply))

    async def _serve(
        self, sender: str, process: str, message: Message, version: int, reply: Reply
    ) -> None:
        network = self.network
        answer, problem = None, None
        try:
            answer = await self._listeners[process].answer_peer(message, version)
        except HoldfastError as error:
            problem = BrokerUnavailable(f"{process} closed the connection: {error!r}")
        except Exception as error:
            network.crashes.append(f"{process}: a handler for brokers raised {error!r}")
            problem = BrokerUnavailable(f"{process} failed: {error!r}")
        self._waiting[process].discard(reply)
        if not self.is_cut(process, sender):
            network.send_back(reply, answer, problem)


class PeerWay:
    """One process's PeerNetwork, its way to the other brokers."""

    def __init__(self, wires: Wires, process: str) -> None:
        self._wires = wires
        self._process = process

    async def ask(
        self, address: Address, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R:
        """Send a request and return the answer; the message objects are passed, not their bytes."""
        del answer
        network = self._wires.network
        loop = network.loop
        reply: Reply = loop.create_future()
        loop.call_later(
            network.delay(),
            self._wires.send,
            self._process,
            address,
            request,
            version,
            reply,
            context=network.context,
        )
        late = BrokerUnavailable(f"{address} did not answer within {timeout_s} s")
        timer = loop.call_later(timeout_s, settle, reply, None, late, context=network.context)
        try:
            return cast(R, await reply)
        finally:
            timer.cancel()

    async def accepts(self, address: Address, *, timeout_s: float) -> bool:
        """True if a connection is accepted: the machine of a paused process still accepts them."""
        await asyncio.sleep(min(timeout_s, self._wires.network.delay()))
        process = self._wires.process_at(address)
        ways = {(self._process, process or ""), (process or "", self._process)}
        return process is not None and not any(self._wires.is_cut(*way) for way in ways)

    async def close(self) -> None:
        """Do nothing: no connection is open."""
