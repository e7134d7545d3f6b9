"""Columns as bytes: the same on every machine."""

from array import array

from holdfast.log.columns import column_bytes, fill_column


def test_a_column_is_stored_big_endian_and_comes_back():
    column = array("q", [1, -2, 1 << 40])
    stored = column_bytes(column)
    assert stored == b"".join(value.to_bytes(8, "big", signed=True) for value in column)
    filled = array("q")
    fill_column(filled, stored)
    assert filled == column


def test_storing_a_column_leaves_it_as_it_is():
    column = array("q", [7])
    column_bytes(column)
    assert column[0] == 7
