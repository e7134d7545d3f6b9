"""Writing of reply buffers to a transport, without copying the large ones.

Owns the grouping of small buffers. Must never keep or change a buffer that it was given.
"""

import asyncio
from collections.abc import Sequence

from holdfast.protocol.primitives import Buffer

SMALL_BYTES = 16 * 1024
"""Below this a copy is cheaper than one more entry in a gathering write."""


def grouped(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return the same bytes in order, with neighbouring small buffers joined."""
    groups: list[Buffer] = []
    small: list[Buffer] = []
    for piece in buffers:
        if len(piece) < SMALL_BYTES:
            small.append(piece)
            continue
        if small:
            groups.append(small[0] if len(small) == 1 else b"".join(small))
            small = []
        groups.append(piece)
    if small:
        groups.append(small[0] if len(small) == 1 else b"".join(small))
    return groups


def write(transport: asyncio.Transport, buffers: Sequence[Buffer], *, gathers: bool) -> None:
    """Write all buffers. `gathers`: the transport's writelines does not join its buffers."""
    groups = grouped(buffers)
    if len(groups) == 1:
        transport.write(groups[0])
    elif gathers:
        transport.writelines(groups)
    else:
        for piece in groups:
            transport.write(piece)
