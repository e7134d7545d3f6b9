"""What one named bad input sends, and what the broker must make of it.

Owns the expectations. An expectation of an error is exact: another error, or none, fails the case.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.hostile_bytes import Peer, request

from holdfast.client.wire import decode_response
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message, Struct
from holdfast.protocol.schemas import SCHEMAS


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What a case may need to know of the broker that it is sent to."""

    port: int
    topic_ids: dict[str, Any]
    leader_epoch: int
    producer_id: Callable[[], int]
    """A new one, from the broker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A name, and a check that talks to the broker through one connection of its own."""

    name: str
    check: Callable[[Peer, Target], None]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


Data = bytes | Callable[[Target], bytes]


def closed(name: str, data: Data, *, finish: bool = False) -> Case:
    """The broker closes without a word."""

    def check(peer: Peer, target: Target) -> None:
        peer.send(data(target) if callable(data) else data)
        if finish:
            peer.finish()
        assert peer.reply() is None

    return Case(name, check)


Build = Message | Callable[[Target], Message]


def told(
    name: str,
    version: int,
    message: Build,
    *codes: str,
    before: tuple[Build, ...] = (),
    also: Callable[[Any], bool] | None = None,
) -> Case:
    """The broker answers with exactly these error codes (none at all: NONE), and stays there."""

    def check(peer: Peer, target: Target) -> None:
        for earlier in before:
            _ask(peer, earlier(target) if callable(earlier) else earlier, version)
        built = message(target) if callable(message) else message
        response = _ask(peer, built, version)
        found = sorted({ErrorCode(code).name for code in error_codes(response) if code})
        assert found == sorted(codes), f"{response}"
        assert also is None or also(response), f"{response}"
        still_there(peer)

    return Case(name, check)


def one_of(name: str, version: int, message: Build, *codes: str) -> Case:
    """Any of these errors will do; where `NONE` is among them, none will do too."""

    def check(peer: Peer, target: Target) -> None:
        built = message(target) if callable(message) else message
        response = _ask(peer, built, version)
        found = {ErrorCode(code).name for code in error_codes(response) if code} or {"NONE"}
        assert found <= set(codes), f"{response}"
        still_there(peer)

    return Case(name, check)


def _ask(peer: Peer, message: Message, version: int) -> Message:
    peer.send(request(message, version))
    reply = peer.reply()
    assert reply is not None, f"closed instead of an answer to {message}"
    return decode_response(reply, SCHEMAS[message.API_KEY][1], version)


def still_there(peer: Peer) -> None:
    """The connection that sent something wrong, but well-formed, can be used on."""
    from holdfast.protocol.messages.api_versions import ApiVersionsRequest

    peer.send(request(ApiVersionsRequest(), 0))
    assert peer.reply() is not None


def error_codes(value: object) -> Iterator[int]:
    """All error codes in a response, wherever they are."""
    if isinstance(value, Struct):
        for name in value.FIELDS:
            if name == "error_code":
                yield getattr(value, name)
            else:
                yield from error_codes(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from error_codes(item)
