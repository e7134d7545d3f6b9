"""Logging of named events with fields, in the text and as attributes of the log record.

Owns the limit of the lines that peers can cause. Must never drop an event without counting it.
"""

import logging
from dataclasses import dataclass

LOG = logging.getLogger("holdfast.server")
LINES_MAX = 20
WINDOW_SECONDS = 10.0


def event(level: int, name: str, **fields: object) -> None:
    """Log `name key=value ...`. Log handlers find the same in record.event and record.fields."""
    if LOG.isEnabledFor(level):
        shown = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
        LOG.log(level, "%s %s", name, shown, extra={"event": name, "fields": fields})


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 300 else text[:300] + "..."


@dataclass(slots=True)
class _Window:
    level: int
    began_at: float
    lines: int = 0
    left_out: int = 0


class LimitedEvents:
    """Events that a peer can cause at will: a few lines of each name in a window, then a count."""

    def __init__(self, lines_max: int = LINES_MAX, window_seconds: float = WINDOW_SECONDS) -> None:
        self._lines_max = lines_max
        self._window_seconds = window_seconds
        self._windows: dict[str, _Window] = {}

    def event(self, now: float, level: int, name: str, **fields: object) -> None:
        """Log the event, or only count it if enough of its name were logged in this window."""
        self.tell(now)
        window = self._windows.setdefault(name, _Window(level, now))
        if window.lines < self._lines_max:
            window.lines += 1
            event(level, name, **fields)
        else:
            window.left_out += 1

    def tell(self, now: float) -> None:
        """Log how many events were left out in the windows that have ended."""
        for name, window in list(self._windows.items()):
            if now - window.began_at >= self._window_seconds:
                del self._windows[name]
                if window.left_out:
                    event(
                        window.level,
                        "events_left_out",
                        name_of_event=name,
                        count=window.left_out,
                        seconds=round(now - window.began_at, 1),
                    )
