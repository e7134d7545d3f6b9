"""What a session is given, and the package as a zip for executors."""

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.spark import pipeline
from holdfast.spark.runtime.executors import package_zip
from holdfast.spark.runtime.session import is_local


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", True), ("local[*]", True), ("local[2]", True), ("local-cluster[1,1,512]", False)],
)
def test_local_masters_are_those_of_one_process(master: str, expected: bool):
    assert is_local(master) is expected
    assert not is_local("spark://host:7077")


def test_the_zip_can_be_imported_and_is_the_same_each_time(tmp_path: Path):
    first = package_zip(tmp_path)
    body = first.read_bytes()
    assert package_zip(tmp_path) == first
    assert first.read_bytes() == body
    names = zipfile.ZipFile(first).namelist()
    assert "holdfast/spark/source/data_source.py" in names
    assert not [name for name in names if "__pycache__" in name]
    program = (
        f"import sys; sys.path.insert(0, {str(first)!r}); "
        "import holdfast.spark.source.data_source as source; print(source.__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert str(first) in run.stdout


def test_a_pipeline_in_a_session_of_spark_connect_is_refused_with_the_remedy():
    stream: Any = SimpleNamespace(sparkSession=SimpleNamespace())  # it has no sparkContext
    with pytest.raises(ConfigurationError, match=r"Spark Connect has none: .*holdfast run"):
        pipeline(stream)


def test_the_package_does_not_load_pyspark_by_itself():
    program = "import sys, holdfast.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "worker_module", ["pyspark.worker", "pyspark.sql.worker.create_data_source"]
)
def test_the_daemon_has_loaded_what_workers_need_and_started_no_thread(worker_module: str):
    script = (
        "import sys, threading\n"
        "from holdfast.spark.runtime.daemon import load\n"
        f"load({worker_module!r})\n"
        "assert 'holdfast.spark.source.data_source' in sys.modules\n"
        "print(threading.active_count(), 'numba' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.split(), done.stderr) == (
        ["1", str(worker_module == "pyspark.worker")],
        "",
    )
