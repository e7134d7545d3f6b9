"""The option `where`: parses SQL conditions, narrows a plan by them, and filters its rows exactly.

Pure. Owns the grammar (conditions on topic, partition, offset and timestamp, joined by AND) and its
messages. A plan may leave out only what cannot match, and rows that are read are tested against
every condition, so the result is the same with any plan. Must never ignore a part of the text.
"""

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.errors import ConfigurationError

COLUMNS = ("topic", "partition", "offset", "timestamp")
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ALLOWED = (
    "It takes conditions on topic, partition, offset and timestamp (= < <= > >=, IN (...), BETWEEN "
    "... AND ...), joined by AND; for all else use DataFrame.where, which takes any condition on "
    "what this option leaves"
)

Value = int | str
"""A value of a condition. A timestamp is in microseconds, as its column is."""

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>[+-]?\d[\w.]*)|(?P<word>[^\W\d]\w*|`[^`]*`)"
    r"|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),])|(?P<end>\Z)|(?P<other>\S))",
    re.ASCII,
)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_FORMS: Mapping[str, str] = {
    "topic": "text in quotes",
    "partition": "whole numbers",
    "offset": "whole numbers",
    "timestamp": (
        "'2026-11-16', '2026-11-16 08:30:00.5' (UTC), '2026-11-16T08:30:00+01:00', or milliseconds "
        "since 1970 as a whole number"
    ),
}


class Numbers(NamedTuple):
    """The whole numbers that a column may have: `least` to `most`, and in `among` if set."""

    least: int = INT64_MIN
    most: int = INT64_MAX
    among: frozenset[int] | None = None

    @property
    def is_empty(self) -> bool:
        return self.least > self.most


class Condition(NamedTuple):
    """One comparison. IN has any number of values, the others have one."""

    column: str
    comparison: str
    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        if self.comparison == "IN":
            return value in self.values
        return _COMPARED[self.comparison](value, self.values[0])


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows for which every condition holds."""

    conditions: tuple[Condition, ...] = ()

    def clip(self, topic: str, partition: int, start: int, end: int) -> tuple[int, int]:
        """Return the part of [start, end) that may have such rows; it is empty if start >= end."""
        known: dict[str, Value] = {"topic": topic, "partition": partition}
        for condition in self.conditions:
            if condition.column in known and not condition.holds(known[condition.column]):
                return end, end
        offsets = self.numbers("offset")
        if offsets.is_empty or self.numbers("timestamp").is_empty:
            return end, end
        return max(start, offsets.least), min(end, offsets.most + 1)

    @property
    def timestamp_min_ms(self) -> int | None:
        """The time before which no record is wanted, or None.

        There is no such upper bound, because times may also fall along a log.
        """
        least_ms = -(-self.numbers("timestamp").least // 1000)
        return least_ms if least_ms >= 0 else None

    def numbers(self, column: str) -> Numbers:
        """Return what follows for a column from all conditions on it."""
        least, most, among = INT64_MIN, INT64_MAX, None
        for condition in self.conditions:
            if condition.column != column:
                continue
            values = [int(value) for value in condition.values]
            if condition.comparison == "IN":
                among = frozenset(values) if among is None else among.intersection(values)
            if condition.comparison in ("=", ">=", ">"):
                least = max(least, values[0] + (condition.comparison == ">"))
            if condition.comparison in ("=", "<=", "<"):
                most = min(most, values[0] - (condition.comparison == "<"))
        if among is None:
            return Numbers(least, most)
        among = frozenset(value for value in among if least <= value <= most)
        if not among:
            return Numbers(1, 0, among)
        return Numbers(min(among), max(among), among)

    def matching(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the matching rows of batches. `clip` has let their partitions pass."""
        wanted = [(column, self.numbers(column)) for column in ("offset", "timestamp")]
        wanted = [(column, numbers) for column, numbers in wanted if numbers != Numbers()]
        if any(numbers.is_empty for _, numbers in wanted):
            return
        for batch in batches:
            found: Any = batch
            for column, numbers in wanted:
                mask = _mask(found.column(column).cast(pa.int64()), numbers)
                # Most batches of a narrowed plan match as a whole, and need no copy.
                if not pa.compute.all(mask).as_py():
                    found = found.filter(mask)
            if found.num_rows:
                yield found


ALL_ROWS = RowFilter()


def _mask(column: Any, numbers: Numbers) -> Any:
    if numbers.among is not None:
        among = pa.array(sorted(numbers.among), pa.int64())
        return pa.compute.is_in(column, value_set=among)
    least, most = pa.scalar(numbers.least, pa.int64()), pa.scalar(numbers.most, pa.int64())
    return pa.compute.and_(
        pa.compute.greater_equal(column, least), pa.compute.less_equal(column, most)
    )


def parse_where(text: str) -> RowFilter:
    """Return the filter of a text; ConfigurationError has the word, what is allowed, the remedy."""
    parser = _Parser(text)
    conditions = parser.condition()
    while parser.goes_on():
        conditions += parser.condition()
    return RowFilter(tuple(conditions))


class _Token(NamedTuple):
    kind: str
    said: str
    position: int

    @property
    def keyword(self) -> str:
        return self.said.upper()

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        return f"{self.said} at character {self.position + 1}"


class _Parser:
    """The parser of one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        self._at = 0
        for found in _TOKEN.finditer(text):
            kind = found.lastgroup or "other"
            self._tokens.append(_Token(kind, found[kind], found.start(kind)))

    def condition(self) -> list[Condition]:
        column = self._column()
        comparison = self._take()
        if comparison.said in _COMPARED:
            return [Condition(column, comparison.said, (self._value(column),))]
        match comparison.keyword:
            case "IN":
                return [Condition(column, "IN", self._values(column))]
            case "BETWEEN":
                least = self._value(column)
                if (token := self._take()).keyword != "AND":
                    raise self._refused(f"{token}, where BETWEEN needs AND and its second value")
                most = self._value(column)
                return [Condition(column, ">=", (least,)), Condition(column, "<=", (most,))]
            case _:
                raise self._refused(f"{comparison}, where a comparison of {column} should be")

    def goes_on(self) -> bool:
        """True if another condition follows; raise if anything but that or the end does."""
        token = self._take()
        if token.kind != "end" and token.keyword != "AND":
            raise self._refused(f"{token}, where AND or the end should be")
        return token.kind != "end"

    def _column(self) -> str:
        token = self._take()
        name = token.said.strip("`").lower()
        if token.kind != "word" or token.keyword in ("NOT", "OR", "AND"):
            raise self._refused(f"{token}, where the name of a column should be")
        if self._tokens[self._at].said == "(":
            raise self._refused(f"the function {token} cannot be used")
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise self._refused(f"the column {token} cannot be used{hint}")
        return name

    def _values(self, column: str) -> tuple[Value, ...]:
        if (token := self._take()).said != "(":
            raise self._refused(f"{token}, where IN needs its values in parentheses")
        values = [self._value(column)]
        while (token := self._take()).said == ",":
            values.append(self._value(column))
        if token.said != ")":
            raise self._refused(f"{token}, where a comma or the parenthesis of IN should be")
        return tuple(values)

    def _value(self, column: str) -> Value:
        token = self._take()
        if column == "timestamp" and token.keyword == "TIMESTAMP":
            token = self._take()
        is_whole = token.kind == "number" and token.said.lstrip("+-").isdigit()
        match column, token.kind:
            case "topic", "text":
                return token.said[1:-1]
            case "timestamp", "text":
                if (moment := _microseconds(token.said[1:-1])) is not None:
                    return moment
            case "timestamp", "number" if is_whole:
                return int(token.said) * 1000
            case "partition" | "offset", "number" if is_whole:
                return int(token.said)
            case _:
                pass
        raise self._refused(f"{token}, but {column} is compared with {_FORMS[column]}")

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _refused(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"where: {problem}: {self._text!r}. {ALLOWED}")


def _microseconds(text: str) -> int | None:
    if _TIME.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    except (ValueError, OverflowError):
        return None
