"""Matching of names against clients' regular expressions, a slice at a time between other requests.

Owns whose turn it is: however many requests match at once, one slice holds the event loop, and then
all other requests have their turn. Must never match a list of names in one go.
"""

import asyncio
from collections.abc import Iterable

from holdfast.expressions import Expression


class NameMatcher:
    """All matching of one broker, one slice at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def matching(self, expression: Expression, names: Iterable[str]) -> list[str]:
        """Return the names that an expression matches."""
        found: list[str] = []
        slices = expression.slices(names)
        while True:
            async with self._turn:
                matched = next(slices, None)
                await asyncio.sleep(0)
            if matched is None:
                return found
            found += matched
