"""Regular expressions over topic names, in time linear in the name, whatever the expression.

Pure. Owns the subset of RE2 that a subscription may use: literals, classes, groups, alternatives,
repetitions, anchors, `(?i)`. All states are followed at once: an expression from a client must
never be able to hold up the broker, as one that backtracks can.
"""

import functools
from collections.abc import Callable, Iterable, Iterator

PATTERN_LENGTH_MAX = 1_000
REPEAT_MAX = 500
STATES_MAX = 1_000
STEPS_MAX = 10_000

_Test = Callable[[str], bool]
_Built = Callable[[int], int]
"""Makes the states of a part, given the state that follows it; says where the part begins."""


class PatternError(ValueError):
    """What is wrong with an expression."""


def _classed(letter: str) -> _Test | None:
    tests: dict[str, _Test] = {
        "d": lambda c: c in "0123456789",
        "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
        "s": lambda c: c in " \t\n\r\f",
    }
    test = tests.get(letter.lower())
    if test is None or letter.islower():
        return test
    return lambda c: not test(c)


def _is_not_newline(character: str) -> bool:
    return character != "\n"


class TopicPattern:
    """A regular expression that has been understood."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise PatternError(f"longer than {PATTERN_LENGTH_MAX} characters")
        self._ignores_case = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)")
        if self._ignores_case:
            self._text = self._text.lower()
        self._at = 0
        self._tests: list[_Test | None] = []
        self._nexts: list[list[int]] = []
        self._anchors: dict[int, str] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        built = self._alternatives()
        if self._at < len(self._text):
            raise PatternError(f"unexpected {self._text[self._at]!r} at {self._at}")
        self._end = self._state(None, ())
        self._start = built(self._end)

    def matches(self, name: str) -> bool:
        """Whether the whole name is one that the expression describes."""
        if self._ignores_case:
            name = name.lower()
        states = self._closed([self._start], is_start=True)
        for character in name:
            states = self._stepped(states, character)
        return self._end in self._closed(states, is_start=not name, is_end=True)

    def _stepped(self, states: frozenset[int], character: str) -> frozenset[int]:
        """Where a character leads; remembered, since names of topics are alike."""
        after = self._steps.get((states, character))
        if after is None:
            if len(self._steps) >= STEPS_MAX:
                self._steps.clear()
            passed = [
                following
                for state in states
                if (test := self._tests[state]) is not None and test(character)
                for following in self._nexts[state]
            ]
            after = self._steps[states, character] = self._closed(passed)
        return after

    def _closed(
        self, states: Iterable[int], *, is_start: bool = False, is_end: bool = False
    ) -> frozenset[int]:
        """These states and all that are reached from them without a character."""
        found: set[int] = set()
        stack = list(states)
        while stack:
            state = stack.pop()
            if state in found:
                continue
            found.add(state)
            anchor = self._anchors.get(state)
            is_open = anchor is None or (is_start if anchor == "^" else is_end)
            if is_open and self._tests[state] is None:
                stack.extend(self._nexts[state])
        return frozenset(found)

    def _state(self, test: _Test | None, nexts: Iterable[int]) -> int:
        if len(self._tests) >= STATES_MAX:
            raise PatternError("too large")
        self._tests.append(test)
        self._nexts.append(list(nexts))
        return len(self._tests) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise PatternError("unexpected end")
        self._at += 1
        return character

    def _skip(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _alternatives(self) -> _Built:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return lambda after: self._state(None, [part(after) for part in parts])

    def _sequence(self) -> _Built:
        parts: list[_Built] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))

        def build(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return build

    def _repeated(self, part: _Built) -> _Built:
        if self._skip("*"):
            least, most = 0, None
        elif self._skip("+"):
            least, most = 1, None
        elif self._skip("?"):
            least, most = 0, 1
        elif self._skip("{"):
            least, most = self._bounds()
        else:
            return part
        self._skip("?")  # reluctant or not, a whole match is the same
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise PatternError(f"two repetitions at {self._at}")
        return functools.partial(self._build_repeat, part, least, most)

    def _bounds(self) -> tuple[int, int | None]:
        inside, closed, rest = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        is_legal = least.isdecimal() and (not most or most.isdecimal())
        if not closed or not is_legal:
            raise PatternError(f"bad repetition at {self._at}")
        self._at = len(self._text) - len(rest)
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise PatternError(f"bad repetition {{{inside}}}")
        return low, high

    def _build_repeat(self, part: _Built, least: int, most: int | None, after: int) -> int:
        if most is None:
            begin = self._state(None, [after])
            self._nexts[begin].append(part(begin))
        else:
            begin = after
            for _ in range(most - least):
                begin = self._state(None, [part(begin), after])
        for _ in range(least):
            begin = part(begin)
        return begin

    def _atom(self) -> _Built:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                test: _Test = self._class()
            case ".":
                test = _is_not_newline
            case "^" | "$":
                return functools.partial(self._build_anchor, character)
            case "*" | "+" | "?" | "{":
                raise PatternError(f"nothing to repeat at {self._at - 1}")
            case "\\":
                return self._escape()
            case _:
                test = character.__eq__
        return lambda after: self._state(test, [after])

    def _build_anchor(self, anchor: str, after: int) -> int:
        state = self._state(None, [after])
        self._anchors[state] = anchor
        return state

    def _group(self) -> _Built:
        if self._skip("?P<") or self._skip("?<"):
            while self._take() != ">":
                pass
        elif self._peek() == "?" and not self._skip("?:"):
            raise PatternError(f"a kind of group that is not known at {self._at}")
        built = self._alternatives()
        if not self._skip(")"):
            raise PatternError("missing )")
        return built

    def _escape(self) -> _Built:
        letter = self._take()
        if letter in "Az":
            return functools.partial(self._build_anchor, "^" if letter == "A" else "$")
        test = self._escaped(letter)
        return lambda after: self._state(test, [after])

    def _escaped(self, letter: str) -> _Test:
        test = _classed(letter)
        if test is not None:
            return test
        if letter.isalnum():
            raise PatternError(f"an escape that is not known: \\{letter}")
        return letter.__eq__

    def _class(self) -> _Test:
        is_negated = self._skip("^")
        tests: list[_Test] = []
        while not (self._peek() == "]" and tests):
            first = self._take()
            if first == "[" and self._peek() == ":":
                raise PatternError("named classes are not known")
            if first == "\\":
                first = self._take()
                if first.isalnum():
                    tests.append(self._escaped(first))
                    continue
            tests.append(self._ranged(first))
        self._at += 1
        return lambda c: any(test(c) for test in tests) != is_negated

    def _ranged(self, first: str) -> _Test:
        is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "")
        if not is_range:
            return first.__eq__
        self._at += 1
        last = self._take()
        if last == "\\":
            last = self._take()
        if last < first:
            raise PatternError(f"bad range {first}-{last}")
        return lambda c: first <= c <= last


def pattern_problem(text: str) -> str | None:
    """Say what is wrong with an expression, or None where it is understood."""
    try:
        TopicPattern(text)
    except PatternError as error:
        return str(error)
    return None


def matching(text: str, names: Iterable[str]) -> Iterator[str]:
    """The names that an expression describes; none where it is not understood."""
    if pattern_problem(text) is None:
        pattern = TopicPattern(text)
        yield from (name for name in names if pattern.matches(name))
