"""One way to log: a named event and its fields, in the text and as attributes of the record."""

import logging

LOG = logging.getLogger("holdfast.server")


def event(level: int, name: str, **fields: object) -> None:
    """Log `name key=value ...`; handlers find the same in record.event and record.fields."""
    if LOG.isEnabledFor(level):
        shown = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
        LOG.log(level, "%s %s", name, shown, extra={"event": name, "fields": fields})


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 300 else text[:300] + "..."
