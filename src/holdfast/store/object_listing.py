"""Listings in byte order, also from servers that list in another order.

Pure. S3 lists by the bytes of the whole key. Some servers that speak its protocol walk through
folders instead (SeaweedFS: "b/1" comes before "b-c"), take an offset in that order, and skip a
folder whose own name is the offset. Owns an offset and a rule to stop that are right in both
orders, so that no key is missed. Must never stop while a smaller key could still come.
"""

from collections.abc import Iterable, Sequence

from holdfast.store.interface import ObjectEntry

_PLAIN = frozenset("/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz:;=@")
"""Legal characters of a key that are not below '/'. The orders differ only for those below it."""
_BEFORE = {"=": ";", "@": "=", "_": "Z", "a": "_"}
"""The legal character before this one, if the one just before it is not legal."""


def folder_of(prefix: str) -> str:
    """Return the folder that holds every key with this prefix. Servers match whole parts."""
    return prefix.rpartition("/")[0]


def offset_of(prefix: str, after: str) -> str | None:
    """Return a key before all wanted keys in both orders, as near to the first as is safe."""
    return max(_below(prefix), _below(after)) or None


def select(
    pages: Iterable[Sequence[ObjectEntry]], *, prefix: str, after: str, limit: int | None
) -> list[ObjectEntry]:
    """Return the wanted entries, from as few pages as is safe in both orders."""
    base = len(prefix) - len(prefix.rpartition("/")[2])
    found: list[ObjectEntry] = []
    if limit is not None and limit <= 0:
        return found
    for page in pages:
        found += [row for row in page if row.key.startswith(prefix) and row.key > after]
        if not page:
            continue
        found.sort()
        last = page[-1].key[base:]
        if _is_past_prefix(last, prefix[base:]):
            break
        bound = found[limit - 1].key if limit is not None and len(found) >= limit else None
        if bound is not None and _precedes_all_later(bound[base:], last):
            break
    found.sort()
    return found if limit is None else found[:limit]


def _is_past_prefix(last: str, prefix: str) -> bool:
    """True if nothing after `last` can start with the prefix, which has no slash."""
    top = last.partition("/")[0]
    return top > prefix and not top.startswith(prefix)


def _precedes_all_later(bound: str, last: str) -> bool:
    """True if everything after `last`, in either order, is greater than the bound."""
    top, slash, _ = last.partition("/")
    if not slash:
        return last >= bound
    bound_top = bound.partition("/")[0]
    return top > bound_top and not top.startswith(bound_top)


def _below(text: str) -> str:
    """Return a legal key that is smaller than the text by its last character; "" if none is."""
    stem, last = text[:-1], text[-1:]
    if not text or text.startswith("/") or "//" in text or not _PLAIN.issuperset(text):
        return ""
    if last == "/":
        return ""
    if last == "0":
        # The character before it is the slash. The stem itself is safe unless it ends in one.
        return "" if stem.endswith("/") else stem
    return stem + _BEFORE.get(last, chr(ord(last) - 1))
