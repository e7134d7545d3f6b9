"""The code blocks of a Markdown page, with what the page says about running them.

Pure. A comment right above a block says how it runs:

    <!-- keeps running until: is ready -->   in a terminal of its own; go on when it printed this
    <!-- not run: the reason -->             what cannot run here; the reason is for the reader
    <!-- with: s3 -->                        anywhere: the page needs an S3 server
"""

import re
import shlex
import textwrap
from dataclasses import dataclass

_FENCE = re.compile(
    r"(?:^[ ]*<!-- (?P<note>[^>]*?) -->[ ]*\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?:[ ]+title=\"(?P<title>[^\"]+)\")?[ ]*\n"
    r"(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_KEEPS_RUNNING = "keeps running until: "
_NOT_RUN = "not run: "
_INSTALL = re.compile(r"pip install ([^`#\n]+)")
_OWN = re.compile(r"(?:\.|holdfast)(?:\[(?P<extra>\w+)\])?")
EXTRAS = ("", "sink", "spark", "delta", "iceberg", "all")
"""The later ones have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    title: str | None
    text: str
    line: int
    running_until: str | None
    """What it prints when the next block may run; None for a block that ends."""
    not_run_because: str | None


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page, in order, without their indentation."""
    return [_block(found, page) for found in _FENCE.finditer(page)]


def needs_s3(page: str) -> bool:
    return "<!-- with: s3 -->" in page


@dataclass(frozen=True, slots=True)
class Installed:
    """What a reader has installed who did what the page says."""

    extra: str
    tools: tuple[str, ...]


def installed_by(page: str) -> Installed:
    """The extra of Holdfast and what else the page installs; all extras where it names none."""
    words = [word for found in _INSTALL.findall(page) for word in shlex.split(found)]
    own = {found["extra"] or "" for word in words if (found := _OWN.fullmatch(word))}
    tools = {word for word in words if not _OWN.fullmatch(word) and not word.startswith("-")}
    return Installed(max(own, key=EXTRAS.index, default=EXTRAS[-1]), tuple(sorted(tools)))


def lines_in_order(expected: str, output: str) -> str | None:
    """The first expected line that the output lacks from there on; `...` stands for anything."""
    position = 0
    for line in filter(None, (line.strip() for line in expected.splitlines())):
        if line == "...":
            continue
        parts = [re.escape(part.strip()) for part in line.split("...")]
        pattern = re.compile(r"[^\n]*".join(part.replace(r"\ ", r"\s+") for part in parts))
        found = pattern.search(output, position)
        if found is None:
            return line
        position = found.end()
    return None


def _block(found: re.Match[str], page: str) -> Block:
    note = found["note"] or ""
    return Block(
        language=found["language"],
        title=found["title"],
        text=textwrap.dedent(found["body"]),
        line=page.count("\n", 0, found.start("language")) + 1,
        running_until=note.removeprefix(_KEEPS_RUNNING) if _KEEPS_RUNNING in note else None,
        not_run_because=note.removeprefix(_NOT_RUN) if _NOT_RUN in note else None,
    )
