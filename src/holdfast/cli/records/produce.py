"""`holdfast topic produce`: write the lines of a file or of standard input to a topic.

Owns the options, and the report at the end: how many records are in the topic.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.asking import run_with_cluster
from holdfast.cli.options import bootstrap_option, examples, json_option
from holdfast.cli.records.producing import ProduceOptions, Sent, produce_lines
from holdfast.cli.records.record_lines import separator_bytes
from holdfast.cli.suggestions import SuggestingChoice
from holdfast.cli.tables import echo_json
from holdfast.client.produce import ACKS_ALL, ACKS_LEADER
from holdfast.errors import ConfigurationError
from holdfast.records.compression import Codec

EXIT_INTERRUPTED = 130
ACKS = {"all": ACKS_ALL, "1": ACKS_LEADER}


@click.command(
    epilog=examples(
        """echo '{"id": 1}' | holdfast topic produce orders""",
        "holdfast topic produce orders orders.txt --key-separator :",
        "holdfast topic consume orders --json | holdfast topic produce copy --format json",
    )
)
@click.argument("topic")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--format",
    "format_",
    default="text",
    show_default=True,
    type=SuggestingChoice(["text", "json"]),
    help="text: each line is a value. json: each line is an object with key, value, headers,"
    " timestamp and partition.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Each line is KEY, this text, VALUE. \\t is a tab. For --format text.",
)
@click.option("--key", help="The key of records that have no key of their own.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add this header to every record. Can be repeated.",
)
@click.option(
    "--partition",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Write to this partition, whatever the key.",
)
@click.option(
    "--acks",
    default="all",
    show_default=True,
    type=SuggestingChoice(list(ACKS)),
    help="When a record counts as written, as in Kafka.",
)
@click.option(
    "--compression",
    default="none",
    show_default=True,
    type=SuggestingChoice([codec.name.lower() for codec in Codec]),
    help="How record batches are compressed.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Write all of the input in one transaction with this id.",
)
@json_option
@bootstrap_option
def produce(
    topic: str, file: Path | None, as_json: bool, bootstrap: str, format_: str, **given: Any
) -> None:
    """Write lines to TOPIC, one record for each line.

    Reads FILE, or standard input without one. A record with a key goes to the partition that
    Kafka's clients choose for that key. A record without a key goes to any partition.
    """
    wanted = _wanted(topic, as_json=format_ == "json", **given)
    descriptor = sys.stdin.fileno() if file is None else _opened(file)
    if os.isatty(descriptor):
        click.echo("Type one record per line. Ctrl-D ends the input.", err=True)
    sent = run_with_cluster(bootstrap, lambda cluster: produce_lines(cluster, wanted, descriptor))
    if as_json:
        rows = [sent.partitions[number] for number in sorted(sent.partitions)]
        echo_json({"topic": topic, "records": sent.records, "partitions": rows})
    else:
        click.echo(_said(sent))
    if sent.is_interrupted:
        click.echo("interrupted: the rest of the input was not produced", err=True)
        sys.exit(EXIT_INTERRUPTED)


def _wanted(
    topic: str,
    *,
    as_json: bool,
    key_separator: str | None,
    key: str | None,
    headers: Sequence[str],
    partition: int | None,
    acks: str,
    compression: str,
    transactional_id: str | None,
) -> ProduceOptions:
    if key_separator == "":
        raise click.UsageError(
            "--key-separator is empty: give the text that stands between key and value"
        )
    if as_json and key_separator is not None:
        raise click.UsageError(
            "--key-separator is for --format text. With --format json, the key is a field of each"
            " line: remove one of the two options"
        )
    if acks != "all" and transactional_id is not None:
        raise click.UsageError("--transactional-id needs --acks all: remove --acks")
    return ProduceOptions(
        topic=topic,
        as_json=as_json,
        separator=None if key_separator is None else separator_bytes(key_separator),
        key=None if key is None else key.encode(),
        headers=tuple(_header(text) for text in headers),
        partition=partition,
        acks=ACKS[acks],
        codec=Codec[compression.upper()],
        transactional_id=transactional_id,
    )


def _header(text: str) -> tuple[str, bytes]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()


def _opened(file: Path) -> int:
    if str(file) == "-":
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None


def _said(sent: Sent) -> str:
    records = "1 record" if sent.records == 1 else f"{sent.records} records"
    parts = ", ".join(f"{n}: {sent.partitions[n].records}" for n in sorted(sent.partitions))
    where = f" (by partition: {parts})" if len(sent.partitions) > 1 else ""
    return f"produced {records} to topic {sent.topic}{where}"
