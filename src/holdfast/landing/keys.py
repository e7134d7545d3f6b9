"""The key of a landed object, made of topic, partition and first offset alone.

Pure. Owns which templates are legal. A template must give different objects different keys, the
same object the same key at every try, and keys that sort in the order of offsets. So a template
with a clock, a random part or a missing part is refused. A key must never depend on which process
writes it, or when.
"""

import re
from dataclasses import dataclass, field

from holdfast.errors import ConfigurationError
from holdfast.store.keys import key_problem

DEFAULT_TEMPLATE = "{topic}+{partition}+{offset}"
HIVE_TEMPLATE = "topic={topic}/partition={partition}/{offset}"
OFFSET_DIGITS = 20
ORIGIN_NAME = "origin"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PARTS = ("topic", "partition", "offset")
_CLOCKS = re.compile(r"%[a-zA-Z]|date|time|now|year|month|day|hour|minute|second|\bts\b|uuid|rand")
_PATTERNS = {
    "topic": r"[a-zA-Z0-9._-]{1,249}",
    "partition": r"0|[1-9][0-9]{0,9}",
    "offset": rf"[0-9]{{{OFFSET_DIGITS}}}",
}


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A legal template. Raises ConfigurationError if the text is not one."""

    text: str = DEFAULT_TEMPLATE
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problem = template_problem(self.text)
        if problem is not None:
            raise ConfigurationError(
                f"the key template {self.text!r} cannot be used: {problem}; use for example"
                f" {DEFAULT_TEMPLATE!r} or {HIVE_TEMPLATE!r}"
            )
        object.__setattr__(self, "_pattern", _pattern_of(self.text))

    def prefix(self, topic: str, partition: int) -> str:
        """Return the text that all keys of one partition, and no others, begin with."""
        stem = self.text[: self.text.rindex("{offset}")]
        return stem.replace("{topic}", topic).replace("{partition}", str(partition))

    def key(self, topic: str, partition: int, offset: int, extension: str) -> str:
        """Return the key of the object with this first offset."""
        return f"{self.prefix(topic, partition)}{offset:0{OFFSET_DIGITS}d}{extension}"

    def origin_key(self, topic: str, partition: int) -> str:
        """Return the key of the chain's origin. Spark and pyarrow skip names with an underscore."""
        folder, slash, stem = self.prefix(topic, partition).rpartition("/")
        return f"{folder}{slash}_{stem}{ORIGIN_NAME}"

    def parse(self, key: str, extension: str) -> tuple[str, int, int] | None:
        """Return topic, partition and first offset of a key. None if it is not of this template."""
        if not key.endswith(extension):
            return None
        found = self._pattern.fullmatch(key.removesuffix(extension))
        if found is None:
            return None
        return found["topic"], int(found["partition"]), int(found["offset"])


def offset_in(key: str, prefix: str, extension: str) -> int | None:
    """Return the first offset in a key of a known partition. None if there is none."""
    digits = key.removeprefix(prefix).removesuffix(extension)
    whole = key == f"{prefix}{digits}{extension}"
    return int(digits) if whole and re.fullmatch(_PATTERNS["offset"], digits) else None


def template_problem(text: str) -> str | None:
    """Say what is wrong with a template, or return None if it is legal."""
    names = _PLACEHOLDER.findall(text)
    for name in names:
        if name not in _PARTS:
            return _unknown_part(name)
    literal = _PLACEHOLDER.sub("0", text)
    if re.search(r"%[a-zA-Z]", literal):
        return _unknown_part(literal[literal.index("%") :][:2])
    for name in _PARTS:
        if names.count(name) == 0:
            return f"it lacks {{{name}}}, so two objects could have one key: add it"
        if names.count(name) > 1:
            return f"it has {{{name}}} twice: once is enough"
    if not text.endswith("{offset}"):
        return (
            "it must end in {offset}, so that a listing is in the order of the log (the format's"
            " extension is added by itself): move {offset} to the end"
        )
    for between in re.findall(r"\}([^{}]*)\{", text):
        if not between or between[0].isdigit() or between[-1].isdigit():
            return f"{between!r} is not a separator: put '+' or '/' between the parts"
    if re.search(r"[0-9]\{(partition|offset)\}", text):
        return "a digit before a number makes keys ambiguous: put '+' between them"
    problem = key_problem(literal)
    return None if problem is None else f"it does not make a legal object key: {problem}"


def _unknown_part(name: str) -> str:
    shown = name if name.startswith("%") else f"{{{name}}}"
    if _CLOCKS.search(name.lower()):
        return (
            f"{shown} can differ at each try, and a retry would then land the same records twice."
            " The key must depend only on topic, partition and first offset: remove it, and use the"
            " timestamp column to find records by time"
        )
    return f"there is no part {shown}: use only {{topic}}, {{partition}} and {{offset}}"


def _pattern_of(text: str) -> re.Pattern[str]:
    pieces: list[str] = []
    position = 0
    for found in _PLACEHOLDER.finditer(text):
        pieces.append(re.escape(text[position : found.start()]))
        pieces.append(f"(?P<{found[1]}>{_PATTERNS[found[1]]})")
        position = found.end()
    return re.compile("".join(pieces))
