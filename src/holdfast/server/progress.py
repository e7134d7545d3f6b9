"""Whether a peer that has to send or to read does so.

Owns how much counts as progress. Must never take drops for it: they would hold memory for ever.
"""

PROGRESS_BYTES = 64 * 1024
"""Fewer bytes than this since the last progress are none."""


class Progress:
    """How far a peer was when it last had made progress, and when that was."""

    __slots__ = ("_done_bytes", "_moved_at")

    def __init__(self, now: float) -> None:
        self.restart(now)

    def restart(self, now: float, done_bytes: int = 0) -> None:
        """Begin again: there was nothing to do until now, or it was no fault of the peer."""
        self._done_bytes = done_bytes
        self._moved_at = now

    def still_seconds(self, now: float, done_bytes: int) -> float:
        """For how long the peer has made no progress; fewer bytes than before are a new task."""
        if not 0 <= done_bytes - self._done_bytes < PROGRESS_BYTES:
            self.restart(now, done_bytes)
        return now - self._moved_at
