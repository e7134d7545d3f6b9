"""The tables of docs/reference/kafka-apis.md, written from what the handlers declare.

Owns the text between two comments of the page; the rest is written by hand. To write it:

    python -m tests.docs.kafka_apis
"""

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.broker.endpoints import ENDPOINTS, PEERS_FOLDER, Endpoint

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "kafka-apis.md"
FIRST = "<!-- from here, written by: python -m tests.docs.kafka_apis -->"
LAST = "<!-- to here -->"
TITLES = {
    "data": "Records",
    "cluster": "Cluster",
    "topics": "Topics and configurations",
    "groups": "Consumer groups",
    "transactions": "Transactions",
}
"""The headings, by the folder of the handlers."""


def tables() -> str:
    """Return a heading and a table for each folder of handlers."""
    folders: dict[str, list[Endpoint]] = {folder: [] for folder in TITLES}
    for endpoint in ENDPOINTS.values():
        if endpoint.folder != PEERS_FOLDER:
            folders[endpoint.folder].append(endpoint)
    return "\n\n".join("\n".join(_section(TITLES[each], folders[each])) for each in folders)


def _section(title: str, endpoints: list[Endpoint]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| API | key | versions | differences from Kafka |"
    yield "| --- | --- | --- | --- |"
    for endpoint in endpoints:
        api = endpoint.api
        name = api.key.name.title().replace("_", "")
        first, last = api.versions[0], api.versions[-1]
        versions = f"{first} to {last}" if first != last else f"{first}"
        differences = _with_links(" ".join(api.deviations))
        yield f"| {name} | {int(api.key)} | {versions} | {differences} |"


def _with_links(text: str) -> str:
    return re.sub(r"ADR (\d+)", lambda found: f"[{found[0]}]({_decision(int(found[1]))})", text)


def _decision(number: int) -> str:
    (path,) = (DOCS / "adr").glob(f"{number:04}-*.md")
    return f"../adr/{path.name}"


def with_tables(page: str) -> str:
    """Return the page with its tables as the handlers declare them."""
    before, _, rest = page.partition(FIRST)
    _, _, after = rest.partition(LAST)
    if not after:
        raise ValueError(f"{PAGE} lacks the comments around its tables")
    return f"{before}{FIRST}\n\n{tables()}\n\n{LAST}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
