"""What simulated brokers log as errors: they did not expect that, so it counts as a crash."""

import contextlib
import logging
from collections.abc import Generator


class _Errors(logging.Handler):
    """Keeps what a broker logs as an error: it did not expect that, so it is a crash here."""

    def __init__(self, crashes: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._crashes = crashes

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._crashes.append(f"{record.getMessage()}: {cause!r}")


@contextlib.contextmanager
def errors_logged_to(crashes: list[str]) -> Generator[None]:
    """Nothing of a simulated broker's log is printed, and its errors count."""
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
        logger.setLevel(level)  # the attribute alone would leave children with what they remember
