"""The reference pages are held to the code: what is served, configured, measured and asked for."""

import ast
import asyncio
import functools
import importlib
import re
import struct
import sys
import textwrap
import threading
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
import msgspec
import pytest
from tests.docs import kafka_apis
from tests.support.brokers import produce_request, topic

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import Dispatch
from holdfast.broker.endpoints import SERVED
from holdfast.broker.properties import BY_NAME, PROPERTIES
from holdfast.broker.reply_memory import ReplyMemory
from holdfast.broker.settings import BrokerSettings
from holdfast.cli.main import COMMANDS
from holdfast.cli.server.serve import command
from holdfast.cli.server.serve_file import read_serve_file
from holdfast.cluster.configs import TOPIC_CONFIGS
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import BrokerId
from holdfast.landing.facts import Facts
from holdfast.landing.formats.known import NAMES as FORMATS
from holdfast.landing.ledger_entry import Entry, OutputFile
from holdfast.landing.ledger_rules import _REMEDIES, CommitRefusal
from holdfast.landing.origin import ChainOrigin
from holdfast.protocol.api import ApiKey
from holdfast.protocol.messages.produce import ProduceResponse
from holdfast.records.record import Record, encode_batch
from holdfast.server.connection import ConnectionHost, TcpConnection
from holdfast.server.gate import Gate
from holdfast.server.limits import ServerLimits
from holdfast.server.memory import RequestMemory
from holdfast.sink.config_file import read_sink
from holdfast.spark.pipelines.file import read_pipeline
from holdfast.spark.source import kafka_options, options
from holdfast.spark.topic import options as topic_options
from holdfast.store.address import open_store

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES_OF_THEIR_OWN = {"serve", "run", "backfill", "sink"}
"""Commands that are held to their pages by other tests."""


def test_the_api_page_says_what_the_handlers_declare():
    page = kafka_apis.PAGE.read_text()
    remedy = "run: python -m tests.docs.kafka_apis"
    assert page == kafka_apis.with_tables(page), remedy


def test_every_topic_config_is_on_its_page():
    page = (REFERENCE / "topic-configs.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9.]+)` \|", page, re.MULTILINE)) == set(TOPIC_CONFIGS)


def test_every_serve_option_is_on_its_page():
    page = (REFERENCE / "serve.md").read_text()
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert options
    for option in options:
        assert f"`{option.opts[0]}`" in page, option.opts


def test_every_setting_that_can_be_overridden_is_on_its_page_with_its_default_and_no_other():
    usual = BrokerSettings(broker_id=BrokerId(0), host="", port=0)
    page = (REFERENCE / "serve.md").read_text()
    assert first_column(page, "Settings for `override`") == set(BY_NAME)
    for item in PROPERTIES:
        assert f"| `{item.name}` | {item.shown(usual)} | {item.documentation} |" in page


def test_every_metric_is_on_its_page_and_no_other():
    source = (ROOT / "src" / "holdfast" / "broker" / "metrics.py").read_text()
    page = (REFERENCE / "metrics.md").read_text()
    named = set(re.findall(r'"(holdfast_\w+)"', source))
    listed = {
        name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)` ", page, re.MULTILINE)
    }
    assert named == listed


def first_column(page: str, heading: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    part = re.split(r"^## ", page, flags=re.MULTILINE)
    (section,) = (text for text in part if text.startswith(f"{heading}\n"))
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_option_of_the_source_is_on_its_page_and_no_other():
    page = (REFERENCE / "spark-source.md").read_text()
    listed = first_column(page, "Where records are") | first_column(page, "Options")
    assert listed == set(options.NAMES)


def test_every_option_of_the_sink_is_on_its_page_and_no_other():
    page = (REFERENCE / "spark-sink.md").read_text()
    of_client = {"kafka.compression.type", "kafka.transaction.timeout.ms"}
    assert first_column(page, "Options") == {*topic_options.NAMES, *of_client}
    for name in topic_options.FIXED:
        assert f"kafka.{name}" in page, name


def test_every_option_of_the_kafka_client_is_on_its_page_and_no_other():
    page = (REFERENCE / "spark-source.md").read_text()
    listed = first_column(page, "Options of the Kafka client")
    assert listed == {f"kafka.{name}" for name in kafka_options.CLIENT_NAMES}


def test_what_has_no_effect_and_what_is_refused_is_named():
    page = (REFERENCE / "spark-source.md").read_text().lower()
    idle = {f"kafka.{name}" for name in kafka_options._WITHOUT_EFFECT} | set(options.IDLE)
    for name in sorted(idle | set(options.REFUSED)):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    "document", [Facts, ChainOrigin, Entry, OutputFile], ids=lambda d: d.__name__
)
def test_every_field_of_a_landed_document_is_on_its_page(document: type[msgspec.Struct]):
    page = (REFERENCE / "landing-layout.md").read_text()
    for field in msgspec.structs.fields(document):
        assert re.search(rf"\b{field.name}\b", page), field.name


def test_every_format_is_on_its_page():
    page = (REFERENCE / "landing-layout.md").read_text()
    for name in FORMATS:
        assert f"`{name}`" in page, name


def test_every_refusal_of_the_ledger_is_explained_in_its_own_words():
    page = (ROOT / "docs" / "explanation" / "exactly-once.md").read_text()
    quoted = [words.split(" ... ") for words in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)]
    for refusal in set(CommitRefusal) - {
        CommitRefusal.OVERTAKEN
    }:  # that one the sink answers by itself
        remedy = _REMEDIES[refusal]
        assert any(all(part in remedy for part in parts) for parts in quoted), refusal


def test_every_message_that_is_explained_is_one_of_the_code():
    page = (ROOT / "docs" / "explanation" / "exactly-once.md").read_text()
    sources = (ROOT / "src" / "holdfast").rglob("*.py")
    code = re.sub(r'"\s*\n\s*f?"', "", "".join(path.read_text() for path in sources))
    quoted = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    assert len(quoted) > 5
    missing = [part for words in quoted for part in words.split(" ... ") if part not in code]
    assert not missing


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - PAGES_OF_THEIR_OWN))
def test_every_option_of_a_command_is_on_its_page_and_no_other(name: str):
    page = (REFERENCE / "commands.md").read_text()
    (heading,) = re.findall(rf"^## (`holdfast {name}\b.*`)$", page, re.MULTILINE)
    found = importlib.import_module(COMMANDS[name][0]).command
    several = found.commands.values() if isinstance(found, click.Group) else [found]
    options = [p for one in several for p in one.params if isinstance(p, click.Option)]
    assert first_column(page, heading) == {option.opts[0] for option in options}


def options_of(name: str) -> set[str]:
    found = importlib.import_module(COMMANDS[name][0]).command
    several = found.commands.values() if isinstance(found, click.Group) else [found]
    both = [[*p.opts, *p.secondary_opts] for one in several for p in one.params]
    return {"--help", *(name for names in both for name in names)}


def test_every_command_line_in_the_docs_has_options_that_are_there():
    unknown: list[str] = []
    lines = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```(?:sh)?\n(.*?)```", page.read_text(), re.DOTALL):
            for name, rest in re.findall(r"\bholdfast ([a-z]+)\b([^\n#&]*)", block):
                if name not in COMMANDS:
                    unknown.append(f"{page.name}: holdfast {name}")
                    continue
                lines += 1
                for option in set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - options_of(name):
                    unknown.append(f"{page.name}: holdfast {name} {option}")
    assert lines > 20
    assert not unknown


def test_every_pipeline_and_every_sink_in_the_docs_can_be_read(tmp_path: Path):
    found = sinks = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```toml[^\n]*\n(.*?)```", page.read_text(), re.DOTALL):
            path = tmp_path / "orders.toml"
            path.write_text(textwrap.dedent(block))
            if "[serve]" in block:
                assert read_serve_file(path, command)[0]["store_url"]
                continue
            if "group.id" in block:
                assert read_sink(path).member.topics == ("orders",)
                sinks += 1
                continue
            assert read_pipeline(path).options.selection == options.Subscribe(("orders",))
            found += 1
    assert found > 1
    assert sinks > 1


def anchors_of(page: Path) -> set[str]:
    """What links to a page can name: its headings, as GitHub spells them, and its `<a id>`s."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    spelled = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    return spelled | set(re.findall(r'<a id="([^"]+)">', text))


def test_every_relative_link_in_the_docs_leads_somewhere():
    broken: list[str] = []
    anchors = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text())
        for path, anchor in links:
            if "://" in path:
                continue
            target = page.parent / path if path else page
            anchors += bool(anchor)
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{page.relative_to(ROOT)} -> {path}#{anchor}")
    assert not broken
    assert anchors > 50


README_WORDS_MAX = 1_100


def test_the_readme_is_short():
    words = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(), flags=re.DOTALL).split()
    assert len(words) < README_WORDS_MAX


def test_the_costs_of_s3_follow_from_its_prices_and_the_formula():
    page = (ROOT / "docs" / "how-to" / "estimate-s3-cost.md").read_text()
    (price,) = re.findall(r"a PUT costs ([\d.]+) USD per 1,000", page)
    (hours,) = re.findall(r"months of (\d+) hours", page)
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == 4
    for setting, puts, usd in rows:
        found = int(puts.replace(",", ""))
        digits = len(usd.partition(".")[2])
        assert float(usd) == round(found / 1_000 * float(price) * int(hours), digits), setting
        formula = re.fullmatch(
            r"(\w+) lanes?, `--linger-ms (\d+)` .* uploads of (\d+) ms\)", setting
        )
        if formula is not None:
            lanes = {"one": 1, "four": 4}[formula[1]]
            exact = lanes * 3_600_000 / (int(formula[2]) + int(formula[3]))
            assert abs(found - exact) < exact / 100, setting
        else:
            measured = (REFERENCE / "benchmarks-handoff.md").read_text()
            assert "(measured)" in setting
            assert f" {puts} |" in measured, setting


def test_the_memory_that_capacity_is_planned_with_is_the_default():
    (memory,) = (option for option in command.params if option.name == "memory_mib")
    page = (ROOT / "docs" / "how-to" / "plan-capacity.md").read_text()
    assert f"`--memory` ({memory.default} MiB by default)" in page


def test_every_page_is_on_the_list_of_pages():
    listed = (ROOT / "docs" / "README.md").read_text()
    found = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    pages = [path.as_posix() for path in found if path.parts[0] not in ("adr", "README.md")]
    assert len(pages) > 20
    assert not [page for page in pages if f"]({page})" not in listed]


def test_every_target_of_make_that_people_call_is_in_the_table_of_commands():
    table = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(
        r"^([a-z-]+): \$\(STAMP\) ##", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert len(targets) > 5
    assert not [name for name in targets if f"`make {name}" not in table]


def test_every_source_file_that_an_explanation_names_is_there():
    pages = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs" / "explanation").glob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page.read_text())
    }
    assert len(named) > 100
    assert not [name for name in named if not (ROOT / "src" / "holdfast" / name).exists()]


ARCHITECTURE_WORDS_MAX = 2_000
PRODUCE_FILES_MAX = 20
PATHS = ("Produce", "Fetch", "Offset commit", "Micro-batch", "Sink record")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def test_the_architecture_is_short():
    words = (ROOT / "ARCHITECTURE.md").read_text().split()
    assert len(words) <= ARCHITECTURE_WORDS_MAX


def section_of(page: str, heading: str) -> str:
    """The text below a heading of the third level."""
    (found,) = re.findall(rf"^### {heading}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return found


class Step(NamedTuple):
    """One line of a path."""

    file: str
    function: str
    """As its `__qualname__` is: the class comes before a method."""


def steps_of(section: str) -> list[tuple[Step | None, Step]]:
    """Each line of a path, after the line that it is indented under."""
    above: list[Step] = []
    found: list[tuple[Step | None, Step]] = []
    for indent, file, name in re.findall(r"^( *)- `(\S+\.py)` `(\S+)`:", section, re.MULTILINE):
        depth = len(indent) // 2
        assert depth <= len(above), f"{file} {name} is indented too far"
        above[depth:] = [Step(file, name)]
        found.append((above[depth - 1] if depth else None, above[depth]))
    return found


@functools.cache
def functions_of(file: str) -> dict[str, FunctionNode]:
    """The functions and methods of a file."""
    tree = ast.parse((ROOT / "src" / "holdfast" / file).read_text())
    found: dict[str, FunctionNode] = {}
    for node in tree.body:
        if isinstance(node, FunctionNode):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, FunctionNode)]
            found |= {f"{node.name}.{method.name}": method for method in methods}
    return found


def called_in(function: FunctionNode) -> set[tuple[str, str]]:
    """Each name that a function calls, or passes on to be called, with what stands before it."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    named = [call.func for call in calls]
    for call in calls:
        named += [*call.args, *(keyword.value for keyword in call.keywords)]
    found: set[tuple[str, str]] = set()
    for node in named:
        if isinstance(node, ast.Name):
            found.add(("", node.id))
        elif isinstance(node, ast.Attribute):
            found.add((ast.unparse(node.value), node.attr))
    return found


def reached_from(step: Step) -> set[str]:
    """The names that a function calls: itself, or through functions of its file that it calls."""
    functions = functions_of(step.file)
    names: set[str] = set()
    seen = {step.function}
    waiting = [step.function]
    while waiting:
        function = waiting.pop()
        class_name = function.rpartition(".")[0]
        for before, name in called_in(functions[function]):
            names.add(name)
            local = f"{class_name}.{name}" if before == "self" else name if not before else ""
            if local in functions and local not in seen:
                seen.add(local)
                waiting.append(local)
    return names


@pytest.mark.parametrize("heading", PATHS)
def test_each_line_of_a_path_in_the_architecture_is_called_by_the_line_above_it(heading: str):
    section = section_of((ROOT / "ARCHITECTURE.md").read_text(), heading)
    steps = steps_of(section)
    bullets = re.findall(r"^ *- .*", section, re.MULTILINE)
    lists_of_files = [line for line in bullets if re.match(r"- [a-z, ]+: `", line)]
    assert len(steps) + len(lists_of_files) == len(bullets), "a line of another form"
    assert 10 <= len(steps) <= 24
    missing = [step for _, step in steps if step.function not in functions_of(step.file)]
    assert not missing
    for parent, step in steps:
        if parent is not None:
            name = step.function.rpartition(".")[2]
            assert name in reached_from(parent), f"{parent} does not call {step}"


def test_a_produce_crosses_few_files():
    section = section_of((ROOT / "ARCHITECTURE.md").read_text(), "Produce")
    assert len({step.file for _, step in steps_of(section)}) <= PRODUCE_FILES_MAX


PRODUCE_VERSION = 10
MIB = 1024 * 1024


def produce_frame(partition: int) -> bytes:
    records = encode_batch(
        [Record(0, SystemEnvironment().now_ms(), None, b"v")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    request = produce_request({("t", partition): bytearray(records)})
    header = struct.pack(">hhihB", ApiKey.PRODUCE, PRODUCE_VERSION, partition, -1, 0)
    body = header + b"".join(bytes(part) for part in request.encode(PRODUCE_VERSION))
    return struct.pack(">i", len(body)) + body


async def files_of_a_produce(store_url: str) -> set[str]:
    """The files of the package that the second produce over a connection enters."""
    entered: set[str] = set()
    is_on = False
    package = f"{ROOT / 'src' / 'holdfast'}/"

    def enter(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if is_on and event == "call" and name.startswith(package):
            entered.add(name.removeprefix(package))

    environment = SystemEnvironment()
    threading.setprofile(enter)
    try:
        store = open_store(store_url, environment=environment)
        settings = BrokerSettings(broker_id=BrokerId(0), host="127.0.0.1", port=0)
        broker = Broker(store=store, environment=environment, settings=settings)
        await broker.start()
        await topic(broker, partitions=2)
        gate = Gate()
        gate.let_brokers_in(Dispatch(broker))
        gate.open()
        loop = asyncio.get_running_loop()
        host = ConnectionHost(
            dispatcher=gate,
            served=SERVED,
            limits=ServerLimits(),
            memory=RequestMemory(MIB),
            replies=ReplyMemory(MIB),
            scratch=memoryview(bytearray(MIB)),
            loop=loop,
        )
        listening = await loop.create_server(
            lambda: TcpConnection(host, "clients", lambda: None), "127.0.0.1", 0
        )
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for partition in range(2):  # the first one compiles the codecs
            frame = produce_frame(partition)
            is_on = partition == 1
            sys.setprofile(enter if is_on else None)
            writer.write(frame)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = ProduceResponse.decode((await reader.readexactly(size))[5:], PRODUCE_VERSION)
            sys.setprofile(None)
            is_on = False
            assert answer.responses[0].partition_responses[0].error_code == 0
        writer.close()
        listening.close()
        await broker.stop(release=True)
        await store.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def test_the_architecture_names_every_file_that_a_produce_enters(tmp_path: Path):
    section = section_of((ROOT / "ARCHITECTURE.md").read_text(), "Produce")
    entered = asyncio.run(files_of_a_produce(f"file://{tmp_path}"))
    assert not entered ^ set(re.findall(r"`(\S+\.py)`", section))


def test_every_example_that_the_docs_name_is_there():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    named = set(re.findall(r"examples[./]([a-z_]+)", text))
    assert named
    assert not [name for name in named if not (ROOT / "examples" / f"{name}.py").exists()]
