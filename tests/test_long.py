"""The list of long tests names tests that exist."""

from pathlib import Path

import pytest
from tests.long import LONG

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("start", LONG)
def test_each_line_of_the_list_is_the_beginning_of_a_test(start: str):
    path, _, name = start.partition("::")
    text = (ROOT / path).read_text()
    assert f"def {name.partition('[')[0]}" in text
    page = name.partition("[")[2]
    assert not page or list(ROOT.glob(f"{page}*"))
