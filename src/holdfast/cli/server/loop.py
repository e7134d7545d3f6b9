"""The event loop of a command that serves, and the end of its process."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn

from holdfast.loop_thread import new_event_loop

STORE_THREADS = "holdfast-"


def run_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run the work to its end; return its exit code."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def end_process(code: int) -> NoReturn:
    """Exit now, without waiting for the store's threads. Python would wait for all of them, even
    for one in a call that the store does not answer, which may take minutes."""
    is_held_up = any(
        thread.name.startswith(STORE_THREADS) and thread.is_alive()
        for thread in threading.enumerate()
    )
    if is_held_up:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
