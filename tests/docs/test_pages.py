"""Every command and program on the pages for users runs as it is written."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.page_blocks import blocks_of
from tests.support.shared_environments import SharedEnvironments

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    "README.md",
    *sorted(
        page.relative_to(ROOT).as_posix()
        for kind in ("tutorials", "how-to")
        for page in (ROOT / "docs" / kind).glob("*.md")
    ),
]
SECONDS_MAX = 800.0
"""Pages start Spark several times, and the machine may be busy."""
WORDS_OF_SPARK = ("holdfast run", "holdfast backfill", "holdfast.spark", "pyspark", "examples.")


def runs(page: str) -> bool:
    return any(
        block.language in ("sh", "python") and block.not_run_because is None
        for block in blocks_of((ROOT / page).read_text())
    )


def marks(page: str) -> list[pytest.MarkDecorator]:
    text = (ROOT / page).read_text()
    starts_spark = any(word in text for word in WORDS_OF_SPARK)
    return [pytest.mark.spark] if starts_spark else []


@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks(page), id=page) for page in PAGES if runs(page)]
)
def test_a_page_does_what_it_says(page: str, environments: SharedEnvironments):
    run_page = [sys.executable, "-m", "tests.docs.run_page"]
    done = subprocess.run(
        [*run_page, page, "--environments", str(environments.folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_and_one_that_does_not_run_has_a_reason(page: str):
    for block in blocks_of((ROOT / page).read_text()):
        assert block.language, f"{page}:{block.line}"
        assert block.not_run_because is None or len(block.not_run_because) > 10


def test_the_site_builds_and_every_link_in_it_leads_somewhere(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "tutorials" / "first-broker" / "index.html").exists()
