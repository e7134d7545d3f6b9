"""The bounds of the network edge, with Kafka's defaults where Kafka has the setting.

Owns the numbers only.
"""

from dataclasses import dataclass

from holdfast.protocol.frames import FRAME_BYTES_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a peer, and all peers together, may ask of this process."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """socket.request.max.bytes"""
    unanswered_requests_max: int = 32
    """Requests of one connection that are dispatched and not answered."""
    unanswered_bytes_max: int = 128 * MIB
    """The same in bytes; one request is always taken."""
    queued_bytes_max: int = 512 * MIB
    """queued.max.request.bytes: request bytes in memory over all connections."""
    write_buffer_bytes_max: int = 64 * 1024
    """Reply bytes that a peer has not read before its next request is left waiting. Up to these,
    they are not counted."""
    reply_bytes_max: int = 320 * MIB
    """Reply bytes over all connections that are being read or not yet sent."""
    connections_max: int = 10_000
    """max.connections"""
    idle_seconds_max: float = 600.0
    """connections.max.idle.ms"""
    stalled_seconds_max: float = 5.0
    """How long a half-received frame may stand still while others wait for memory, and a reply
    while memory for replies is scarce."""
