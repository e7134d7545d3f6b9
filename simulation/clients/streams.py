"""Consume-transform-produce workers of one group, which move records between topics exactly once.

Owns how such a worker behaves. Its output and the offsets of its input are one transaction. After
an abort, or an end whose outcome is unknown, it continues from the committed offset. Workers pause
in the middle of a transaction and lose their partitions meanwhile. Must never look into a broker.
"""

from holdfast.verify.history import READ_COMMITTED
from holdfast.verify.vocabulary import Partition
from simulation.clients.classic_member import SimulatedClassicMember
from simulation.clients.client import SimulatedClients
from simulation.clients.transaction_requests import Offsets
from simulation.clients.transactional import Transactional


class StreamsWorker(SimulatedClassicMember):
    """One instance of the consume-transform-produce application."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        group: str,
        inputs: list[Partition],
        outputs: list[Partition],
        *,
        is_cooperative: bool,
        is_new: bool,
        timeout_ms: int,
    ) -> None:
        super().__init__(
            clients,
            name,
            group,
            inputs,
            instance=None,
            is_late=False,
            is_cooperative=is_cooperative,
        )
        self.isolation = READ_COMMITTED
        self._outputs = outputs
        self._producer = Transactional(
            clients, f"{name} producer", name, is_new=is_new, timeout_ms=timeout_ms
        )
        self._producer.is_fenced = True
        """True until the producer has initialised its transactional id."""

    def forget_all(self) -> None:
        super().forget_all()
        self._producer.is_fenced = True

    async def work(self) -> None:
        """Run one transaction: some input of each partition, its output, and the offsets."""
        if self._producer.is_fenced and not await self._producer.init():
            return
        await self.place()
        identity = (self.member_id, self.generation)
        readings = {
            partition: await self.read(partition, position)
            for partition, position in sorted(self.positions.items())
        }
        found = {p: reading for p, reading in readings.items() if reading.records}
        if not found:
            return
        producer = self._producer
        producer.begin()
        is_sent = True
        for partition, reading in found.items():
            await producer.maybe_stall()
            is_sent = is_sent and await self._transform(partition, reading.records)
        if is_sent:
            await producer.maybe_stall()
            after = {p: reading.next_offset for p, reading in found.items()}
            is_sent = await producer.commit(Offsets(self.group, after, *identity))
        await producer.maybe_stall(0.2)
        if self.chance(0.04):  # the worker crashes here and leaves its transaction open
            self.forget_all()
            return
        is_wanted = is_sent and self.chance(0.9)
        if await producer.end(committed=is_wanted) and is_wanted:
            for partition, reading in found.items():
                if partition in self.positions:
                    self.positions[partition] = reading.next_offset
            return
        # Continue from the committed offset, once the transaction is known to have ended.
        producer.is_fenced = True
        self.unplaced.update(self.positions)
        self.positions.clear()

    async def _transform(self, source: Partition, records: tuple[tuple[int, int], ...]) -> bool:
        clients = self.clients
        values = clients.new_values(len(records))
        for value, (offset, _) in zip(values, records, strict=True):
            clients.recorder.history.sources[value] = (source, offset)
        output = self._outputs[int(clients.chance.random() * len(self._outputs))]
        return await self._producer.send(output, values)
