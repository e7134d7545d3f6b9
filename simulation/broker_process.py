"""One simulated broker process: the real broker and its maintenance, run as `holdfast serve` does.

Owns the life of the process: it starts, serves, and ends when it is told to or loses its lanes.
Also owns the way from a client's request to the broker's own handlers. Must never answer by itself.
"""

import asyncio
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import PEER_CLIENT_ID, PeerNetwork
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.endpoints import BETWEEN_BROKERS
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.settings import BrokerSettings
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, RetryError, StopError
from holdfast.lane.entry import Claim
from holdfast.lane.liveness import ProcessIdentity
from holdfast.lane.spool.disk import Disk
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages import (
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    list_offsets,
    produce,
)
from holdfast.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast.protocol.messages.offset_fetch import OffsetFetchRequest
from holdfast.store.interface import Store
from holdfast.verify.history import Deleted, Done, Listed, Partition, Produced, Which
from simulation.clients.client import FETCH_WAIT_MS, CallRefused, FetchedBatches
from simulation.invariants import watch
from simulation.virtual_loop import VirtualLoop

PRODUCE_VERSION = 11
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 9
ADMIN_VERSION = 2
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 5
FETCH_BYTES_MAX = 400
REQUEST_TIMEOUT_MS = 3_000
DRAIN_SECONDS_MAX = 30.0
NONE: frozenset[int] = frozenset()
TIMESTAMPS = {Which.LATEST: -1, Which.EARLIEST: -2}


class NotUp(RetryError):
    """The process does not serve yet, or no longer: its port is closed."""


class Machines:
    """The processes that ran on each machine, as /proc would show them there."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.processes: dict[tuple[str, int], str] = {}


class SimulatedLiveness:
    """A process's view of the other processes on its own machine; it sees no others."""

    def __init__(self, machines: Machines, machine: str, process: str, number: int) -> None:
        self._machines = machines
        self._machine = machine
        self._number = number
        machines.processes[machine, number] = process

    @property
    def machine(self) -> str:
        return self._machine

    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self._machine, self._number, 0)

    def has_ended(self, claim: Claim) -> bool:
        process = self._machines.processes.get((claim.machine, claim.process))
        here = claim.machine == self._machine
        return here and process is not None and not self._machines.loop.is_alive(process)


class BrokerProcess:
    """One broker process, from its start to its end."""

    broker_type: type[Broker] = Broker

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        settings: BrokerSettings,
        liveness: SimulatedLiveness,
        disk: Disk | None = None,
        peers: PeerNetwork | None = None,
    ) -> None:
        self.store = store
        self.disk = disk
        self.environment = environment
        self.settings = settings
        self.liveness = liveness
        self.peers = peers
        self.crashes: list[str] = []
        self.is_ready = False
        self.has_ended = False
        self.is_listening = False
        """True if other brokers reach the process, which is the case before it is ready for
        clients."""
        self._broker: Broker | None = None
        self._stopping = asyncio.Event()
        self._opened = asyncio.Event()

    # Its life, as in `holdfast serve`.

    def make_broker(self) -> Broker:
        broker = self.broker_type(
            store=self.store,
            environment=self.environment,
            settings=self.settings,
            liveness=self.liveness,
            disk=self.disk,
            network=self.peers,
        )
        watch(broker, self.crashes.append)
        return broker

    def make_maintenance(self, broker: Broker) -> Maintenance:
        return Maintenance(broker)

    async def run(self) -> None:
        """Serve until told to stop, or until another broker has the lanes."""
        try:
            await self._serve()
        except StopError as error:
            self.crashes.append(f"broker {self.settings.broker_id}: {error!r}")
        except HoldfastError:
            pass  # it could not start, or lost a lane meanwhile: the process ends
        finally:
            self.is_ready = self.is_listening = False
            self.has_ended = True

    async def _serve(self) -> None:
        broker = self._broker = self.make_broker()
        self.is_listening = True
        starting = asyncio.ensure_future(broker.start())
        await self._first(starting)
        if not starting.done():
            starting.cancel()
            return
        starting.result()
        maintenance = self.make_maintenance(broker)
        maintenance.start()
        self.is_ready = True
        self._opened.set()
        await self._first(broker.lost)
        lost = broker.lost.result() if broker.lost.done() else None
        if lost is None:
            await broker.drain(DRAIN_SECONDS_MAX)
        self.is_ready = self.is_listening = False
        if isinstance(lost, StopError):
            self.crashes.append(f"broker {self.settings.broker_id}: {lost!r}")
        await maintenance.stop()
        await broker.stop(release=lost is None)

    async def _first(self, future: "asyncio.Future[Any]") -> None:
        waiter = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((future, waiter), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()

    @property
    def awaits_disk(self) -> bool:
        """True if some of its partitions wait for another machine's disk."""
        lanes = self._broker.lanes.values() if self._broker is not None else ()
        return self.is_ready and any(lane.awaited for lane in lanes)

    def stop(self) -> None:
        """Ask the process to stop, as SIGTERM does."""
        self._stopping.set()

    def owned(self) -> frozenset[int]:
        """Return the lanes that the process serves as their owner."""
        return frozenset(self._broker.report().lanes) if self._broker and self.is_ready else NONE

    # Requests of other brokers.

    async def answer_peer(self, message: Message, version: int) -> Any:
        if self._broker is None:
            raise NotUp("connection refused")
        if ApiKey(message.API_KEY) not in BETWEEN_BROKERS:
            await self._opened.wait()
        context = RequestContext(api_version=version, client_id=PEER_CLIENT_ID, client_host="peer")
        return await answer(self._broker, message, context)

    # Requests of clients.

    async def ask(self, message: Message, version: int) -> Any:
        if self._broker is None or not self.is_ready:
            raise NotUp("connection refused")
        context = RequestContext(
            api_version=version, client_id=_client_of(message), client_host="client"
        )
        return await answer(self._broker, message, context)

    async def produce(self, partition: Partition, batch: bytes) -> Produced | CallRefused:
        topic, number = _split(partition)
        data = produce.PartitionProduceData(index=number, records=memoryview(bytearray(batch)))
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
        )
        response: produce.ProduceResponse = await self.ask(request, PRODUCE_VERSION)
        told = response.responses[0].partition_responses[0]
        return _refusal(told.error_code) or Produced(told.base_offset, told.log_start_offset)

    async def fetch(
        self,
        partition: Partition,
        offset: int,
        isolation: int = 0,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> FetchedBatches | CallRefused:
        topic, number = _split(partition)
        wanted = fetch.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
        )
        request = fetch.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=isolation,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )
        response: fetch.FetchResponse = await self.ask(request, FETCH_VERSION)
        told = response.responses[0].partitions[0]
        return _refusal(told.error_code) or FetchedBatches(
            b"".join(told.records or ()),
            told.high_watermark,
            told.log_start_offset,
            told.last_stable_offset,
            tuple((a.first_offset, a.producer_id) for a in told.aborted_transactions or ()),
        )

    async def list_offsets(
        self, partition: Partition, which: Which, isolation: int = 0
    ) -> Listed | CallRefused:
        topic, number = _split(partition)
        wanted = list_offsets.ListOffsetsPartition(
            partition_index=number, timestamp=TIMESTAMPS[which]
        )
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        response: list_offsets.ListOffsetsResponse = await self.ask(request, LIST_OFFSETS_VERSION)
        told = response.topics[0].partitions[0]
        return _refusal(told.error_code) or Listed(told.offset)

    async def delete_records(self, partition: Partition, before: int) -> Deleted | CallRefused:
        topic, number = _split(partition)
        wanted = delete_records.DeleteRecordsPartition(partition_index=number, offset=before)
        request = delete_records.DeleteRecordsRequest(
            timeout_ms=REQUEST_TIMEOUT_MS,
            topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])],
        )
        response: delete_records.DeleteRecordsResponse = await self.ask(request, ADMIN_VERSION)
        told = response.topics[0].partitions[0]
        return _refusal(told.error_code) or Deleted(told.low_watermark)

    async def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str]
    ) -> Done | CallRefused:
        wanted = create_topics.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=name, value=value)
                for name, value in configs.items()
            ],
        )
        request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        response: create_topics.CreateTopicsResponse = await self.ask(
            request, CREATE_TOPICS_VERSION
        )
        return _refusal(response.topics[0].error_code) or Done()

    async def delete_topic(self, topic: str) -> Done | CallRefused:
        request = delete_topics.DeleteTopicsRequest(
            topic_names=[topic], timeout_ms=REQUEST_TIMEOUT_MS
        )
        response: delete_topics.DeleteTopicsResponse = await self.ask(
            request, DELETE_TOPICS_VERSION
        )
        return _refusal(response.responses[0].error_code) or Done()


def _client_of(message: Message) -> str:
    """Return the client id under which a message reaches the broker.

    Offset commits and fetches come as if from another broker, so that they are not forwarded to
    one. The history names the broker that was asked, and the checkers judge if it was allowed to
    answer.
    """
    is_about_offsets = isinstance(message, OffsetCommitRequest | OffsetFetchRequest)
    return PEER_CLIENT_ID if is_about_offsets else "simulated"


def _split(partition: Partition) -> tuple[str, int]:
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def _refusal(code: int) -> CallRefused | None:
    return CallRefused(ErrorCode(code).name) if code else None
