"""The greatest number of a long run is found with few pages, whatever was deleted below."""

import asyncio
import bisect
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.landing.newest import greatest


@settings(max_examples=300, deadline=None)
@given(
    numbers=st.sets(st.integers(0, 5000), max_size=200),
    at_most=st.integers(0, 6000),
    page_size=st.integers(1, 10),
)
def test_the_greatest_number_is_found(numbers: set[int], at_most: int, page_size: int):
    listed = sorted(numbers)

    async def page(after: int, limit: int) -> Sequence[int]:
        start = bisect.bisect_right(listed, after)
        return listed[start : start + limit]

    found = asyncio.run(greatest(page, at_most=at_most, page_size=page_size))
    assert found == max((number for number in listed if number <= at_most), default=None)


def test_a_million_objects_need_few_pages():
    pages = 0

    async def page(after: int, limit: int) -> Sequence[int]:
        nonlocal pages
        pages += 1
        start = after // 7 + 1
        return [number * 7 for number in range(start, min(1_000_000, start + limit))]

    assert asyncio.run(greatest(page)) == 7 * 999_999
    assert pages < 40
