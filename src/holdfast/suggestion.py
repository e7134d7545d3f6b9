"""The nearest of some known words, for an unknown word.

Pure. Owns what counts as near. Must never replace a word by itself: a person decides.
"""

import difflib
from collections.abc import Iterable

PART_LETTERS_MIN = 4
"""Fewest letters of a word that is taken for the only known word that contains it."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, ignoring case; None if none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return by_lower[near[0]]
    holding = [each for lower, each in by_lower.items() if word.lower() in lower]
    return holding[0] if len(holding) == 1 and len(word) >= PART_LETTERS_MIN else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the nearest of the known words, as a question; None if none is near."""
    near = nearest(word, known)
    return None if near is None else f"did you mean {near!r}?"


def no_such_value(value: str, known: Iterable[str]) -> str:
    """Return the message for a value that is none of the known words."""
    words = list(known)
    hint = did_you_mean(value, words)
    listed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    return f"there is no {value!r}: " + (f"{hint} Use {listed}" if hint else f"use {listed}")
