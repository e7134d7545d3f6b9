"""Names against the expressions of clients, a slice at a time between other requests.

Owns whose turn it is: however many requests match at once, the loop is held by one slice and then
serves everybody else. Must never match a list of names in one go.
"""

import asyncio
from collections.abc import Iterable

from holdfast.expressions import Expression


class NameMatcher:
    """All matching of one broker, in turns."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def matching(self, expression: Expression, names: Iterable[str]) -> list[str]:
        """The names that an expression describes."""
        found: list[str] = []
        slices = expression.slices(names)
        while True:
            async with self._turn:
                matched = next(slices, None)
                await asyncio.sleep(0)
            if matched is None:
                return found
            found += matched
