"""Small documents that prove themselves: a line with the hash, then JSON that a person can read.

Pure. Owns the form: `holdfast <kind> <version> <sha256 of the JSON>`, a line feed, the JSON with
sorted keys, a line feed. `tail -n +2 | jq` shows one. Must never return a document whose hash does
not match.
"""

import hashlib
from typing import TypeVar

import msgspec

from holdfast.errors import NOT_JSON, CorruptObject

VERSION = 1
T = TypeVar("T")


def seal(kind: str, document: msgspec.Struct) -> bytes:
    """Return the bytes of the object that holds a document."""
    text = msgspec.json.encode(document, order="sorted") + b"\n"
    return b"holdfast %s %d %s\n" % (kind.encode(), VERSION, _digest(text).encode()) + text


def hash_in(body: bytes) -> str:
    """Return the hash in a sealed document, which the next document of a chain names."""
    return body[: body.index(b"\n")].rsplit(b" ", 1)[-1].decode()


def unseal(kind: str, document: type[T], body: bytes, *, key: str) -> T:
    """Return the document. Raise CorruptObject if the bytes are not those that were sealed."""
    head, line_feed, text = body.partition(b"\n")
    words = head.split(b" ")
    if not line_feed or len(words) != 4 or words[:2] != [b"holdfast", kind.encode()]:
        raise CorruptObject(f"{key}: it is not a {kind} of Holdfast")
    if words[2] != str(VERSION).encode():
        raise CorruptObject(
            f"{key}: it is a {kind} of version {words[2].decode(errors='replace')}, but this"
            f" Holdfast reads version {VERSION}: use a newer release"
        )
    if _digest(text).encode() != words[3]:
        raise CorruptObject(f"{key}: the checksum of the {kind} is wrong")
    try:
        return msgspec.json.decode(text, type=document)
    except NOT_JSON as error:
        raise CorruptObject(f"{key}: the {kind} cannot be read: {error}") from error


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
