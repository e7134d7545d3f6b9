"""Why a query ended, in one line, out of the traces of driver, planner, tasks and JVM.

Pure. Owns the search for Holdfast's own errors in what Spark hands over as text. Must never hide an
error that it does not know: that one is shown as Spark reports it.
"""

import importlib
import re
from pathlib import Path

from holdfast.errors import HoldfastError, RetryError

SHOWN_MAX = 1_500
_OURS = re.compile(r"(?<![\w.])(holdfast(?:\.\w+)+)\.([A-Z]\w*): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)): (.+)$", re.MULTILINE)


WORKER_LATE = "Python worker failed to connect back"


class QueryFailed(HoldfastError):
    """The query ended with an error that is not one of Holdfast's."""


class WorkerDidNotStart(RetryError):
    """A Python worker did not start within the seconds that Spark waits for it.

    A busy machine may need longer.
    """


def failure_of(error: BaseException, file: str | None = None) -> HoldfastError:
    """Return the Holdfast error at the bottom of what Spark raised, or the text of another error.

    `file` is the user's own file: if a trace goes through it, the message names the line.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, HoldfastError):
            return seen
        seen = seen.__cause__
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        module, name, message = ours[-1]
        return _kind(module, name)(message)
    if WORKER_LATE in text:
        return WorkerDidNotStart(
            "Spark gave up waiting for a Python worker to start: start it again. If it happens"
            " again, reduce the load of the machine"
        )
    python = _PYTHON.findall(text)
    if python:
        place = _place(text, file)
        return QueryFailed(f"the query failed{place}: {': '.join(python[-1])}"[:SHOWN_MAX])
    return QueryFailed(f"the query failed: {text[:SHOWN_MAX]}")


def _place(text: str, file: str | None) -> str:
    """Return the last line of the user's file in a trace, for a message; empty if there is none."""
    if file is None:
        return ""
    found = re.findall(rf'File "{re.escape(file)}", line (\d+), in (\S+)', text)
    if not found:
        return ""
    line, function = found[-1]
    return f" in {Path(file).name}, line {line}, in {function}"


def _kind(module: str, name: str) -> type[HoldfastError]:
    """Return the class of an error by its name, so that its family is known.

    The error was raised in another process.
    """
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return QueryFailed
    if not isinstance(found, type) or not issubclass(found, HoldfastError):
        return QueryFailed
    return found
