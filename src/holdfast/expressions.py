"""Regular expressions that clients send: checked, and matched in time linear in the name.

Owns the one use of RE2, and the bounds that keep a stranger's expression small: its length, its
compiled size, and the work of one slice. Must never match with an engine that backtracks, nor take
an expression that an event loop could not match in slices.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

import re2

_RE2 = cast(Any, re2)
"""It has no types."""

LENGTH_MAX = 1_000
PROGRAM_SIZE_MAX = 2_500
"""Instructions. A `.` takes eight of them, so `.{249}`, the longest topic name, is possible."""
MEMORY_BYTES_MAX = 256 * 1024
"""Of one compiled expression, its automaton included. RE2's module keeps 128 of them."""
NAME_LENGTH_MAX = 1_000
"""A longer name matches no expression. Topics have 249 letters; transactional ids have no bound."""
SLICE_NAMES_MAX = 1_000
SLICE_STEPS_MAX = 100_000
"""Instructions times letters: at worst RE2 visits each instruction for each letter, which takes
10 to 30 ns."""
HUGE_REPETITION = r"\{(?:\d+,)?[1-9]\d{8,}(?:,\d*)?\}"
"""RE2 takes a repetition whose number overflows for plain text; Kafka refuses it."""


class _Compiled(Protocol):
    programsize: int

    def fullmatch(self, text: str) -> object | None: ...


class BadExpression(ValueError):
    """What is wrong with an expression, in words for the client that sent it."""


class Expression:
    """A regular expression in RE2's syntax that describes whole names."""

    def __init__(self, text: str) -> None:
        """Raises BadExpression."""
        if len(text) > LENGTH_MAX:
            raise BadExpression(f"it has {len(text)} characters, at most {LENGTH_MAX} are taken")
        if "\\C" in text.replace("\\\\", ""):
            raise BadExpression("\\C, a single byte, is not supported")
        unescaped = text.replace("\\\\", "").replace("\\{", "")
        if _RE2.search(HUGE_REPETITION, unescaped) is not None:
            raise BadExpression("invalid repetition size: the number is too large")
        try:
            self._compiled: _Compiled = _RE2.compile(text, _options())
        except _RE2.error as error:
            raise BadExpression(_reason(error)) from None
        self.program_size = self._compiled.programsize
        if self.program_size > PROGRAM_SIZE_MAX:
            raise BadExpression(
                f"it compiles to {self.program_size} instructions, "
                f"at most {PROGRAM_SIZE_MAX} are taken"
            )

    def matches(self, name: str) -> bool:
        """Whether it describes the whole name."""
        return len(name) <= NAME_LENGTH_MAX and self._compiled.fullmatch(name) is not None

    def slices(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The names that it describes, in pieces: other work may be done after each."""
        found: list[str] = []
        tried = steps = 0
        for name in names:
            tried += 1
            steps += self.program_size * (len(name) + 1)
            if self.matches(name):
                found.append(name)
            if tried >= SLICE_NAMES_MAX or steps >= SLICE_STEPS_MAX:
                yield found
                found = []
                tried = steps = 0
        if tried:
            yield found


def expression_problem(text: str) -> str | None:
    """Say what is wrong with an expression, or None where it can be matched."""
    try:
        Expression(text)
    except BadExpression as error:
        return str(error)
    return None


@functools.cache
def _options() -> Any:
    options = _RE2.Options()
    options.log_errors = False
    options.never_capture = True  # captures cost memory and time for each group, and nobody asks
    options.max_mem = MEMORY_BYTES_MAX
    return options


def _reason(error: Exception) -> str:
    """RE2 raises its message as bytes."""
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
