"""Standard output as lines of JSON, for commands that run for a while.

Owns the form of an event: one object per line, with its name in `event`. Nothing else must reach
standard output during that time: what a pipeline's code prints goes to standard error.
"""

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

Emit = Callable[[str, Mapping[str, Any]], None]
"""A function that prints an event as one line of JSON: its name, and its fields."""


@contextlib.contextmanager
def json_output(*, enabled: bool) -> Generator[Emit | None]:
    """Yield a function that prints events, or None if the output is text."""
    if not enabled:
        yield None
        return
    output = sys.stdout

    def emit(event: str, fields: Mapping[str, Any]) -> None:
        output.write(msgspec.json.encode({"event": event, **fields}).decode() + "\n")
        output.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield emit
