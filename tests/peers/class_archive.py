"""What a JVM has loaded once Spark is warm, as an archive: every later start of Spark begins there.

`python -m tests.peers.class_archive` makes it, once for each Java and Spark, in the environment
that has this Spark. The tests use it where it is there: a JVM of Spark then costs half the CPU.
"""

import hashlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tests.peers.jars import QUICK_START, PeerUnavailable, java_command

WARM_UP = """
import tempfile
import holdfast.spark

spark = holdfast.spark.session("local[2]", config={"spark.driver.memory": "1g"})
spark.range(1000).selectExpr("id", "id % 7 AS k").groupBy("k").count().collect()
with tempfile.TemporaryDirectory() as checkpoint:
    query = spark.readStream.format("rate").load().writeStream
    query = query.foreachBatch(lambda frame, number: frame.count())
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(120)
spark.stop()
"""
SECONDS_MAX = 600
VARIABLE = "SPARK_SUBMIT_OPTS"


def archive_file() -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    java = Path(java_command()).resolve()
    parts = [str(java), str(java.stat().st_mtime_ns), metadata.version("pyspark")]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{digest}.jsa"


def use_archive() -> None:
    """Let the Sparks that this process and its children start begin at the archive."""
    try:
        file = archive_file()
    except PeerUnavailable:
        return
    if file.exists():
        os.environ.setdefault(VARIABLE, f"-XX:SharedArchiveFile={file} -Xlog:cds=off")


def make_archive() -> None:
    file = archive_file()
    if file.exists():
        return
    made = file.with_suffix(f".{os.getpid()}")
    variables = {
        **os.environ,
        VARIABLE: f"-XX:ArchiveClassesAtExit={made} -Xlog:cds=off -Xlog:cds+dynamic=off",
        "JDK_JAVA_OPTIONS": " ".join(QUICK_START),
    }
    subprocess.run(
        [sys.executable, "-c", WARM_UP],
        env=variables,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if made.exists():
        made.rename(file)


if __name__ == "__main__":
    try:
        make_archive()
    except PeerUnavailable as unavailable:
        print(unavailable)
