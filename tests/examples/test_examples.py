"""Every example, run as its reader would run it, against a real broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.holdfast import HoldfastBroker

ROOT = Path(__file__).parent.parent.parent
CLIENTS = ["produce_consume", "with_kafka_python", "with_aiokafka"]
PIPELINES = [
    "produce_orders",
    "stream_to_parquet",
    "read_by_time",
    "instead_of_sparks_source",
    "read_landed",
    "order_totals",
]
LINES_MAX = 60
COUNT = 500
DEMO_ZEROS = ("lost", "hidden", "rewound", "doubled")


def run(
    arguments: list[str], *, seconds_max: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_reads_back_what_it_produced(holdfast_broker: HoldfastBroker, name: str):
    arguments = [f"examples/{name}.py", "--bootstrap", holdfast_broker.bootstrap, "--topic", name]
    for offset in (0, 10):
        done = run(arguments, seconds_max=90)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == f"produced 10 records from offset {offset} on"
        assert lines[1:] == [f"hello {i}" for i in range(10)]


@pytest.mark.parametrize("name", [*CLIENTS, *PIPELINES])
def test_an_example_is_short(name: str):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < LINES_MAX


IN_ONE_PROCESS = """
import sys
from examples import instead_of_sparks_source, read_by_time, read_landed, stream_to_parquet
store, bootstrap, topic, folder = sys.argv[1:]
lake = ["--lake", folder + "/lake"]
for _ in range(2):
    stream_to_parquet.main(["--store", store, "--topic", topic, *lake, "--once",
                            "--checkpoint", folder + "/first"])
read_landed.main([*lake, "--sink", topic])
read_by_time.main(["--store", store, "--topic", topic])
instead_of_sparks_source.main(["--bootstrap", bootstrap, "--topic", topic,
                               "--output", folder + "/plain", "--checkpoint", folder + "/second"])
"""


@pytest.mark.xdist_group("spark")
def test_the_examples_on_spark_give_each_record_and_each_order_once(
    holdfast_broker: HoldfastBroker, tmp_path: Path
):
    topic = "examples-on-spark"
    orders, repeats = COUNT * 4 // 5, COUNT // 5
    where = [holdfast_broker.store, holdfast_broker.bootstrap]
    arguments = ["--bootstrap", where[1], "--topic", topic, "--count", str(COUNT)]
    done = run(["-m", "examples.produce_orders", *arguments], seconds_max=60)
    assert done.stdout == f"{COUNT} records acknowledged, of {orders} orders\n", done.stderr
    done = run(["-c", IN_ONE_PROCESS, *where, topic, str(tmp_path)], seconds_max=240)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = "rows read, kept and held back as duplicates:"
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"{counts} {COUNT} {orders} {repeats}", f"{counts} 0 0 0"]
    assert re.match(rf"{orders} rows in \d+ files; columns key, value, topic, partition", lines[2])
    assert f"partition 0: {COUNT} records, 0 to {COUNT - 1}" in lines
    assert f"rows in Spark's own Parquet sink: {COUNT}" in lines


@pytest.mark.xdist_group("spark")
def test_the_demo_counts_nothing_wrong_and_shows_where_to_look(tmp_path: Path):
    arguments = ["-m", "examples.demo", "--seconds", "2", "--rate", "300"]
    done = run(arguments, seconds_max=280, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(re.findall(r"^  (\w+) +(\d+)  ", done.stdout, flags=re.MULTILINE))
    assert int(rows["acked"]) > 1000
    assert 0 < int(rows["landed"]) < int(rows["acked"])
    assert {rows[name] for name in DEMO_ZEROS} == {"0"}
    assert len(re.findall(r"broker \d was drained in ", done.stdout)) == 1
    assert len(re.findall(r"SIGKILL of broker \d after", done.stdout)) == 1
    assert done.stdout.count("SIGKILL of the driver ") == 1
    looked = re.search(r"-m (examples.read_landed --lake (\S+) --sink \w+)", done.stdout)
    assert looked is not None
    again = run(["-m", *looked[1].split()], seconds_max=60)
    assert again.stdout.startswith(f"{rows['landed']} rows in "), again.stderr
    assert looked[2].startswith(str(tmp_path))
    assert [path.name.startswith("holdfast-demo-") for path in tmp_path.iterdir()].count(True) == 1
