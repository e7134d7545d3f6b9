"""An address that cannot be used ends each command that opens a store with one line, at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.spark.stores import made

HOLDFAST = Path(sys.executable).parent / "holdfast"
BACKFILL = "backfill --topic t --sink-id s"
COMMANDS = [
    "serve --listen 127.0.0.1:0 --store {url}",
    "inspect --store {url}",
    "landed {url}",
    "landed --sweep {url}",
    "compact --sink-id s {url}",
    "run run.toml --option source.store={url}",
    "run run.toml --option output.checkpoint=c --option output.to={url}",
    "sink sink.toml --option output.to={url}",
    "sink sink.toml --members 2 --option output.to={url}",
    BACKFILL + " --to lake --store {url}",
    BACKFILL + " --to {url} --store log",
]
RUN = '[source]\nstore = "log"\nsubscribe = "t"\n[output]\nto = "lake"\nsink_id = "s"\n'
SINK = (
    '[source]\nkafka.bootstrap.servers = "127.0.0.1:1"\nsubscribe = "t"\nkafka.group.id = "g"\n'
    '[output]\nto = "lake"\n'
)
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a topic, and files for the commands that want one."""
    made_in = tmp_path_factory.mktemp("commands")
    made(made_in / "log", lambda b: b.fill(2))
    (made_in / "run.toml").write_text(RUN)
    (made_in / "sink.toml").write_text(SINK)
    return made_in


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("127.0.0.1:8333", "write http://127.0.0.1:8333 or https://127.0.0.1:8333"),
        ("http://user:canary@127.0.0.1:8333", "carries credentials"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_one_line_with_the_remedy(
    folder: Path, words: str, endpoint: str, said: str
):
    """Also where a Spark would follow: its first line would name its log."""
    url = f"s3://bucket/x?endpoint={endpoint}"
    done = subprocess.run(
        [HOLDFAST, *words.format(url=url).split()],
        cwd=folder,
        env={**os.environ, **KEYS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert said in line
    assert "canary" not in line
