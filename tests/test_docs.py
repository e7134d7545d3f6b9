"""The reference pages are held to the code: what is served, configured, measured and asked for."""

import re
from pathlib import Path

import click

from holdfast.broker.dispatch import HANDLERS
from holdfast.cli.serve import command
from holdfast.cluster.configs import TOPIC_CONFIGS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"


def test_every_served_api_is_on_its_page_with_its_versions():
    page = (REFERENCE / "kafka-apis.md").read_text()
    for api_key, (versions, _) in HANDLERS.items():
        row = rf"\| \w+ \| {int(api_key)} \| {versions[0]} to {versions[-1]} \|"
        assert re.search(row, page), api_key.name


def test_the_api_page_names_nothing_that_is_not_served():
    page = (REFERENCE / "kafka-apis.md").read_text()
    keys = {int(key) for key in re.findall(r"^\| \w+ \| (\d+) \|", page, re.MULTILINE)}
    assert keys == {int(key) for key in HANDLERS}


def test_every_topic_config_is_on_its_page():
    page = (REFERENCE / "topic-configs.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9.]+)` \|", page, re.MULTILINE)) == set(TOPIC_CONFIGS)


def test_every_serve_option_is_on_its_page():
    page = (REFERENCE / "serve.md").read_text()
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert options
    for option in options:
        assert f"`{option.opts[0]}`" in page, option.opts


def test_every_metric_is_on_its_page_and_no_other():
    source = (ROOT / "src" / "holdfast" / "broker" / "metrics.py").read_text()
    page = (REFERENCE / "metrics.md").read_text()
    named = set(re.findall(r'"(holdfast_\w+)"', source))
    listed = {
        name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)` ", page, re.MULTILINE)
    }
    assert named == listed


def test_every_relative_link_in_the_docs_leads_somewhere():
    broken: list[str] = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken
