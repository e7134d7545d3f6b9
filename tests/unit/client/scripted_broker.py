"""A broker on a real socket that answers as a test tells it to: a message, bytes or silence."""

import asyncio
import struct
from collections.abc import Callable
from typing import Self

from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message
from holdfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.protocol.schemas import SCHEMAS

TOPIC = "orders"


class Silence:
    """No answer; the connection stays open."""

    def __repr__(self) -> str:
        return "silence"


class HangUp:
    """The connection is closed in place of an answer."""

    def __repr__(self) -> str:
        return "a hang-up"


Answer = Message | bytes | Silence | HangUp
Script = Callable[[ApiKey, Message], Answer | None]


class ScriptedBroker:
    """Answers ApiVersions and Metadata by itself where the script says None."""

    def __init__(self, script: Script = lambda _key, _request: None) -> None:
        self._script = script
        self.asked: list[ApiKey] = []
        self.versions: list[tuple[ApiKey, int]] = []
        self.leader_epoch = 1

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def times_asked(self, key: ApiKey) -> int:
        return self.asked.count(key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if not self._reply(writer, await reader.readexactly(size)):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _reply(self, writer: asyncio.StreamWriter, frame: bytes) -> bool:
        number, version, correlation_id, name_bytes = struct.unpack_from(">hhih", frame)
        key = ApiKey(number)
        request_type, response_type = SCHEMAS[key]
        position = 10 + max(0, name_bytes) + request_type.is_flexible(version)
        request = request_type.decode(frame, version, position)
        self.asked.append(key)
        self.versions.append((key, version))
        answer = self._script(key, request) or self._usual(key)
        if isinstance(answer, Silence | HangUp):
            return isinstance(answer, Silence)
        if isinstance(answer, bytes):
            writer.write(answer)
            return True
        header = struct.pack(">i", correlation_id)
        if response_type.is_flexible(version) and key is not ApiKey.API_VERSIONS:
            header += b"\x00"
        body = b"".join([header, *answer.encode(version)])
        writer.write(struct.pack(">i", len(body)) + body)
        return True

    def _usual(self, key: ApiKey) -> Answer:
        match key:
            case ApiKey.API_VERSIONS:
                return all_versions()
            case ApiKey.METADATA:
                return self.metadata()
            case _:
                raise AssertionError(f"the script has no answer to {key.name}")

    def metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=7, leader_epoch=self.leader_epoch)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.port)],
            controller_id=7,
            topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
        )


def all_versions() -> ApiVersionsResponse:
    """Every version that the field tables cover."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=key, min_version=request.VERSIONS[0], max_version=request.VERSIONS[-1]
            )
            for key, (request, _) in SCHEMAS.items()
        ]
    )
