"""Every example, run by the lines that it begins with, where only what they install is there."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.page_blocks import installed_by
from tests.support.shared_environments import SharedEnvironments

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
CLIENTS = ["produce_consume", "with_kafka_python", "with_aiokafka"]
PIPELINES = [
    "produce_orders.py",
    "stream_to_parquet.py",
    "read_landed.py",
    "read_by_time.py",
    "instead_of_sparks_source.py",
    "order_totals.py",
    "order_totals.toml",
]
SECONDS_MAX = 800
LINES_MAX = 60
COUNT = 10_000
DEMO_ZEROS = ("lost", "hidden", "rewound", "doubled")


def lines_of(name: str) -> list[str]:
    """The commands that a program names at its beginning: what is indented there."""
    text = (EXAMPLES / name).read_text()
    if name.endswith(".py"):
        text = ast.get_docstring(ast.parse(text), clean=False) or ""
    else:
        text = "\n".join(line[1:] for line in text.splitlines() if line.startswith("#"))
    lines = [line.strip() for line in text.splitlines() if line.startswith("   ")]
    assert lines, f"{name} does not say how it is run"
    return lines


def page_of(lines: list[str], *, before: str = "") -> str:
    """A page whose reader does what programs say, with the broker in a terminal of its own."""
    installs = [line for line in lines if line.startswith("pip ")]
    (serve,) = {line for line in lines if line.startswith("holdfast serve")}
    others = [line for line in lines if line not in installs and line != serve]
    notes = ["<!-- not run: the environment has it -->", "<!-- keeps running until: is ready -->"]
    shells = ["\n".join(installs), serve, "\n".join(others)]
    blocks = [f"```sh\n{shell}\n```\n" for shell in shells]
    return f"{notes[0]}\n{blocks[0]}\n{notes[1]}\n{blocks[1]}\n{blocks[2]}\n{before}"


def shown_by(page: str, environments: SharedEnvironments, folder: Path) -> list[str]:
    """What the reader of a page sees, who has done all that it says."""
    file = folder / "page.md"
    file.write_text(page)
    run_page = [sys.executable, "-m", "tests.docs.run_page", str(file), "--show"]
    done = subprocess.run(
        [*run_page, "--environments", str(environments.folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout.splitlines()[:-1]


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_each_client_reads_back_what_it_produced(environments: SharedEnvironments, tmp_path: Path):
    runs = [lines_of(f"{name}.py") for name in CLIENTS] * 2
    shown = shown_by(page_of([line for lines in runs for line in lines]), environments, tmp_path)
    assert [lines[-1] for lines in runs[:3]] == [f"python examples/{name}.py" for name in CLIENTS]
    hello = [f"hello {i}" for i in range(10)]
    for number in range(len(runs)):
        begins = f"produced 10 records from offset {10 * number} on"
        assert shown[11 * number : 11 * number + 11] == [begins, *hello]
    assert len(shown) == 11 * len(runs)


@pytest.mark.parametrize("name", [*(f"{name}.py" for name in CLIENTS), *PIPELINES])
def test_an_example_is_short(name: str):
    assert len((EXAMPLES / name).read_text().splitlines()) < LINES_MAX


IN_ONE_PROCESS = """```python
import os
import runpy
import shlex
import sys

for line in {lines}:
    program, *sys.argv = shlex.split(line)
    if program == "python":
        assert sys.argv.pop(0) == "-m"
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        continue
    sys.argv.insert(0, program)
    try:
        runpy.run_path(os.path.join(os.path.dirname(sys.executable), program), run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
```
"""
"""What each line does, in one process: a Spark for each would take most of the time."""
COUNT_TOTALS = """
```sh
python -c 'import deltalake as d; print(d.DeltaTable("data/lake/data/order-totals").count(), "ids")'
```
"""


@pytest.mark.spark
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_the_examples_on_spark_give_each_record_and_each_order_once(
    environments: SharedEnvironments, tmp_path: Path
):
    headers = {name: lines_of(name) for name in PIPELINES}
    on_spark = [line for name in PIPELINES[1:] for line in headers[name] if is_on_spark(line)]
    stream = on_spark[0]
    assert len(on_spark) == len(set(on_spark)) + 1, "the totals say their line twice"
    first = [line for lines in headers.values() for line in lines if line.startswith("pip ")]
    page = page_of(
        [*first, *headers["produce_orders.py"]],
        before=IN_ONE_PROCESS.format(lines=[stream, *dict.fromkeys(on_spark)]) + COUNT_TOTALS,
    )
    lines = shown_by(page, environments, tmp_path)
    orders, repeats = COUNT * 4 // 5, COUNT // 5
    assert lines[0] == f"{COUNT} records acknowledged, of {orders} orders"
    counts = "rows read, kept and held back as duplicates:"
    assert [line for line in lines if line.startswith(counts)] == [
        f"{counts} {COUNT} {orders} {repeats}",
        f"{counts} 0 0 0",
    ]
    landed = rf"{orders} rows in \d+ files; columns key, value, topic, partition"
    assert [line for line in lines if re.match(landed, line)]
    assert f"partition 0: {COUNT} records, 0 to {COUNT - 1}" in lines
    assert f"rows in Spark's own Parquet sink: {COUNT}" in lines
    assert lines[-1] == f"{orders} ids"


def is_on_spark(line: str) -> bool:
    return not line.startswith(("pip ", "holdfast serve", "python -m examples.produce_orders"))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_counts_nothing_wrong_and_shows_where_to_look(
    environments: SharedEnvironments, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    install, line = lines_of("demo.py")
    installed = installed_by(install)
    bare = environments.get(installed.extra, tools=installed.tools)
    copy = tmp_path_factory.mktemp("clone")
    shutil.copytree(EXAMPLES, copy / "examples")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        where = {"PYTHONPATH": str(copy), "TMPDIR": str(tmp_path)}
        return bare.run(*shlex.split(line), seconds_max=SECONDS_MAX, **where)

    done = run(line)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(re.findall(r"^  (\w+) +(\d+)   ", done.stdout, flags=re.MULTILINE))
    assert {rows[name] for name in DEMO_ZEROS} == {"0"}
    acked, landed = (
        int(found.replace(",", ""))
        for found in re.findall(r"^ +([\d,]+)  (?:records|orders) ", done.stdout, re.MULTILINE)
    )
    assert acked > 1000
    assert 0 < landed < acked
    assert len(re.findall(r"broker \d was drained in ", done.stdout)) == 1
    assert len(re.findall(r"SIGKILL of broker \d after", done.stdout)) == 1
    assert done.stdout.count("SIGKILL of the driver ") == 1
    looked = re.search(r"-m (examples.read_landed --lake (\S+) --sink \w+)", done.stdout)
    assert looked is not None
    again = run(f"python -m {looked[1]}")
    assert again.stdout.startswith(f"{landed} rows in "), again.stderr
    assert looked[2].startswith(str(tmp_path))
    assert [path.name.startswith("holdfast-demo-") for path in tmp_path.iterdir()].count(True) == 1
