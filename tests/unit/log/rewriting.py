"""Lanes with something to rewrite, and all that they hold."""

from tests.support.lanes import P0, P1, World, append, flush

from holdfast.identifiers import PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.log.rewriter import RewriteSettings

NOW = RewriteSettings(delete_delay_s=0)
IN_STEPS = RewriteSettings(delete_delay_s=0, step_entries_max=2)


async def all_bytes(lane: DataLane, partition: PartitionId = P0) -> bytes:
    """Everything from the log start on, read as a fetch does."""
    log = lane.log_of(partition)
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        cut = await lane.reader.read(log, offset, 300)
        assert cut.buffers, f"nothing at offset {offset} of {log.high_watermark}"
        found.extend(bytes(buffer) for buffer in cut.buffers)
        offset = cut.next_offset
    return b"".join(found)


async def written(world: World, objects: int = 6) -> DataLane:
    lane = await world.own()
    for i in range(objects):
        append(lane, P0, [b"a%d" % i, b"b%d" % i])
        append(lane, P1, [b"c%d" % i])
        append(lane, P0, [b"d%d" % i])
        await flush(lane)
    return lane
