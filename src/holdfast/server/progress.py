"""The progress of a peer that has to send a request or to read a reply.

Owns how much counts as progress. Must never count a trickle of bytes as progress: such a peer would
hold memory forever.
"""

PROGRESS_BYTES = 64 * 1024
"""Fewer bytes than this since the last progress do not count."""


class Progress:
    """How far a peer was when it last made progress, and when that was."""

    __slots__ = ("_done_bytes", "_moved_at")

    def __init__(self, now: float) -> None:
        self.restart(now)

    def restart(self, now: float, done_bytes: int = 0) -> None:
        """Start again: there was nothing to do until now, or the delay was not the peer's fault."""
        self._done_bytes = done_bytes
        self._moved_at = now

    def still_seconds(self, now: float, done_bytes: int) -> float:
        """Return how long the peer has made no progress. Fewer bytes than before: a new task."""
        if not 0 <= done_bytes - self._done_bytes < PROGRESS_BYTES:
            self.restart(now, done_bytes)
        return now - self._moved_at
