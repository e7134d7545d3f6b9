"""A pipeline file, and a run of it on the Spark that all tests share."""

import threading
from pathlib import Path
from typing import Any

from holdfast.environment import SystemEnvironment
from holdfast.spark.ledger.checkpoint_folder import local_folder
from holdfast.spark.pipelines.file import read_pipeline
from holdfast.spark.pipelines.preflight import check_pipeline
from holdfast.spark.pipelines.progress import PlainLines, RunTotals
from holdfast.spark.pipelines.run import RunningPipeline, begin_text, where_to_begin


def written(folder: Path, text: str, name: str = "p.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


class Here:
    """A pipeline on the Spark that all tests share."""

    def __init__(self, spark: Any, file: Path, *, log: Path | None = None) -> None:
        self.spark = spark
        self.file = file
        self.log = log or file.parent / "log"
        self.began = ""

    def run(self, *overrides: str) -> RunTotals:
        pipeline = read_pipeline(self.file, overrides, once=True)
        ready = check_pipeline(pipeline)
        folder = local_folder(pipeline.checkpoint)
        assert folder is not None
        begin = where_to_begin(pipeline, ready, folder)
        self.began = begin_text(begin, folder)
        environment = SystemEnvironment()
        run = RunningPipeline(
            self.spark, pipeline, begin=begin, source=ready.source, environment=environment
        )
        with self.log.open("a") as log:
            assert not run.watch(threading.Event(), PlainLines(log))
        return run.totals
