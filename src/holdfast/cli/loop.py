"""The event loop of a command that serves: uvloop where there is one.

Owns that choice.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


def run_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run it to its end; its exit code."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
