"""Standard output as lines of JSON, for commands that run for a while.

Owns the form of an event: one object in each line, its name in `event`. Nothing else reaches
standard output meanwhile: what a pipeline's own code prints goes to standard error.
"""

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

Emit = Callable[[str, Mapping[str, Any]], None]
"""Prints an event as one line of JSON: its name, and its fields."""


@contextlib.contextmanager
def json_output(*, enabled: bool) -> Generator[Emit | None]:
    """What prints an event; None where output is text."""
    if not enabled:
        yield None
        return
    output = sys.stdout

    def emit(event: str, fields: Mapping[str, Any]) -> None:
        output.write(msgspec.json.encode({"event": event, **fields}).decode() + "\n")
        output.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield emit
