"""`holdfast serve` as a process: its pages over HTTP, its config file, its log, its store."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import click
import pytest
from click.core import ParameterSource
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import Process, answers_api_versions, free_port, wait_until
from tests.support.disks import fill, small_disk

from holdfast.cli.server.serve import command
from holdfast.cli.server.serve_file import NOT_IN_FILES, PLACES, overrides_of
from holdfast.store.keys import RESERVE_FILE

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
SECONDS_MAX = 90.0


def get(port: int, path: str, *, method: str = "GET") -> tuple[int, str]:
    """Status and body; 0 where nobody listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_each_page_is_answered_by_its_name_and_all_other_paths_are_not_found(tmp_path):
    broker = HoldfastBroker(tmp_path).start()
    try:
        port = broker.metrics_port
        assert get(port, "/live") == (200, '{"live":true}\n')
        code, text = get(port, "/ready")
        assert (code, json.loads(text)["lanes"]) == (200, [0, 1])
        code, text = get(port, "/metrics")
        assert code == 200
        assert "holdfast_lane_number" in text
        for path in ("/", "/health", "/metrics/", "/livez"):
            assert get(port, path)[0] == 404, path
        assert get(port, "/ready", method="POST")[0] == 405
    finally:
        broker.stop()


def test_a_broker_is_live_and_not_ready_while_its_store_does_not_answer(tmp_path):
    """And a line says so within seconds, with the endpoint and the error, and no panic."""
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for name, port in (
            ("silent", silent.getsockname()[1]),
            ("closed", closed.getsockname()[1]),
        ):
            store = f"s3://bucket/x?endpoint=http://127.0.0.1:{port}&region=us-east-1"
            broker = HoldfastBroker(tmp_path / name, store=store, variables=KEYS)
            broker.launch()
            try:
                broker.process.wait_until(
                    lambda b=broker: "store_does_not_answer" in b.process.log_text(),
                    seconds_max=SECONDS_MAX,
                    what="a warning",
                )
                line = next(
                    line
                    for line in broker.process.log_text().splitlines()
                    if "store_does_not_answer" in line
                )
                assert f"endpoint=http://127.0.0.1:{port}" in line
                assert "calls=reads" in line
                assert int(line.partition("seconds=")[2].split()[0]) < 10
                assert "error=" in line
                assert get(broker.metrics_port, "/live")[0] == 200
                code, text = get(broker.metrics_port, "/ready")
                assert code == 503
                assert json.loads(text)["reason"].startswith("starting; reads: ")
                assert answers_api_versions("127.0.0.1", broker.port)
                assert "panicked" not in broker.process.log_text()
                assert "ready" not in broker.process.log_text()
            finally:
                broker.kill()


@pytest.mark.timeout(240)
def test_a_broker_restarted_on_a_full_disk_without_a_reserve_answers_and_recovers(tmp_path):
    with small_disk(tmp_path / "disk", mib=16) as disk:
        _restart_on_a_full_disk(tmp_path, disk)


def _restart_on_a_full_disk(tmp_path: Path, disk: Path) -> None:
    broker = HoldfastBroker(tmp_path, store=str(disk / "store")).start()
    produce(broker, "before")
    reserve = disk / "store" / RESERVE_FILE
    broker.process.wait_until(reserve.exists, seconds_max=SECONDS_MAX, what="a reserve")
    broker.kill()
    reserve.unlink()
    ballast = disk / "ballast"
    fill(ballast)
    broker.launch()
    broker.process.wait_until(
        lambda: answers_api_versions("127.0.0.1", broker.port),
        seconds_max=SECONDS_MAX,
        what="ApiVersions on a full disk",
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = admin.list_topics(timeout=60).topics
    assert (
        topics["orders"].partitions[0].error.retriable()
        or topics["orders"].partitions[0].leader < 0
    )
    said: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3_000})
    producer.produce("orders", b"refused", on_delivery=lambda error, _: said.append(error))
    producer.flush(30)
    assert [error.code() for error in said if error is not None] == [KafkaError._MSG_TIMED_OUT]
    assert get(broker.metrics_port, "/ready")[0] == 503
    assert "No space left on device" in get(broker.metrics_port, "/ready")[1]
    assert "store_does_not_answer" in broker.process.log_text()
    assert "calls=writes" in broker.process.log_text()
    ballast.unlink()
    broker.process.wait_until(
        lambda: get(broker.metrics_port, "/ready")[0] == 200,
        seconds_max=SECONDS_MAX,
        what="ready again",
    )
    produce(broker, "after")
    assert consume(broker) == [b"before", b"after"]
    # It is told at the next look at the store, which may come after the answers.
    broker.process.wait_until(
        lambda: "store_answers_again" in broker.process.log_text(),
        seconds_max=SECONDS_MAX,
        what="the log says that the store answers again",
    )
    broker.stop()


def produce(broker: HoldfastBroker, text: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[object] = []
    producer.produce("orders", text.encode(), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def consume(broker: HoldfastBroker) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    end = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30)[1]
    found = consumer.consume(end, timeout=30)
    consumer.close()
    return [message.value() for message in found]


CONFIG = """
[serve]
store = "store"
listen = "127.0.0.1:{port}"
id = 7
rack = "from the file"
auto-create-topics = false
log-format = "json"

[override]
"group.max.size" = 5
group.min.session.timeout.ms = 1000
"""


def other_value(option: click.Option) -> bool | int | str:
    """One that is not the default, and that the option accepts."""
    if option.is_flag:
        return not option.default
    match option.type:
        case click.Choice():
            return next(each for each in option.type.choices if each != option.default)
        case click.IntRange():
            usual = option.default if isinstance(option.default, int) else 0
            return max(option.type.min or 0, usual) + 1
        case _:
            return f"of-the-file-{option.name}"


def test_every_option_of_the_command_line_is_read_from_a_config_file(tmp_path):
    options = {each.opts[0][2:]: each for each in command.params if each.name not in NOT_IN_FILES}
    assert len(options) > 15
    values = {name: other_value(each) for name, each in options.items()}
    path = tmp_path / "broker.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join(["[serve]", *lines, "[override]", "group.max.size = 5"]))
    context = command.make_context("serve", ["--config", str(path)])
    for name, value in values.items():
        read = context.params[options[name].name]
        assert read == (str(tmp_path / value) if name in PLACES else value), name
        source = context.get_parameter_source(options[name].name)
        assert source is ParameterSource.DEFAULT_MAP, name
    assert overrides_of(context) == ("group.max.size=5",)
    # What is left out is what has no place in a file.
    assert set(context.params) == {each.name for each in options.values()} | {"overrides"}


def test_a_broker_runs_by_its_config_file_and_the_command_line_wins(tmp_path):
    port = free_port()
    path = tmp_path / "broker.toml"
    path.write_text(CONFIG.format(port=port))
    words = ["--rack", "of the line", "--override", "group.max.size=6"]
    process = Process([HOLDFAST, "serve", "--config", str(path), *words], log=tmp_path / "log")
    try:
        process.wait_until(
            lambda: "is ready on" in process.log_text(), seconds_max=SECONDS_MAX, what="ready"
        )
        assert (tmp_path / "store" / "lanes").is_dir()
        shown = json.loads(
            run("cluster", "status", "--json", "--bootstrap", f"127.0.0.1:{port}").stdout
        )
        (broker,) = shown["brokers"]
        assert (broker["broker_id"], broker["rack"]) == (7, "of the line")
        configs = _broker_configs(port)
        assert configs["group.max.size"] == "6"
        assert configs["group.min.session.timeout.ms"] == "1000"
        lines = [line for line in process.log_text().splitlines() if "is ready on" not in line]
        claimed = [json.loads(line) for line in lines if "lane_claimed" in line]
        assert {line["event"] for line in claimed} == {"lane_claimed"}
        assert [line["lane"] for line in claimed] == [0, 1]
        assert all({"time", "level", "logger", "message"} <= set(json.loads(x)) for x in lines)
    finally:
        process.stop()


def _broker_configs(port: int) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    resource = ConfigResource(ConfigResource.Type.BROKER, "7")
    (future,) = admin.describe_configs([resource]).values()
    return {name: str(entry.value) for name, entry in future.result(30).items()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[serve]\nlinger_ms = 5",
            "line 2: [serve] linger_ms: unknown key 'linger_ms': did you mean 'linger-ms'",
        ),
        ("[serve]\n\nlanes = 0", "line 3: [serve] lanes: 0 is not in the range"),
        ("[serve]\nid = 'one'", "line 2: [serve] id: this must be a number, not text"),
        ("[serve]\nlog-format = 'xml'", "line 2: [serve] log-format: "),
        (
            "listen = '0.0.0.0:9092'",
            "the key 'listen' is outside of all tables: put it below [serve]",
        ),
        ("[server]\nid = 1", "unknown table 'server': did you mean [serve]"),
        (
            "[override]\n'group.max.sise' = 1",
            "line 2: [override] group.max.sise: there is no such setting. Did you mean group",
        ),
        (
            "[override]\ngroup.max.size = 'many'",
            "[override] group.max.size: 'many' is not a whole number",
        ),
        ("[serve\n", "is not TOML"),
    ],
)
def test_a_mistake_in_a_config_file_names_the_file_the_line_and_the_remedy(tmp_path, text, said):
    path = tmp_path / "broker.toml"
    path.write_text(text)
    done = run("serve", "--config", str(path), "--store", str(tmp_path / "store"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(path) in line
    assert said in line


def test_a_config_file_that_is_not_there_is_named_with_its_neighbour(tmp_path):
    (tmp_path / "broker.toml").write_text("")
    done = run("serve", "--config", str(tmp_path / "brokers.toml"))
    assert done.returncode == 1
    assert "did you mean broker.toml?" in done.stderr


def test_a_broker_does_not_start_on_the_output_of_a_pipeline_and_says_why(tmp_path):
    entry = tmp_path / "landed" / "ledger" / "orders" / f"{0:020d}"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"{}")
    ended = run(
        "serve", "--store", str(tmp_path / "landed"), "--listen", f"127.0.0.1:{free_port()}"
    )
    assert ended.returncode == 1, ended.stderr
    assert "holds the output of a sink or a pipeline" in ended.stderr
    assert "start the broker on a folder of its own" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "landed" / "lanes").exists()


def test_a_second_broker_with_the_same_id_warns_that_the_first_one_stops(tmp_path):
    first = HoldfastBroker(tmp_path / "first", store=str(tmp_path / "store")).start()
    second = HoldfastBroker(tmp_path / "second", store=str(tmp_path / "store"))
    try:
        second.start()
        log = second.process.log_text()
        assert f"broker_id_was_used_elsewhere id=0 address=127.0.0.1:{first.port}" in log
        assert "give each its own --id" in log
        wait_until(
            lambda: not first.is_running, seconds_max=SECONDS_MAX, what="the first broker's end"
        )
        assert "another broker with the id 0 has started" in first.process.log_text()
    finally:
        second.stop()
        first.stop()
