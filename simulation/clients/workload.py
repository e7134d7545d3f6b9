"""Clients of the simulation: producers, consumers, offset pollers, and clients that delete.

Owns how a client behaves: a Kafka producer's retries with the same sequence, its window of batches
in flight, a consumer's way from fetch to fetch. Must never look into a broker.
"""

import asyncio
import functools

from holdfast.records.record import encode_batch
from holdfast.verify.history import (
    CreateTopic,
    Deleted,
    DeleteRecords,
    DeleteTopic,
    Done,
    Fetch,
    Fetched,
    Listed,
    ListOffsets,
    Partition,
    Produce,
    Produced,
    Which,
)
from simulation.clients.client import (
    DEFINITE_ERRORS,
    FETCH_WAIT_MS,
    OUT_OF_ORDER,
    UNKNOWN_TOPIC,
    CallRefused,
    FetchedBatches,
    SimulatedClient,
    SimulatedClients,
    new_records,
)
from simulation.clients.locating import Sought
from simulation.clients.reading import Reading, read_batches


class SimulatedProducer(SimulatedClient):
    """A producer of one partition; idempotent if it has a producer id."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        partition: Partition,
        *,
        producer_id: int = -1,
        in_flight_max: int = 1,
    ) -> None:
        super().__init__(clients, name)
        self.partition = partition
        self.producer_id = producer_id
        self._epoch = 0 if producer_id >= 0 else -1
        self._sequence = 0
        self._in_flight_max = in_flight_max
        self._open: list[int] = []
        """The first record of each batch that is not settled yet, counted over this producer's
        records."""
        self._sent: list[int] = []
        self._retrying = 0
        self._moved = asyncio.Event()
        self._has_failed = False
        self._refused = 0
        self._refused_max = 12 if clients.process_at is not None else 0
        """How often the producer retries a topic that is being deleted when a broker does not know
        it: in a cluster, that broker may not know the topic yet."""

    async def run(self, batches: int, pause_s: float) -> None:
        """Send `batches` batches, each until it is acked or refused for good."""
        tasks: list[asyncio.Task[None]] = []
        for _ in range(batches):
            while self._must_wait():
                await self._wait_for_move()
            if self._has_failed or self.clients.is_over:
                break
            tasks.append(asyncio.create_task(self._deliver(*self._next_batch())))
            await self.pause(0.0, pause_s)
        await asyncio.gather(*tasks)

    def _must_wait(self) -> bool:
        """True if the window is full or a batch is being retried: Kafka's clients then send nothing
        new."""
        if not self._open or self._has_failed:
            return False
        window = len(self._sent) - self._sent.index(self._open[0])
        return window >= self._in_flight_max or self._retrying > 0

    def _next_batch(self) -> tuple[Produce, bytes, int]:
        clients = self.clients
        values = clients.new_values(1 + int(clients.chance.random() * 3))
        place = self._sequence
        sequence = place if self.producer_id >= 0 else -1
        self._sequence += len(values)
        self._open.append(place)
        self._sent.append(place)
        produce = Produce(self.partition, values, self.producer_id, self._epoch, sequence)
        return produce, self._encode(produce), place

    def _encode(self, produce: Produce) -> bytes:
        """Encode the batch with the current time as timestamps."""
        values, sequence = produce.values, produce.base_sequence
        batch = encode_batch(
            new_records(self.clients, values),
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        self.clients.remember(batch, self.producer_id, sequence, values)
        return batch

    async def _deliver(self, produce: Produce, batch: bytes, place: int) -> None:
        tries = 0
        try:
            while not self._has_failed:
                if await self._try(produce, batch) or self.producer_id < 0:
                    return
                tries += 1
                self._retrying += tries == 1
                await self.pause(0.01, min(2.0, 0.05 * 2**tries))
                # As Kafka's clients do: after a failure the lowest open sequence goes first.
                while self._open and self._open[0] != produce.base_sequence:
                    await self._wait_for_move()
                    if self._has_failed:
                        return
                if self.producer_id % 2:  # half of the producers encode again, as kafkajs does
                    batch = self._encode(produce)
        finally:
            self._retrying -= tries > 0
            self._open.remove(place)
            self._moved.set()

    async def _try(self, produce: Produce, batch: bytes) -> bool:
        broker = await self.guess(self.partition)
        port = self.clients.ports.port(broker)
        was_behind = self._is_behind(produce)
        call, answer = await self.call(
            self.partition, broker, produce, lambda: port.produce(self.partition, batch)
        )
        match answer:
            case Produced():
                self.ok(call, answer)
                self.clients.acked += 1
                return True
            case CallRefused(error) if error == UNKNOWN_TOPIC:
                # A broker that lost its lanes may not know a new topic; a deleted one stays gone.
                is_doomed = self.partition.rpartition("/")[0] in self.clients.doomed
                self._refused += is_doomed
                self._has_failed = is_doomed and self._refused > self._refused_max
                return self._has_failed
            case CallRefused(error) if error == OUT_OF_ORDER and was_behind:
                return False
            case CallRefused(error) if error in DEFINITE_ERRORS:
                self._has_failed = self.producer_id >= 0
                topic = self.partition.rpartition("/")[0]
                if topic not in self.clients.doomed and topic not in self.clients.lossy:
                    self.clients.stuck.append(f"{self.name} gave up: {error}")
                return True
            case _:
                return False

    def _is_behind(self, produce: Produce) -> bool:
        """True if an earlier batch is still open, so that a sequence error is to be expected."""
        return bool(self._open) and self._open[0] != produce.base_sequence

    async def _wait_for_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()


class Consumer(SimulatedClient):
    """A consumer that reads a partition from its start, fetch after fetch."""

    def __init__(self, clients: SimulatedClients, name: str, isolation: int = 0) -> None:
        super().__init__(clients, name)
        self.isolation = isolation
        self.wait_ms = FETCH_WAIT_MS

    async def run(self, partition: Partition, pause_s: float) -> None:
        position = 0
        while not self.clients.is_over:
            position = await self.step(partition, position)
            await self.pause(0.0, pause_s)

    async def read_all(self, partition: Partition, broker: str) -> None:
        """Read from the earliest offset to the latest, all from one broker."""
        ask = functools.partial(list_offsets, self, partition, broker=broker)
        latest = await ask(Which.LATEST, isolation=self.isolation) or 0
        position = await ask(Which.EARLIEST) or 0
        for _ in range(latest - position + 8):
            if position >= latest:
                return
            position = await self.step(partition, position, broker)

    async def step(self, partition: Partition, position: int, broker: str = "") -> int:
        """Fetch once and return the offset at which the next fetch begins."""
        return (await self.read(partition, position, broker)).next_offset

    async def read(self, partition: Partition, position: int, broker: str = "") -> Reading:
        """Fetch once and return what this client reads in the answer."""
        broker = broker or await self.guess(partition)
        port = self.clients.ports.port(broker)
        call, answer = await self.call(
            partition,
            broker,
            Fetch(partition, position, self.isolation),
            lambda: port.fetch(partition, position, self.isolation, self.wait_ms),
        )
        match answer:
            case FetchedBatches():
                reading = read_batches(answer.batches, position, answer.aborted)
                self.ok(
                    call,
                    Fetched(
                        reading.records,
                        answer.high_watermark,
                        answer.log_start,
                        reading.next_offset,
                        answer.stable,
                    ),
                )
                return reading
            case CallRefused("OFFSET_OUT_OF_RANGE"):
                earliest = await list_offsets(self, partition, Which.EARLIEST)
                return Reading((), position if earliest is None else earliest)
            case _:
                return Reading((), position)


class Poller(SimulatedClient):
    """A client that keeps asking for the ends of a partition, sometimes at a former leader."""

    async def run(self, partition: Partition, pause_s: float) -> None:
        while not self.clients.is_over:
            which = Which.LATEST if self.clients.chance.random() < 0.8 else Which.EARLIEST
            await list_offsets(self, partition, which, strays=0.3)
            await self.pause(0.0, pause_s)


class Deleter(SimulatedClient):
    """A client that sometimes moves the log start of a partition up."""

    async def run(self, partition: Partition, pause_s: float) -> None:
        while not self.clients.is_over:
            await self.pause(0.0, pause_s)
            latest = await list_offsets(self, partition, Which.LATEST)
            if not latest:
                continue
            before = int(latest * self.clients.chance.random())
            broker = await self.guess(partition)
            port = self.clients.ports.port(broker)
            call, answer = await self.call(
                partition,
                broker,
                DeleteRecords(partition, before),
                lambda port=port, before=before: port.delete_records(partition, before),
            )
            if isinstance(answer, Deleted):
                self.ok(call, answer)


class Administrator(SimulatedClient):
    """A client that creates topics, with retries until they exist, and deletes them."""

    async def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        while not self.clients.is_over:
            broker = await self.guess(topic, Sought.CONTROLLER)
            port = self.clients.ports.port(broker)
            call, answer = await self.call(
                topic,
                broker,
                CreateTopic(topic, partitions),
                lambda port=port: port.create_topic(topic, partitions, configs),
            )
            if isinstance(answer, Done):
                self.ok(call, answer)
                return
            if isinstance(answer, CallRefused) and answer.error == "TOPIC_ALREADY_EXISTS":
                return
            self.clients.uncertain.add(topic)
            await self.pause(0.02, 0.3)

    async def delete(self, topic: str, after_s: float) -> None:
        """Delete a topic, unless the outcome of a request to create it is unknown.

        A broker that was paused may carry out that request after the deletion, and so create
        another topic of the same name.
        """
        await asyncio.sleep(after_s)
        if topic in self.clients.uncertain:
            return
        self.clients.doomed.add(topic)
        broker = await self.guess(topic, Sought.CONTROLLER)
        port = self.clients.ports.port(broker)
        call, answer = await self.call(
            topic, broker, DeleteTopic(topic), lambda: port.delete_topic(topic)
        )
        if isinstance(answer, Done):
            self.ok(call, answer)


async def list_offsets(
    client: SimulatedClient,
    partition: Partition,
    which: Which,
    *,
    strays: float = 0.0,
    broker: str = "",
    isolation: int = 0,
) -> int | None:
    """Ask one broker for an end of the log; return None if it had no answer."""
    clients = client.clients
    broker = broker or await client.guess(partition)
    if clients.chance.random() < strays:
        broker = client.stray(partition) or broker
    port = clients.ports.port(broker)
    call, answer = await client.call(
        partition,
        broker,
        ListOffsets(partition, which, isolation),
        lambda: port.list_offsets(partition, which, isolation),
    )
    if isinstance(answer, Listed):
        client.ok(call, answer)
        return answer.offset
    return None
