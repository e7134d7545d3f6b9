"""A sink's file: what it means, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from holdfast.client.membership.interface import MemberSettings
from holdfast.errors import ConfigurationError
from holdfast.sink.config_file import read_sink
from holdfast.sink.config_tables import REFUSED, REFUSED_FAMILIES, SINK
from holdfast.sink.settings import BatchBounds, OutputSettings, SinkLimits, SinkSettings

MIB = 1024 * 1024
SHORT = """\
[source]
bootstrap.servers = "127.0.0.1:9092"
group.id = "orders-to-lake"
topics = ["orders"]
[output]
to = "s3://lake/orders"
"""


class Folder:
    """Where files are written and read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, text: str, *overrides: str) -> SinkSettings:
        file = self.path / "sink.toml"
        file.write_text(text)
        return read_sink(file, overrides)

    def refusal(self, text: str, *overrides: str) -> str:
        with pytest.raises(ConfigurationError) as refused:
            self.read(text, *overrides)
        return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_short_file_has_the_defaults_of_the_settings(folder: Folder):
    assert folder.read(SHORT) == SinkSettings(
        bootstrap="127.0.0.1:9092",
        member=MemberSettings(group_id="orders-to-lake", topics=("orders",)),
        output=OutputSettings(store="s3://lake/orders"),
    )


def test_every_key_has_its_place(folder: Folder):
    settings = folder.read("""
[source]
"bootstrap.servers" = "a:1,b:2"
"group.id" = "g"
"topics.pattern" = "orders-.*"
"group.protocol" = "classic"
"group.instance.id" = "one"
"auto.offset.reset" = "latest"
"isolation.level" = "read_uncommitted"
"session.timeout.ms" = "10s"
"heartbeat.interval.ms" = 1000
"max.poll.interval.ms" = "2m"
"client.id" = "c"
"client.rack" = "r"
"fetch.max.bytes" = "4MiB"
"fetch.max.wait.ms" = 0
[output]
to = "lake"
key = "topic={topic}/partition={partition}/{offset}"
format = "jsonl"
layout = "envelope"
compression = "gzip"
level = 9
bad-records = "fail"
on-data-loss = "cover"
[batch]
bytes = "8MB"
age = "1m 30s"
records = 1000
[limits]
memory = "64MiB"
uploads = 3
record-bytes = "1MiB"
[http]
listen = "[::1]:0"
""")
    assert settings.bootstrap == "a:1,b:2"
    assert settings.member == MemberSettings(
        group_id="g",
        pattern="orders-.*",
        protocol="classic",
        instance_id="one",
        client_id="c",
        rack="r",
        session_timeout_ms=10_000,
        heartbeat_interval_ms=1_000,
        rebalance_timeout_ms=120_000,
    )
    assert settings.offset_reset == "latest"
    assert settings.read_committed is False
    assert (settings.fetch_max_bytes, settings.fetch_max_wait_ms) == (4 * MIB, 0)
    assert settings.output.store == str(folder.path / "lake")
    assert settings.output.template.text == "topic={topic}/partition={partition}/{offset}"
    assert (settings.output.format, settings.output.layout) == ("jsonl", "envelope")
    assert (settings.output.compression, settings.output.level) == ("gzip", 9)
    assert (settings.output.bad_records, settings.output.on_data_loss) == ("fail", "cover")
    assert settings.batch == BatchBounds(bytes_max=8_000_000, age_ms=90_000, records_max=1000)
    assert settings.limits == SinkLimits(memory_bytes=64 * MIB, uploads=3, record_bytes=MIB)
    assert settings.http == "[::1]:0"


def test_the_bounds_of_one_answer_and_of_one_record_follow_a_small_memory(folder: Folder):
    settings = folder.read(SHORT + '[limits]\nmemory = "8MiB"\n')
    assert settings.fetch_max_bytes == 2 * MIB
    assert settings.limits.record_bytes == 8 * MIB


def test_an_option_of_the_command_line_takes_the_place_of_what_the_file_says(folder: Folder):
    settings = folder.read(
        SHORT,
        "source.group.id=7",
        "source.topics=a,b",
        "source.auto.offset.reset=latest",
        "output.to=elsewhere",
        "output.level=5",
        "batch.age=500ms",
        "batch.records=10",
        "limits.memory=32MiB",
        "http.listen=127.0.0.1:0",
    )
    assert settings.member.group_id == "7"
    assert settings.member.topics == ("a", "b")
    assert settings.offset_reset == "latest"
    assert settings.output.store == str(Path.cwd() / "elsewhere")
    assert settings.output.level == 5
    assert (settings.batch.age_ms, settings.batch.records_max) == (500, 10)
    assert settings.limits.memory_bytes == 32 * MIB
    assert settings.http == "127.0.0.1:0"


def in_source(line: str) -> str:
    return SHORT.replace("topics = [", f"{line}\ntopics = [")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["sink.toml: the table [source] is missing", "bootstrap.servers ="]),
        ("[source\nx = 1\n", ["sink.toml is not TOML", "line 1"]),
        (SHORT + "[outputs]\n", ["unknown table 'outputs'", "did you mean [output]?"]),
        ('to = "x"\n' + SHORT, ["'to' is outside of all tables", "[output]"]),
        (
            in_source('group.idd = "x"'),
            ["sink.toml, line 4: [source] group.idd", "did you mean 'kafka.group.id'?"],
        ),
        (
            in_source("enable.auto.commit = true"),
            ["line 4: [source] enable.auto.commit", "committed when their records have landed"],
        ),
        (
            in_source('"security.protocol" = "SSL"'),
            ["line 4: [source] security.protocol", "PLAINTEXT"],
        ),
        (in_source('"sasl.mechanism" = "PLAIN"'), ["[source] sasl.mechanism", "PLAINTEXT"]),
        (
            in_source('"memory" = "1GiB"'),
            ["line 4: [source] memory", "it belongs below [limits]"],
        ),
        (
            SHORT.replace('group.id = "orders-to-lake"\n', ""),
            ["sink.toml, line 1: [source]", "the key 'kafka.group.id' is missing"],
        ),
        (SHORT.replace('"orders-to-lake"', '" "'), ["line 3: [source] group.id", "it is empty"]),
        (
            SHORT.replace('"orders-to-lake"', "5"),
            ["line 3: [source] group.id", "must be text"],
        ),
        (SHORT.replace(":9092", ""), ["line 2: [source] bootstrap.servers", "not host:port"]),
        (SHORT.replace('topics = ["orders"]\n', ""), ["[source]: subscribe is missing"]),
        (in_source('"topics.pattern" = "a"'), ["[source] topics", "subscribePattern as well"]),
        (SHORT.replace('["orders"]', "[]"), ["line 4: [source] topics", "it is empty"]),
        (
            SHORT.replace('"orders"]', '"orders-*"]'),
            ["line 4: [source] topics", "subscribePattern"],
        ),
        (
            SHORT.replace('topics = ["orders"]', 'topics.pattern = "("'),
            ["line 4: [source] topics.pattern", "not a regular expression"],
        ),
        (in_source('group.protocol = "new"'), ["use consumer or classic"]),
        (
            in_source('auto.offset.reset = "none"'),
            ["line 4: [source] auto.offset.reset", "use earliest or latest"],
        ),
        (
            in_source('isolation.level = "serial"'),
            ["use read_committed or read_uncommitted"],
        ),
        (
            in_source('group.protocol = "consumer"\nsession.timeout.ms = 6000'),
            ["line 5: [source] session.timeout.ms", "consumer.session.timeout.ms", "classic"],
        ),
        (
            in_source("session.timeout.ms = 3000"),
            ["line 4: [source] session.timeout.ms", "a third"],
        ),
        (
            in_source('max.poll.interval.ms = "soon"'),
            ["line 4: [source] max.poll.interval.ms", "not a duration"],
        ),
        (in_source("fetch.max.wait.ms = -1"), ["[source] fetch.max.wait.ms", "it is -1", "from 0"]),
        (in_source('fetch.max.bytes = "1GiB"'), ["fetch.max.bytes", "[limits]"]),
        (in_source("fetch.max.bytes = 1.5"), ["line 4: [source] fetch.max.bytes", "must be"]),
        (SHORT.replace("s3://lake/orders", ""), ["line 6: [output] to", "it is empty"]),
        (SHORT.replace("s3://", "memory://"), ["[output] to", "memory:// ends with the process"]),
        (SHORT + 'key = "{topic}/{offset}"\n', ["line 7: [output] key", "lacks {partition}"]),
        (
            SHORT + 'format = "csv"\n',
            ["line 7: [output] format", "no 'csv'", "use jsonl, raw or parquet"],
        ),
        (SHORT + 'format = "raw"\nlayout = "value"\n', ["line 8: [output] layout", "remove it"]),
        (SHORT + "level = 30\n", ["line 7: [output] level", "1 to 19"]),
        (SHORT + 'compression = "none"\nlevel = 1\n', ["line 8: [output] level", "remove it"]),
        (SHORT + 'compression = "lz4"\nlevel = 1\n', ["line 8: [output] level", "remove it"]),
        (SHORT + 'bad_record = "fail"\n', ["[output] bad_record", "did you mean 'bad_records'?"]),
        (SHORT + '[batch]\nbytes = "50 MeB"\n', ["line 8: [batch] bytes", '"50MiB"']),
        (SHORT + "[batch]\nrecords = 0\n", ["line 8: [batch] records", "at least 1"]),
        (SHORT + '[batch]\nage = "0s"\n', ["line 8: [batch] age", "from 1"]),
        (SHORT + "[limits]\nuploads = 5000\n", ["line 8: [limits] uploads", "from 1 to 1000"]),
        (SHORT + "[limits]\nmemory = 5\n", ["line 8: [limits] memory", "at least 1048576"]),
        (
            SHORT + '[limits]\nrecord-bytes = "1GiB"\n',
            ["line 8: [limits] record-bytes", "make it smaller"],
        ),
        (SHORT + '[http]\nlisten = "9100"\n', ["line 8: [http] listen", "HOST:PORT"]),
    ],
)
def test_an_error_names_file_line_key_and_remedy(folder: Folder, text: str, said: list[str]):
    message = folder.refusal(text)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("source", "write it as TABLE.KEY=VALUE"),
        ("sauce.topics=a", "--option sauce.topics: unknown table 'sauce': did you mean [source]?"),
        ("source.group.idd=a", "--option source.group.idd: unknown key"),
        ("source.enable.auto.commit=false", "--option source.enable.auto.commit: offsets are"),
        ("batch.age=never", "--option batch.age: 'never' is not a duration"),
        ("limits.uploads=many", "--option limits.uploads: this must be"),
    ],
)
def test_an_error_in_an_option_names_the_option(folder: Folder, override: str, said: str):
    assert said in folder.refusal(SHORT, override)


def test_a_file_that_is_not_there_may_be_its_neighbour(folder: Folder):
    folder.read(SHORT)
    with pytest.raises(ConfigurationError, match=r"did you mean sink\.toml\?"):
        read_sink(folder.path / "sinks.toml")


def test_no_option_is_both_known_and_refused():
    known = set(SINK.keys_of("source"))
    assert not known & set(REFUSED)
    assert not [key for key in known if key.startswith(tuple(REFUSED_FAMILIES))]
