"""A source whose input says, for as long as a file is there, that its logs are shorter.

In a module of its own, so that Spark's planning process can import it by name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.spark.source.data_source import HoldfastSource
from holdfast.spark.source.inputs import (
    DEFAULT_PLAN,
    Input,
    Offsets,
    PlanOptions,
    Range,
    SourcePartition,
)
from holdfast.spark.source.options import SourceOptions


class LyingInput:
    """Everything as it is, but for the newest offset."""

    def __init__(self, source: Input, lie: Path) -> None:
        self._source = source
        self._lie = lie

    def topics(self) -> dict[str, Any]:
        return self._source.topics()

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        return self._source.earliest(partitions)

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        truth = self._source.latest(partitions)
        try:
            told = int(self._lie.read_text())
        except FileNotFoundError:
            return truth
        (self._lie.parent / "told").touch()
        return {where: min(offset, told) for where, offset in truth.items()}

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        return self._source.by_timestamp(at_ms)

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        return self._source.plan(start, end, options)

    def close(self) -> None:
        self._source.close()


class LyingSource(HoldfastSource):
    """Holdfast's source; where it lies is the client id, for want of an option of its own."""

    @classmethod
    def name(cls) -> str:
        return "lying"

    @classmethod
    def open_input(cls, options: SourceOptions) -> Input:
        return LyingInput(HoldfastSource.open_input(options), Path(options.client["client.id"]))
