"""The field of a JSON object is what the json module reads, and never a guess."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.columnar.json_field import json_field, json_path
from holdfast.errors import CallError

names = st.sampled_from(["id", "a", "b", "", "idx", "é", "\U0001f600", 'q"\\', "a.b"]) | st.text(
    max_size=4
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names.filter(bool), inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=6)
layouts = st.sampled_from([(None, (", ", ": ")), (None, (",", ":")), (1, (" ,", "\t:\r\n "))])


def fields(texts: list[bytes | None], path: str | tuple[str, ...]) -> list[bytes | None]:
    column = json_field(pa.array(texts, pa.binary()), path)
    column.validate(full=True)
    assert len(column) == len(texts)
    return column.to_pylist()


def field(text: bytes | str, path: str | tuple[str, ...] = "id") -> bytes | None:
    return fields([text.encode() if isinstance(text, str) else text], path)[0]


def expected(document: Any, path: tuple[str, ...], text: str) -> bytes | None:
    """As the json module has it; what is not a string is compared by what its text means."""
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    if document is None:
        return None
    if isinstance(document, str):
        return document.encode("utf-8", "surrogatepass")
    return document


@given(
    st.lists(objects, max_size=5),
    st.lists(names.filter(bool), min_size=1, max_size=3).map(tuple),
    layouts,
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_field_is_what_the_json_module_reads(
    documents: list[dict[str, Any]], path: tuple[str, ...], layout: Any, ascii_only: bool
):
    indent, separators = layout
    texts = [
        json.dumps(each, indent=indent, separators=separators, ensure_ascii=ascii_only)
        for each in documents
    ]
    found = fields([text.encode("utf-8", "surrogatepass") for text in texts], path)
    for document, text, raw in zip(documents, texts, found, strict=True):
        wanted = expected(document, path, text)
        if wanted is None or isinstance(wanted, bytes):
            assert raw == wanted
        else:
            assert raw is not None and json.loads(raw) == wanted


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(word)

    def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(reversed(pairs))

    return json.loads(text, parse_constant=refuse, object_pairs_hook=first_wins)


pieces = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', '"id"', '"a"', " ", "\n", "\\", "\\u00e9", "\\ud800"]
        + ["1", "-", "0", "1.5", "1e", "E+2", ".", "true", "false", "null", "tru", "x", '{"id":']
    ),
    max_size=14,
).map("".join)


@given(pieces)
@example('{"id":1}')
@example('{"id":01}')
@example('{"a":{"id":2},"id":3}')
@example('{"id":1,}')
@settings(max_examples=600, deadline=None)
def test_sound_json_is_read_and_unsound_json_before_the_field_is_null(text: str):
    try:
        document = strict(text)
    except ValueError:
        found = field(text)
        if found is not None:
            # Only what follows the field may be unsound: cut there, the text is sound.
            assert any(sound(text[:end] + "}") for end in range(len(text) + 1)), (
                f"{text!r} gave {found!r}"
            )
        return
    wanted = expected(document, ("id",), text)
    found = field(text)
    if wanted is None or isinstance(wanted, bytes):
        assert found == wanted
    else:
        assert found is not None and json.loads(found) == wanted


def sound(text: str) -> bool:
    try:
        return "id" in strict(text)
    except (ValueError, TypeError):
        return False


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "null", "1", '"id"', "[]", '["id"]', "{", "{}", '{"id"', '{"id":', '{"id":1',
        '{"id":"a}', '{"id":"\\x"}', '{"id":"\\u12g4"}', '{"id":"\\u12"}', '{"id":"\t"}',
        '{"id":1 2}', '{"id":+1}', '{"id":.5}', '{"id":1.}', '{"id":1e}', '{"id":NaN}',
        '{"id":Infinity}', '{"id":tru}', '{"id":truee}', "{'id':1}", '{id:1}', '{"a":[1,],"id":1}',
        '{"a":{"b":1,},"id":1}', '{"a":[1}, "id":1}', '{,"id":1}', '{"a" 1,"id":1}', '{"id":null}',
        '{"a":"\\","id":1}', '{"a":[,"id":1}', "\ufeff" + '{"id":1}',
    ],
)  # fmt: skip
def test_what_is_not_json_up_to_the_field_is_null(text: str):
    assert field(text) is None


def test_a_string_is_unescaped_and_everything_else_is_its_text():
    assert field(r'{"id":"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}') == (
        'a"\\/\b\f\n\r\té\U0001f600'.encode()
    )
    assert field('{"id": -12.50E+3 }') == b"-12.50E+3"
    assert field('{"id":[1, {"a": "]"}]}') == b'[1, {"a": "]"}]'
    assert field('{"id":{}}') == b"{}"
    assert field('{"id":""}') == b""


def test_surrogates_without_their_pair_stay_different():
    found = fields([rb'{"id":"\ud800"}', rb'{"id":"\ud801"}', rb'{"id":"\udc00\ud800"}'], "id")
    assert found == [b"\xed\xa0\x80", b"\xed\xa0\x81", b"\xed\xb0\x80\xed\xa0\x80"]


def test_a_name_matches_with_and_without_escapes():
    assert field(r'{"\u0069d":1}') == b"1"
    assert field(r'{"i\u0064x":1,"id":2}') == b"2"
    assert field(r'{"' + r"\u0069" * 500 + r'":1,"id":2}') == b"2"


def test_of_members_with_the_same_name_the_first_counts():
    assert field('{"id":1,"id":2}') == b"1"


def test_a_path_goes_through_objects_only():
    text = '{"a":{"b":{"c":7}},"a.b":{"c":8},"d":[{"c":9}]}'
    assert field(text, "$.a.b.c") == b"7"
    assert field(text, ("a.b", "c")) == b"8"
    assert field(text, "d.c") is None
    assert field(text, "a.c") is None
    assert json_path("$.a.b") == json_path("a.b") == ("a", "b")


def test_a_path_with_an_empty_name_is_refused():
    for path in ("", "$.", "a..b", ()):
        with pytest.raises(CallError, match="empty name"):
            json_field(pa.array([b"{}"]), path)


def test_a_column_that_is_not_of_text_or_bytes_is_refused():
    with pytest.raises(CallError, match="int64"):
        json_field(pa.array([1]), "id")


def test_nesting_past_the_bound_is_null_and_does_not_crash():
    assert field('{"a":' + "[" * 1_000 + "]" * 1_000 + ',"id":1}') == b"1"
    assert field('{"a":' + "[" * 100_000 + "]" * 100_000 + ',"id":1}') is None
    assert field('{"a":' + '{"a":' * 100_000) is None


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.string_view()]
)
def test_slices_nulls_and_every_width_give_the_same(kind: pa.DataType):
    texts = [f'{{"id":{i}}}' if i % 3 else None for i in range(20)]
    column = pa.array(texts, pa.string()).cast(kind)
    expected = [b"%d" % i if i % 3 else None for i in range(20)]
    assert json_field(column, "id").to_pylist() == expected
    assert json_field(column.slice(5, 7), "id").to_pylist() == expected[5:12]
    assert json_field(column.slice(0, 1), "id").to_pylist() == [None]
    assert json_field(column.slice(0, 0), "id").to_pylist() == []
