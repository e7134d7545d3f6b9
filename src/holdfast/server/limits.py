"""The limits of the network layer, with Kafka's defaults if Kafka has the setting.

Owns the numbers only.
"""

from dataclasses import dataclass

from holdfast.protocol.frames import FRAME_BYTES_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much a peer, and all peers together, may ask of this process."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Kafka's socket.request.max.bytes."""
    unanswered_requests_max: int = 32
    """Requests of one connection that are dispatched but not answered."""
    unanswered_bytes_max: int = 128 * MIB
    """Bytes of such requests of one connection. One request is always accepted."""
    queued_bytes_max: int = 512 * MIB
    """Kafka's queued.max.request.bytes: request bytes in memory over all connections."""
    write_buffer_bytes_max: int = 64 * 1024
    """Written reply bytes that a peer may leave unread before its next request must wait. Up to
    this many are not counted in `reply_bytes_max`."""
    reply_bytes_max: int = 320 * MIB
    """Reply bytes over all connections that are being read from the log or are not sent yet."""
    connections_max: int = 10_000
    """Kafka's max.connections."""
    idle_seconds_max: float = 600.0
    """Kafka's connections.max.idle.ms, in seconds."""
    stalled_seconds_max: float = 5.0
    """How long a half-received frame may make no progress while others wait for memory, and how
    long a reply may make none while memory for replies is scarce."""
