"""The search for the greatest number among keys that end in one, with few listings of a long range.

Owns the search only. A listing can be out of date when it is read. So the result is a position to
start probing from, and must never be taken as proof that nothing follows. Holes do not mislead the
search: it asks only whether any key is greater, which stays true whatever was deleted below.
"""

from collections.abc import Awaitable, Callable, Sequence

NUMBER_MAX = 2**63 - 1
PAGE = 1000

Page = Callable[[int, int], Awaitable[Sequence[int]]]
"""Given (after, limit), returns at most `limit` numbers greater than `after`, ascending."""


async def greatest(page: Page, *, at_most: int = NUMBER_MAX, page_size: int = PAGE) -> int | None:
    """Return the greatest number up to at_most, or None.

    Reads one page per step, with doubling steps.
    """

    async def look(after: int) -> tuple[int | None, bool]:
        """Return the page's greatest number that fits, and whether the search ends with it."""
        numbers = await page(after, page_size)
        fit = [number for number in numbers if number <= at_most]
        return (fit[-1] if fit else None), len(fit) < page_size

    found, is_last = await look(-1)
    if found is None or is_last:
        return found
    low, step = found, found + 1
    while True:
        reach = min(low + step, at_most)
        higher, is_last = await look(reach)
        if higher is None:
            break
        if is_last:
            return higher
        low, step = higher, step * 2
    high = reach
    while low < high:
        middle = (low + high) // 2
        higher, is_last = await look(middle)
        if higher is None:
            high = middle
        elif is_last:
            return higher
        else:
            low = higher
    return low
