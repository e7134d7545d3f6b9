"""Divides the stretches of partitions into tasks of about equal bytes.

Pure. Cuts only between stretches, that is, between record batches. Owns the joining of stretches
that are side by side in one object, up to the size of one read.
"""

from collections.abc import Sequence

from holdfast.log.stored_batches import Stretch

TASK_BYTES_MIN = 4 * 1024 * 1024
"""With fewer bytes, starting a task costs more than its read."""
TASK_BYTES_MAX = 512 * 1024 * 1024
"""The limit of a task, because one that fails is read again from its start."""
READ_BYTES = 4 * 1024 * 1024
"""The size of one read of an object, if that much is side by side."""


def task_bytes(total_bytes: int, min_partitions: int) -> int:
    """Return how large a task may become, so that there are about `min_partitions` of them."""
    wanted = -(-total_bytes // max(1, min_partitions))
    return max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, wanted))


def split(stretches: Sequence[Stretch], bytes_max: int) -> list[list[Stretch]]:
    """Cut one partition's stretches into pieces of equal size, each about bytes_max at most."""
    total = sum(stretch.size_bytes for stretch in stretches)
    pieces = max(1, round(total / bytes_max))
    cut: list[list[Stretch]] = []
    taken = 0
    current = -1
    for stretch in stretches:
        # The middle of a stretch decides, so that a cut is off by half a stretch at most.
        piece = min(pieces - 1, (taken + stretch.size_bytes // 2) * pieces // max(1, total))
        if piece != current:
            cut.append([])
            current = piece
        cut[-1].append(stretch)
        taken += stretch.size_bytes
    return cut


def joined(stretches: Sequence[Stretch], bytes_max: int = READ_BYTES) -> list[Stretch]:
    """Join stretches that are side by side in one object, up to a size."""
    found: list[Stretch] = []
    for stretch in stretches:
        last = found[-1] if found else None
        if (
            last is not None
            and last.key == stretch.key
            and last.is_in_payload == stretch.is_in_payload
            and last.position + last.size_bytes == stretch.position
            and last.last_offset + 1 == stretch.base_offset
            and last.size_bytes + stretch.size_bytes <= bytes_max
        ):
            found[-1] = last._replace(
                size_bytes=last.size_bytes + stretch.size_bytes,
                last_offset=stretch.last_offset,
                max_timestamp=max(last.max_timestamp, stretch.max_timestamp),
            )
        else:
            found.append(stretch)
    return found
