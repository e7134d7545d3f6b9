"""Regular expressions that clients send: checked, and matched in time linear in the name.

Owns the only use of RE2, and the bounds that keep a client's expression cheap: its length, its
compiled size, and the work of one slice. Must never match with an engine that backtracks, nor
accept an expression that an event loop could not match in slices.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

import re2

_RE2 = cast(Any, re2)
"""RE2's module, which has no type annotations."""

LENGTH_MAX = 1_000
PROGRAM_SIZE_MAX = 2_500
"""Instructions of a compiled expression. A `.` takes eight of them, so `.{249}`, the longest topic
name, is possible."""
MEMORY_BYTES_MAX = 256 * 1024
"""Bytes of one compiled expression, including its automaton. RE2's module keeps 128 of them."""
NAME_LENGTH_MAX = 1_000
"""A longer name matches no expression. Topic names have at most 249 characters; transactional ids
have no bound."""
SLICE_NAMES_MAX = 1_000
SLICE_STEPS_MAX = 100_000
"""Instructions times characters of one slice. At worst RE2 visits each instruction for each
character, which takes 10 to 30 ns."""
HUGE_REPETITION = r"\{(?:\d+,)?[1-9]\d{8,}(?:,\d*)?\}"
"""A repetition whose number overflows. RE2 takes it for plain text; Kafka refuses it."""


class _Compiled(Protocol):
    programsize: int

    def fullmatch(self, text: str) -> object | None: ...


class BadExpression(ValueError):
    """An expression cannot be used. The message is for the client that sent it."""


class Expression:
    """A regular expression in RE2's syntax that must match whole names."""

    def __init__(self, text: str) -> None:
        """Compile the expression, or raise BadExpression."""
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
        """True if the expression matches the whole name."""
        return len(name) <= NAME_LENGTH_MAX and self._compiled.fullmatch(name) is not None

    def slices(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Yield the names that match, in slices: other work may be done after each."""
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
    """Return what is wrong with an expression, or None if it can be matched."""
    try:
        Expression(text)
    except BadExpression as error:
        return str(error)
    return None


@functools.cache
def _options() -> Any:
    options = _RE2.Options()
    options.log_errors = False
    options.never_capture = True  # captures cost memory and time, and are never read
    options.max_mem = MEMORY_BYTES_MAX
    return options


def _reason(error: Exception) -> str:
    """Return RE2's message as text: it may be raised as bytes."""
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
