"""`holdfast run` and `holdfast backfill` before a Spark starts: what is told, and the exit code."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.process import free_port
from tests.unit.spark.stores import TOPIC, made

HOLDFAST = Path(sys.executable).parent / "holdfast"
Done = subprocess.CompletedProcess[str]


def holdfast(*arguments: str, cwd: Path) -> Done:
    return subprocess.run(
        [str(HOLDFAST), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path / "log", lambda b: b.fill(2))
    (tmp_path / "p.toml").write_text(
        f'[source]\nstore = "log"\nsubscribe = "{TOPIC}"\n[dedup]\nby = "value"\n'
        '[output]\nto = "lake"\nsink_id = "s"\n'
    )
    return tmp_path


def test_a_dry_run_says_what_would_run_and_starts_nothing(folder: Path):
    done = holdfast("run", "p.toml", "--dry-run", "--once", cwd=folder)
    assert done.returncode == 0, done.stderr
    for part in (TOPIC, "40 records", "by value, for ever", "sink s", "once", "a first run"):
        assert part in done.stdout
    assert {path.name for path in folder.iterdir()} == {"log", "p.toml"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "q.toml"], 1, "did you mean p.toml?"),
        (["run", "."], 1, "is a directory: name a file in it"),
        (["run", "p.toml", "--option", "dedup.by=id"], 1, "--option dedup.by: "),
        (["run", "p.toml", "--option", "dedup.by=id"], 1, "JSON value is value.$.id, a header"),
        (["run", "p.toml", "--option", "dedup.by=value.id"], 1, "JSON value is value.$.id, a"),
        (["run", "p.toml", "--option", "dedup.by=valu.$.a.b"], 1, "JSON value is value.$.a.b, a"),
        (["landed", "log", "--topic", "u"], 2, "no chain of topic 'u'"),
        (["landed", "log"], 2, "nothing has landed"),
        (["run", "p.toml", "--option", "source.subscribe=u"], 1, "no topic 'u'"),
        (["run", "p.toml", "--option", "source.store=nowhere"], 1, "no directory"),
        (["backfill", "--topic", "t", "--to", "x", "--sink-id", "b"], 1, "one of --store"),
        (["backfill", "--topic", "t", "--to", "x"], 2, "--sink-id"),
        (
            ["backfill", "--store", "log", "--topic", "u", "--to", "x", "--sink-id", "b"],
            1,
            "no topic 'u'",
        ),
    ],
)
def test_an_error_is_one_line_with_a_remedy(
    folder: Path, arguments: list[str], code: int, said: str
):
    done = holdfast(*arguments, cwd=folder)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_that_does_not_answer_is_an_error_that_may_pass(folder: Path):
    address = f"127.0.0.1:{free_port()}"
    (folder / "k.toml").write_text(
        f'[source]\nkafka.bootstrap.servers = "{address}"\nsubscribe = "t"\n[output]\nto = "lake"\n'
    )
    done = holdfast("run", "k.toml", cwd=folder)
    assert done.returncode == 4
    assert address in done.stderr


@pytest.mark.parametrize("name", ["run", "backfill"])
def test_help_needs_neither_spark_nor_arrow(folder: Path, name: str):
    code = (
        "import sys\nfrom holdfast.cli.main import cli\n"
        f"try:\n    cli(['{name}', '--help'])\nexcept SystemExit:\n    pass\n"
        "loaded = {'pyspark', 'pyarrow', 'numpy', 'numba'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--master" in done.stdout
