"""The files that the pages name are there, wherever the reader looks for them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BASES = (ROOT, ROOT / "src", ROOT / "src" / "holdfast")
"""From where a page may name a file: the repository, or the product's package."""


def test_every_python_file_that_a_page_names_is_there():
    named = {
        (page.relative_to(ROOT).as_posix(), name)
        for page in PAGES
        for name in re.findall(r"`((?:[\w.]+/)+\w+\.py)", page.read_text())
    }
    assert len(named) > 100
    gone = [each for each in named if not any((base / each[1]).exists() for base in BASES)]
    assert sorted(gone) == []
