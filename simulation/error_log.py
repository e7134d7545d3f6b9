"""Counts each error that a simulated broker logs as a crash: the broker did not expect it."""

import contextlib
import logging
from collections.abc import Generator


class _Errors(logging.Handler):
    """A log handler that adds each logged error to a list of crashes."""

    def __init__(self, crashes: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._crashes = crashes

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._crashes.append(f"{record.getMessage()}: {cause!r}")


@contextlib.contextmanager
def errors_logged_to(crashes: list[str]) -> Generator[None]:
    """Print nothing that simulated brokers log, and add their errors to `crashes`."""
    logger = logging.getLogger("holdfast")
    before = logger.level, logger.propagate
    handler = _Errors(crashes)
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate = before
        logger.setLevel(level)  # setting the attribute would leave a cached level in child loggers
