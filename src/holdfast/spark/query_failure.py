"""Why a query ended, in one line: out of the traces of driver, planner, tasks and JVM.

Pure. Owns the search for our own errors in what Spark hands over as text. Must never hide an error
that it does not know: that one is shown as Spark tells it.
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
    """The query ended with an error that is none of ours."""


class WorkerDidNotStart(RetryError):
    """Spark waits some seconds for a Python worker; a busy machine may take longer."""


def failure_of(error: BaseException, file: str | None = None) -> HoldfastError:
    """The error of ours at the bottom of what Spark raised, or the text of another.

    `file` is the user's own: where a trace goes through it, the message says at which line.
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
    """The last line of the user's file in a trace, for a message; empty where there is none."""
    if file is None:
        return ""
    found = re.findall(rf'File "{re.escape(file)}", line (\d+), in (\S+)', text)
    if not found:
        return ""
    line, function = found[-1]
    return f" in {Path(file).name}, line {line}, in {function}"


def _kind(module: str, name: str) -> type[HoldfastError]:
    """The class of an error by its name, so that its family is known; it was raised elsewhere."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return QueryFailed
    if not isinstance(found, type) or not issubclass(found, HoldfastError):
        return QueryFailed
    return found
