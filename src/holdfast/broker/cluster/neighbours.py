"""The other brokers that are alive, by their own reports, those passed on, and those in the store.

Owns pings, the exchange of reports in the store, and the judgement whether silence may be believed.
Nothing here is needed for safety: it only decides which brokers try to own a lane. Must never let a
silent broker keep others from being heard.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.broker.cluster.peer_network import PeerNetwork
from holdfast.broker.cluster.presence import Presence, Sighting
from holdfast.broker.cluster.reachability import Reachability
from holdfast.broker.cluster.reports import decode_heard, decoded, encoded
from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable, NobodyListens
from holdfast.cluster.peers import HeardPeer, PeerReport, Peers
from holdfast.cluster.state import ControlState
from holdfast.environment import Environment
from holdfast.identifiers import BrokerId
from holdfast.protocol.messages.peer_ping import PeerPingRequest, PeerPingResponse

log = logging.getLogger("holdfast.cluster")

PING_TIMEOUT_S = 2.0
PING_WAIT_S = 0.2
ACCEPT_TIMEOUT_S = 1.0
STALLED_S = 1.5
"""A broker whose own round of pings comes this late did not run. It may have missed reports, and
must listen again before it judges the silence of others."""
MISSED_S = 2.0
"""A broker that was not heard for this long is looked for in the store."""
EXCHANGE_ROUND_S = 0.25
SHOW_S = 1.5
"""How long a broker that counts as silent has to show in the store that it is alive."""
MINORITY_PATIENCE_S = 10.0
"""How long this broker waits for a sign of life if most of the others are silent. It is then more
likely that this broker is cut off."""
NEVER = float("-inf")


class OwnBroker(Protocol):
    """The broker whose neighbours these are."""

    @property
    def state(self) -> ControlState: ...

    def report(self) -> PeerReport: ...

    def replaced(self, host: str, port: int) -> None:
        """End this broker: another process with its id has started."""
        ...


class Neighbours:
    """One broker's knowledge of the others, and the ways to get it."""

    def __init__(
        self,
        own: OwnBroker,
        network: PeerNetwork,
        environment: Environment,
        presence: Presence,
        *,
        when_heard: Callable[[PeerReport], None],
    ) -> None:
        self.peers = Peers()
        self.reachability = Reachability(environment)
        self.awake_since = NEVER
        """When this broker last ran again after a pause."""
        self._own = own
        self._network = network
        self._environment = environment
        self._presence = presence
        self._when_heard = when_heard
        self._started_at = self._round_at = environment.monotonic()
        self._settled: set[BrokerId] = set()
        """Brokers that were heard, or are known to be gone, since this one has started."""
        self._gone: set[BrokerId] = set()
        """Brokers at whose address no process listens now."""
        self._ended: set[BrokerId] = set()
        """The brokers in `_gone` that had been reached at that address before."""
        self._sign_of_life_at = environment.monotonic()
        self._pinging: dict[BrokerId, asyncio.Task[None]] = {}
        self._exchanging: asyncio.Task[None] | None = None

    def now(self) -> float:
        return self._environment.monotonic()

    def heard(self, report: PeerReport) -> None:
        """Take in a broker's own report."""
        me = self._own.report()
        if report.broker_id == me.broker_id:
            if report.incarnation > me.incarnation:
                self._own.replaced(report.host, report.port)
            return
        self._is_there(report.broker_id)
        self.peers.heard(report, self.now())
        self._when_heard(report)

    def note_own(self) -> None:
        self.peers.heard(self._own.report(), self.now())

    def sign_of_life(self) -> None:
        """Note that another broker has done something."""
        self._sign_of_life_at = self.now()

    def _is_there(self, broker_id: BrokerId) -> None:
        self._settled.add(broker_id)
        self._gone.discard(broker_id)
        self._ended.discard(broker_id)
        self.sign_of_life()

    def to_pass_on(self) -> list[HeardPeer]:
        """Return the recent reports of other brokers, for a third one that may not reach them."""
        me = self._own.report().broker_id
        known = self.peers.to_pass_on(self.now())
        return [peer for peer in known if peer.report.broker_id != me]

    def _heard_of(self, peers: Sequence[HeardPeer], asked_at: float) -> None:
        me = self._own.report().broker_id
        for peer in peers:
            broker_id = peer.report.broker_id
            if broker_id != me and self.peers.heard_of(peer, asked_at, self.now()):
                self._is_there(broker_id)

    async def stop(self) -> None:
        tasks = list(self._pinging.values())
        tasks += [self._exchanging] if self._exchanging is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._presence.stop()

    def look_into_the_store(self) -> None:
        """Exchange reports in the store from now on, whenever brokers are not heard."""
        if self._exchanging is None:
            self._exchanging = asyncio.get_running_loop().create_task(self._exchange())

    def begin_rounds(self) -> None:
        self._round_at = self.now()

    def notice_stall(self) -> None:
        """Find out if this broker was paused. Called in each round, before its end is judged."""
        now = self.now()
        if now - self._round_at > STALLED_S:
            log.warning("broker_was_paused seconds=%.1f", now - self._round_at)
            self.awake_since = now
        self._round_at = now

    async def ping_all(self) -> None:
        loop = asyncio.get_running_loop()
        for broker_id, address in self._others().items():
            if broker_id not in self._pinging:
                self._pinging[broker_id] = loop.create_task(self._ping(broker_id, address))
        if self._pinging:
            # A silent broker must not keep the others from being heard.
            await asyncio.wait(self._pinging.values(), timeout=PING_WAIT_S)

    def _others(self) -> dict[BrokerId, Address]:
        """Return the addresses of all registered brokers but this one."""
        me = self._own.report().broker_id
        return {
            BrokerId(known.broker_id): Address(known.host, known.port)
            for known in self._own.state.brokers.values()
            if known.broker_id != me
        }

    async def _ping(self, broker_id: BrokerId, address: Address) -> None:
        request = PeerPingRequest(
            cluster_id=self._own.state.cluster_id, report=encoded(self._own.report())
        )
        asked_at = self.now()
        try:
            answer = await self._network.ask(
                address, request, PeerPingResponse, version=0, timeout_s=PING_TIMEOUT_S
            )
        except NobodyListens as error:
            self._refused(broker_id, address, error)
        except BrokerUnavailable as error:
            # Silent for long enough, the broker counts as gone, unless others hear it.
            if await self._network.accepts(address, timeout_s=ACCEPT_TIMEOUT_S):
                self.reachability.accepted(broker_id)
            self._not_reached(broker_id, address, error)
        else:
            self._answered(broker_id, address, answer, asked_at)
        finally:
            del self._pinging[broker_id]

    def _answered(
        self, broker_id: BrokerId, address: Address, answer: PeerPingResponse, asked_at: float
    ) -> None:
        report = decoded(answer.report)
        if report.broker_id != broker_id:
            error = BrokerUnavailable(f"broker {report.broker_id} answers at {address}")
            self._not_reached(broker_id, address, error)
            return
        self.reachability.answered(broker_id, address)
        if answer.error_code == 0:
            self.heard(report)
            self._heard_of(decode_heard(answer.heard), asked_at)

    def _not_reached(self, broker_id: BrokerId, address: Address, error: BrokerUnavailable) -> None:
        if self._is_alive(broker_id):
            self.reachability.failed(self._own.report().broker_id, broker_id, address, error)
        else:
            self.reachability.silent(broker_id)

    def _is_alive(self, broker_id: BrokerId) -> bool:
        now = self.now()
        return broker_id in self.peers.alive(now) or self.peers.is_shown(broker_id, now)

    def _refused(self, broker_id: BrokerId, address: Address, error: BrokerUnavailable) -> None:
        """Handle a refused connection: no process listens at a broker's address.

        The broker is gone if it was reached there before. If it never was, and is alive all the
        same, its address is wrong.
        """
        self._settled.add(broker_id)
        was_reached = self.reachability.was_reached(broker_id, address)
        if self._is_alive(broker_id) and not was_reached:
            self._not_reached(broker_id, address, error)
            return
        self.reachability.forget(broker_id)
        self._gone.add(broker_id)
        if was_reached:
            self._ended.add(broker_id)
        self.peers.is_gone(broker_id, self.now())

    async def _exchange(self) -> None:
        """Leave reports in the store for brokers that are not heard, and look for theirs.

        This runs apart from the pings: a slow store must not keep this broker silent.
        """
        while True:
            try:
                await self._exchange_where_due()
            except Exception:
                log.exception("presence_failed")
            await asyncio.sleep(EXCHANGE_ROUND_S)

    async def _exchange_where_due(self) -> None:
        self._presence.miss([each for each in self._others() if self._is_missed(each)])
        own = self._own.report()
        if not self._presence.is_due(own):
            return
        found = await self._presence.exchange(own, self.peers.heard_of_late(self.now()))
        if found is not None:
            for sighting in found.news:
                self._sighted(sighting)
            self.peers.show_only(found.present)

    def _is_missed(self, broker_id: BrokerId) -> bool:
        heard_at = max(self.peers.heard_at(broker_id), self._started_at)
        return broker_id in self._gone or self.now() - heard_at >= MISSED_S

    def _sighted(self, sighting: Sighting) -> None:
        report = sighting.report
        if sighting.is_first and report.broker_id in self._ended:
            return  # it may be older than that broker's end; the next one shows life
        self._is_there(report.broker_id)
        self.peers.shown(report, self.now())
        self._when_heard(report)

    def is_settled(self) -> bool:
        """True if all registered brokers have been heard, or were waited for long enough."""
        if self.now() - self._started_at > self.peers.silence_s:
            return True
        return all(each in self._settled for each in self._others())

    def is_cut_off(self, alive: Mapping[BrokerId, PeerReport]) -> bool:
        """True if this broker itself may be the one that does not hear the others.

        It may have been paused. Or other brokers do not even accept a connection, and had no time
        to show in the store that they are alive.
        """
        silent = [each for each in self._others() if each not in alive and each not in self._gone]
        now, since = self.now(), self.peers.silence_s
        if silent and now - self.awake_since < since:
            return True
        unknown = [each for each in self._others() if each not in alive and each not in self._ended]
        if unknown and self._presence.looked_at < self._started_at:
            return True
        away = [each for each in silent if not self.reachability.accepts(each, since)]
        if not away:
            return False
        is_in_minority = len(alive) < len(away)
        if is_in_minority and now - self._sign_of_life_at < MINORITY_PATIENCE_S:
            return True
        silent_at = max(self.peers.heard_at(each) + since for each in away)
        return self._presence.looked_at < silent_at + SHOW_S
