"""The log lines about ended transactions whose markers could not be written yet.

Logs once when this begins, and once when the last marker is written or left to the next owner. Must
never log each try: a participant that is away gets two tries a second, for each transaction.
"""

import logging

log = logging.getLogger("holdfast.broker")


class UnwrittenMarkers:
    """The ended transactions of one coordinator's lane that wait for markers. Time is handed in."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self._waiting: set[str] = set()
        self._since = 0.0
        self._transactions = 0
        self._tries = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def failed(self, transactional_id: str, error: Exception, now: float) -> None:
        """Count a failed try to write the markers of a transaction."""
        if not self._waiting:
            self._since, self._transactions, self._tries = now, 0, 0
            log.warning(
                "markers_not_written lane=%d transactional_id=%s error=%s: the broker tries again"
                " until the markers are written. Other transactions that wait too are only counted",
                self._lane,
                transactional_id,
                error,
            )
        self._tries += 1
        if transactional_id not in self._waiting:
            self._waiting.add(transactional_id)
            self._transactions += 1

    def over(self, transactional_id: str, now: float, *, is_written: bool) -> None:
        """Note that a transaction's markers are written, or no longer ours to write."""
        if transactional_id not in self._waiting:
            return
        self._waiting.discard(transactional_id)
        if not self._waiting:
            log.warning(
                "%s lane=%d seconds=%.1f transactions=%d tries=%d",
                "markers_written" if is_written else "markers_left_to_the_next_owner",
                self._lane,
                now - self._since,
                self._transactions,
                self._tries,
            )
