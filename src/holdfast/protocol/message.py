"""The base classes of Kafka messages, whose class bodies are field tables.

Pure. Owns how a message is built, compared, shown and versioned. Must never know a particular
message (see messages/), nor how a field is laid out in bytes (see decoder and encoder).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, Self, cast, dataclass_transform

from holdfast.protocol import compile as codec
from holdfast.protocol.encoder import SLICE_ELEMENTS
from holdfast.protocol.fields import LAST, Field
from holdfast.protocol.primitives import Buffer, MalformedMessage, UnencodableMessage


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass that turns the field table in a class body into slots and a constructor."""

    FIELDS: dict[str, Field]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        body["FIELDS"] = fields
        if fields:
            body["__init__"] = _compile_constructor
        return super().__new__(cls, name, bases, body, **options)


def _compile_constructor(self: Struct, **values: Any) -> None:
    """Compile the real constructor on the first call, then run it.

    Compiling waits for that call because one process never builds most of the classes.
    """
    cls = type(self)
    cls.__init__ = codec.constructor(cls.FIELDS)
    cls.__init__(self, **values)


class Struct(metaclass=StructType):
    """A group of fields: a whole message, or an element of one of its arrays."""

    FIELDS: ClassVar[dict[str, Field]]
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_short(getattr(self, name))}" for name in self.FIELDS)
        return f"{type(self).__name__}({shown})"


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return repr(value) if len(value) <= 64 else f"<{len(value)} bytes>"
    return f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)


class Message(Struct):
    """A request or a response, in all the versions that its table covers."""

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_SINCE: ClassVar[int] = LAST
    DECODERS: ClassVar[dict[int, codec.Decoder]]
    ENCODERS: ClassVar[dict[int, codec.Encoder]]
    SLICE_ENCODERS: ClassVar[dict[int, codec.SliceEncoder]]
    ARRAYS: ClassVar[tuple[str, ...]]
    """The names of the message's own array fields, without those inside its elements."""

    def __init_subclass__(cls, *, api_key: int, versions: str, flexible: str = "none") -> None:
        super().__init_subclass__()
        first, _, last = versions.partition("-")
        cls.API_KEY = api_key
        cls.VERSIONS = range(int(first), int(last or first) + 1)
        cls.FLEXIBLE_SINCE = LAST if flexible == "none" else int(flexible.removesuffix("+"))
        cls.DECODERS = {}
        cls.ENCODERS = {}
        cls.SLICE_ENCODERS = {}
        cls.ARRAYS = tuple(name for name, row in cls.FIELDS.items() if row.kind == "array")

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """True if this version, and with it its header, has compact lengths and tagged fields."""
        return version >= cls.FLEXIBLE_SINCE

    @classmethod
    def decode(
        cls, source: Buffer, version: int, position: int = 0, *, exact: bool = False
    ) -> Self:
        """Decode the message at `position`; record batches in it stay slices of `source`.

        Bytes after the message are ignored, as in Kafka: librdkafka 2.16 sends three bytes too many
        in a Metadata request for all topics. With `exact` they are refused. Raises
        MalformedMessage.
        """
        decoder = cls.DECODERS.get(version) or cls._compile_decoder(version)
        view = source if type(source) is memoryview else memoryview(source)
        message, stop = decoder(view, position, len(view))
        if exact and stop != len(view):
            raise MalformedMessage(
                f"{cls.__name__} v{version} ends at byte {stop} of {len(view)}: bytes are left over"
            )
        return cast(Self, message)

    def encode(self, version: int) -> list[Buffer]:
        """Encode the message as buffers in order; buffers of record batches are not copied.

        Raises UnencodableMessage.
        """
        encoder = self.ENCODERS.get(version) or self._compile_encoder(version)
        return encoder(self)

    def is_long(self) -> bool:
        """True if one of its arrays is so long that the message should be encoded in slices."""
        return any(len(getattr(self, name) or ()) > SLICE_ELEMENTS for name in self.ARRAYS)

    def encode_in_slices(self, version: int) -> Generator[None, None, list[Buffer]]:
        """Encode as `encode` does, but yield after each slice of elements.

        The caller can do other work at each yield. The message must not change until this returns.
        """
        encoder = self.SLICE_ENCODERS.get(version)
        if encoder is None:
            if version not in self.VERSIONS:
                raise UnencodableMessage(self._unknown(version))
            encoder = codec.slice_encoder(type(self), version, self.is_flexible(version))
            self.SLICE_ENCODERS[version] = encoder
        return encoder(self)

    @classmethod
    def _compile_decoder(cls, version: int) -> codec.Decoder:
        if version not in cls.VERSIONS:
            raise MalformedMessage(cls._unknown(version))
        decoder = cls.DECODERS[version] = codec.decoder(cls, version, cls.is_flexible(version))
        return decoder

    @classmethod
    def _compile_encoder(cls, version: int) -> codec.Encoder:
        if version not in cls.VERSIONS:
            raise UnencodableMessage(cls._unknown(version))
        encoder = cls.ENCODERS[version] = codec.encoder(cls, version, cls.is_flexible(version))
        return encoder

    @classmethod
    def _unknown(cls, version: int) -> str:
        known = f"{cls.VERSIONS[0]} to {cls.VERSIONS[-1]}"
        return f"{cls.__name__} has versions {known}, not {version}"
