"""Reads all records of a lane with nothing but the store."""

from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.identifiers import LaneId, PartitionId
from holdfast.lane.recovery import recover
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.reader import LogReader
from holdfast.log.state import LogStateKind
from holdfast.store.interface import Store
from holdfast.verify.history import ColdLog
from simulation.clients.reading import read_batches


async def read_cold(
    store: Store, environment: Environment, lane: LaneId
) -> dict[PartitionId, ColdLog]:
    """Return the logs of a lane, by partition."""
    recovered = await recover(store, environment, lane, LogStateKind())
    reader = LogReader(
        store=store, environment=environment, lane=lane, tail=Tail(0), cache=ReadCache(0)
    )
    found: dict[PartitionId, ColdLog] = {}
    for partition, log in recovered.state.partitions.items():
        records: list[tuple[int, int]] = []
        position = log.log_start_offset
        while position < log.high_watermark:
            try:
                cut = await reader.read(log, position, 1 << 20)
            except HoldfastError:
                position += 1  # what cannot be read counts as missing; checkers report losses
                continue
            batches = b"".join(cut.buffers)
            records += read_batches(batches, position).records
            position = max(cut.next_offset, position + 1)
        found[partition] = ColdLog(tuple(records), log.log_start_offset, log.high_watermark)
    return found
