"""`holdfast serve`: run a broker until a signal stops it, or another broker takes its lanes.

Owns the options of the command line.
"""

import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.options import examples
from holdfast.cli.server.log_format import LogFormat, set_up_logging
from holdfast.cli.server.loop import end_process, run_loop
from holdfast.cli.server.serve_file import overrides_of, read_config
from holdfast.cli.server.serving import SWITCH_INTERVAL_S, ServeOptions, serve
from holdfast.cli.suggestions import SuggestingChoice


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


@click.command(
    epilog=examples(
        "holdfast serve --store /var/lib/holdfast",
        "holdfast serve --store s3://bucket/prod --listen 0.0.0.0:9092 --advertise kafka-1:9092",
        "holdfast serve --config broker.toml",
    )
)
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="A TOML file with these options in [serve] and Kafka's settings in [override]. Options of"
    " the command line win.",
)
@_option(
    "--store",
    "store_url",
    required=True,
    metavar="URL",
    help="Where the log is kept: a directory, s3://, gs:// or az://, or memory:// for tests.",
)
@_option(
    "--listen",
    default="127.0.0.1:9092",
    metavar="HOST:PORT",
    help="The address for clients. Port 0 chooses a free port.",
)
@_option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that clients are told to connect to, where it differs from --listen.",
)
@_option(
    "--id",
    "broker_id",
    default=0,
    type=click.IntRange(0),
    metavar="NUMBER",
    help="The id of this broker (broker.id).",
)
@_option(
    "--lanes",
    type=click.IntRange(1, 1000),
    metavar="NUMBER",
    help="The number of data lanes of a new store. Without it: 1 on a directory, 4 on a remote"
    " store. Each lane has one owner, so several brokers need several lanes.",
)
@_option("--rack", metavar="NAME", help="The rack of this broker (broker.rack).")
@_option(
    "--linger-ms",
    type=click.IntRange(0, 60_000),
    metavar="MS",
    help="How long records are gathered into one object. Without it: 5 on a directory, 100 on a"
    " remote store.",
)
@_option(
    "--memory",
    "memory_mib",
    default=640,
    type=click.IntRange(16),
    metavar="MIB",
    help="Memory for caches: the newest records, and records read back from the store.",
)
@_option(
    "--num-partitions",
    default=1,
    type=click.IntRange(1, 10_000),
    metavar="NUMBER",
    help="Partitions of a topic that is created without a number (num.partitions).",
)
@_option(
    "--auto-create-topics/--no-auto-create-topics",
    default=True,
    help="Create a topic when a client first uses it (auto.create.topics.enable).",
)
@_option(
    "--claim-valid-ms",
    default=5_000,
    type=click.IntRange(100, 600_000),
    metavar="MS",
    help="How long a broker may answer reads before it checks again that it still owns the lane.",
)
@_option(
    "--rejoin-wait-ms",
    default=10_000,
    type=click.IntRange(0, 600_000),
    metavar="MS",
    help="How long a restarted broker waits before it takes back lanes that others serve. Clients"
    " need this time to connect to it again (reconnect.backoff.max.ms).",
)
@_option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve /live, /ready and /metrics (Prometheus) over HTTP at this address.",
)
@_option(
    "--spool",
    metavar="DIRECTORY",
    help="A directory on a local disk for topics with holdfast.ack=disk. Never delete it: it may"
    " hold acknowledged records that are not in the store yet.",
)
@_option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of groups or transactions by Kafka's name, such as"
    " group.initial.rebalance.delay.ms=0. Can be repeated.",
)
@_option(
    "--log-level",
    default="INFO",
    type=SuggestingChoice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    help="The least important log lines to show.",
)
@_option(
    "--log-format",
    default="text",
    type=SuggestingChoice(["text", "json"]),
    help="Log lines as text, or as one JSON object per line.",
)
@click.pass_context
def command(context: click.Context, log_level: str, log_format: LogFormat, **options: Any) -> None:
    """Run a broker.

    Prints one line when the broker is ready. SIGTERM and SIGINT stop it cleanly: it answers the
    requests that it has accepted and hands its lanes over. Start more brokers on the same store,
    each with its own --id, to form a cluster.
    """
    set_up_logging(log_level, log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    options["overrides"] = (*overrides_of(context), *options["overrides"])
    end_process(run_loop(serve(ServeOptions(**options))))
