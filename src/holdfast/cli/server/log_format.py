"""The format of log lines: text for people, or one JSON object per line for machines.

Owns the names of the JSON fields. JSON must never lack anything that the text would have said.
"""

import datetime
import logging
import re
import sys
from typing import Literal

import msgspec

LogFormat = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"

_PLACE = re.compile(r"(?:(\w+)=)?%(?:%|[-+ 0#]*\d*(?:\.\d+)?[a-zA-Z])")
_EVENT = re.compile(r"[a-z0-9_]+(?= |$)")
_OWN = frozenset({"time", "level", "logger", "message", "event", "traceback"})


def set_up_logging(level: str, form: LogFormat) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(TEXT) if form == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])


class JsonFormatter(logging.Formatter):
    """A formatter for JSON: time, level, logger, message, and the line's event with its fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = _EVENT.match(record.msg) if isinstance(record.msg, str) else None
        if event is not None and "_" in event[0]:
            line["event"] = event[0]
            line |= _fields(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the values in a line `event name=%s ...`, by their names."""
    if not isinstance(record.args, tuple):
        return {}
    places = [found for found in _PLACE.finditer(record.msg) if not found[0].endswith("%%")]
    if len(places) != len(record.args):
        return {}
    named = zip(places, record.args, strict=True)
    return {
        place[1]: value if isinstance(value, int | float | str) else str(value)
        for place, value in named
        if place[1] and place[1] not in _OWN
    }
