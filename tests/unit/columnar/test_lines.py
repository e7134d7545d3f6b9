"""What can be a line, told by kernels, against Python's own words on UTF-8 and JSON."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.columnar import line_kernels as kernels
from holdfast.columnar.arrow import bytes_of
from holdfast.landing.formats.fitness import line_problems

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
TOKENS = st.sampled_from(
    [*'{}[],:"\\ \t\n\r0123456789-+.eEtruefalsn/bu', "true", "false", "null", '"a"', '"\\u00e9"']
    + ['"\\ud800"', "é", "\x00", "\x1f", "\x7f", "{}", "[]", '"k":', "1e5", "-0", "01", "1.", ".5"]
)


def problems_of(values: list[bytes | None], *, asks_json: bool = False) -> list[int]:
    found = line_problems(pa.array(values, pa.binary()), asks_json=asks_json)
    return [0] * len(values) if found is None else found.tolist()


def expected(value: bytes | None, *, asks_json: bool) -> int:
    if value is None:
        return kernels.NULL
    if not value:
        return kernels.EMPTY
    if b"\n" in value or b"\r" in value:
        return kernels.LINE_BREAK
    if value.startswith(b'{"$holdfast"'):
        return kernels.MARKED
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return kernels.NOT_UTF8
    return kernels.NOT_JSON if asks_json and not is_json(text) else kernels.FITS


def is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(document=JSON, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_every_document_that_python_writes_is_json(document: Any, indent: Any, ascii_only: bool):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    value = b" " + text.encode("utf-8", "surrogatepass") + b"\t"
    assert problems_of([value], asks_json=True) == [expected(value, asks_json=True)]


@settings(max_examples=600, deadline=None)
@given(
    document=JSON,
    at=st.integers(0, 200),
    cut=st.integers(0, 3),
    put=st.binary(max_size=2) | TOKENS.map(str.encode),
)
def test_a_changed_document_is_judged_as_python_does(document: Any, at: int, cut: int, put: bytes):
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    at = min(at, len(text))
    value = text[:at] + put + text[at + cut :]
    assert problems_of([value], asks_json=True) == [expected(value, asks_json=True)]


@settings(max_examples=600, deadline=None)
@given(tokens=st.lists(TOKENS, max_size=12))
@example(tokens=["-", "0", "1"])
@example(tokens=['"', "\\", "u", "1", '"'])
def test_tokens_in_any_order_are_judged_as_python_does(tokens: list[str]):
    value = "".join(tokens).encode()
    assert problems_of([value], asks_json=True) == [expected(value, asks_json=True)]


@settings(max_examples=600, deadline=None)
@given(values=st.lists(st.none() | st.binary(max_size=30) | st.text(max_size=12).map(str.encode)))
def test_each_row_has_its_own_problem(values: list[bytes | None]):
    assert problems_of(values) == [expected(value, asks_json=False) for value in values]


@pytest.mark.parametrize("first", [0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5])
def test_utf8_is_judged_as_python_does_at_the_edges(first: int):
    values = [
        bytes([first, *rest])
        for second in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
        for rest in ([second], [second, 0x80], [second, 0x80, 0xBF], [second, 0x80, 0x80, 0x41])
    ]
    assert problems_of(values) == [expected(value, asks_json=False) for value in values]


def test_nesting_is_bounded():
    deep = kernels.DEPTH_MAX
    fits, beyond = b"[" * deep + b"]" * deep, b"[" * (deep + 1) + b"]" * (deep + 1)
    assert problems_of([fits, beyond], asks_json=True) == [kernels.FITS, kernels.NOT_JSON]


def test_a_slice_of_a_column_is_judged_by_its_own_rows():
    column = pa.array([b"\xff", b"{}", None, b"[1]", b"\n"], pa.binary())
    assert line_problems(column.slice(1, 1)) is None
    found = line_problems(column.slice(1, 3), asks_json=True)
    assert found is not None
    assert found.tolist() == [kernels.FITS, kernels.NULL, kernels.FITS]
    assert line_problems(column.slice(0, 0)) is None


def test_offsets_that_lie_are_noticed():
    data, none = bytes_of(b"abc"), np.empty(0, np.bool_)
    problems, empty = np.empty(1, np.uint8), np.empty(0, np.uint8)
    mark = bytes_of(b"")
    for offsets in ([0, 4], [-1, 2], [2, 1]):
        numbers = np.array(offsets, np.int64)
        assert kernels.line_problems(data, numbers, none, mark, empty, problems) == -1
        assert kernels.utf8_rows(data, numbers, np.empty(1, np.bool_)) == -1
        assert kernels.put_lines(data, numbers, 0, 1, np.empty(9, np.uint8)) == -1
        assert kernels.put_framed(data, numbers, none, 0, 1, np.empty(9, np.uint8)) == -1


@pytest.mark.parametrize(
    "framed", [b"\0", b"\0\0\0\x01", b"\0\0\0\x02a", b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xffab"]
)
def test_a_frame_past_the_end_is_noticed(framed: bytes):
    assert kernels.measure_framed(bytes_of(framed), 0, 10, 100)[0] == -1
