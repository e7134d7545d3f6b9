"""The brokers that are compared: each is started alone, in a fresh folder, and measured."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KAFKA_DEFAULT_HEAP, KafkaBroker

Broker = KafkaBroker | HoldfastBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A broker with its settings; durable says whether a restart finds the log again."""

    name: str
    title: str
    open: Callable[[Path], Broker]
    durable: bool = True
    start_up: bool = False


# Tests do not wait for the first members of a group; the default of both brokers is 3 seconds.
INITIAL_DELAY = {"group.initial.rebalance.delay.ms": "3000"}


def _kafka(folder: Path) -> Broker:
    return KafkaBroker(folder, settings=INITIAL_DELAY, jvm_options=KAFKA_DEFAULT_HEAP)


def _kafka_flush(folder: Path) -> Broker:
    settings = {**INITIAL_DELAY, "log.flush.interval.messages": "1"}
    return KafkaBroker(folder, settings=settings, jvm_options=KAFKA_DEFAULT_HEAP)


def _holdfast_memory(folder: Path) -> Broker:
    return HoldfastBroker(folder, store="memory://")


VARIANTS = (
    Variant(
        name="kafka",
        title="Kafka with its defaults: it acknowledges from the page cache",
        open=_kafka,
        start_up=True,
    ),
    Variant(
        name="kafka-flush",
        title="Kafka with `log.flush.interval.messages=1`: it flushes before it acknowledges",
        open=_kafka_flush,
    ),
    Variant(
        name="holdfast-directory",
        title="Holdfast on a directory: it syncs to disk before it acknowledges",
        open=HoldfastBroker,
        start_up=True,
    ),
    Variant(
        name="holdfast-memory",
        title="Holdfast on `memory://`: what the broker costs without a disk",
        open=_holdfast_memory,
        durable=False,
    ),
)


def variants_named(prefixes: list[str]) -> list[Variant]:
    """All of them, or those of the given names; a word that is no name stands for its beginning."""
    names = {v.name for v in VARIANTS}
    return [
        v
        for v in VARIANTS
        if not prefixes
        or any(v.name == p if p in names else v.name.startswith(p) for p in prefixes)
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be said of the brokers, and of how often each is measured."""
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat: a smoke")
    parser.add_argument("--repeats", type=int, help="default 3, or 1 with --quick")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="variants whose name begins with this: " + ", ".join(v.name for v in VARIANTS),
    )
    parser.add_argument("--folder", help="where the brokers' folders go; default: the temp folder")
