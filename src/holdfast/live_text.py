"""Progress text for a person: updated in place on a terminal, separate lines elsewhere.

Owns the control characters. Must never decide what the text says.
"""

import shutil
from typing import TextIO

CLEAR_LINE = "\r\x1b[2K"
LINE_UP = "\x1b[1A"


class LiveText:
    """Text on a terminal: some lines that change, below those that stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    @property
    def width(self) -> int:
        """Number of columns that a line may have without being wrapped."""
        return shutil.get_terminal_size().columns - 1

    def tell(self, text: str) -> None:
        """Print a text that stays."""
        self._stream.write(f"{self._cleared()}{text}\n{self._shown}")
        self._stream.flush()

    def show(self, text: str) -> None:
        """Show the current state; the next one replaces it."""
        width = self.width
        text = "\n".join(_cut(line, width) for line in text.splitlines())
        if text != self._shown:
            self._stream.write(f"{self._cleared()}{text}")
            self._shown = text
            self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._shown = ""
            self._stream.write("\n")
            self._stream.flush()

    def _cleared(self) -> str:
        return CLEAR_LINE + (LINE_UP + CLEAR_LINE) * self._shown.count("\n")


class PlainText:
    """Text in a log file or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, text: str) -> None:
        """Print a text that stays."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def show(self, text: str) -> None:
        """Do nothing: text that changes is only for terminals."""

    def close(self) -> None:
        self._stream.flush()


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
