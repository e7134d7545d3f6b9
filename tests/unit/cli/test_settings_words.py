"""The files of `holdfast run` and `holdfast sink`: the same words, and a hint for a wrong one."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.sink.config_file import read_sink
from holdfast.spark.pipelines.file import read_pipeline
from holdfast.spark.source.kafka_options import client_options

SOURCE = '[source]\nkafka.bootstrap.servers = "broker:9092"\nsubscribe = "orders"\n'
OUTPUT = '[output]\nto = "lake"\n'
GROUP = 'kafka.group.id = "g"\n'


class SettingsFile:
    """A file of one of the two commands."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        self.path = folder / f"{command}.toml"
        self.hints: list[str] = []

    def read(self, source: str = "", output: str = "", more: str = "", *, text: str = "") -> object:
        group = GROUP if self.command == "sink" else ""
        written = text or f"{SOURCE}{group}{source}\n{OUTPUT}{output}\n{more}\n"
        self.path.write_text(written)
        read = read_sink if self.command == "sink" else read_pipeline
        return read(self.path, hint=self.hints.append)

    def complaint(
        self, source: str = "", output: str = "", more: str = "", *, text: str = ""
    ) -> str:
        with pytest.raises(ConfigurationError) as refused:
            self.read(source, output, more, text=text)
        return str(refused.value)


@pytest.fixture(params=["run", "sink"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> SettingsFile:
    return SettingsFile(request.param, tmp_path)


def test_a_file_in_the_words_of_sparks_source_is_read_without_a_hint(file: SettingsFile):
    file.read('startingOffsets = "earliest"\nkafka.isolation.level = "read_committed"')
    assert file.hints == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('isolation.level = "read_committed"', "kafka.isolation.level"),
        ('auto.offset.reset = "latest"', "startingOffsets"),
        ('kafka.auto.offset.reset = "latest"', "startingOffsets"),
    ],
)
def test_an_old_word_works_and_the_new_one_is_named(file: SettingsFile, old: str, new: str):
    file.read(old)
    (hint,) = file.hints
    assert f"is now called {new}" in hint


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('subscirbe = "u"', "did you mean 'subscribe'?"),
        ('topik = "u"', "did you mean 'subscribe'?"),
        ('kafka.bootstrap.server = "h:1"', "did you mean"),
        ('startingOffset = "latest"', "did you mean 'startingOffsets'?"),
        ('startingOffsets = "earlyest"', "did you mean 'earliest'?"),
        ('kafka.isolation.level = "read_comitted"', "did you mean 'read_committed'?"),
    ],
)
def test_a_mistyped_source_gets_its_line_and_a_suggestion(
    file: SettingsFile, wrong: str, right: str
):
    said = file.complaint(wrong)
    line = 4 if file.command == "run" else 5
    assert said.startswith(f"{file.command}.toml, line {line}: [source] {wrong.split(' ')[0]}: ")
    assert right in said


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('formt = "parquet"', "did you mean 'format'?"),
        ('format = "parqet"', "did you mean 'parquet'?"),
        ('compression = "zst"', "did you mean 'zstd'?"),
        ('format = "jsonl"\nlayout = "envelop"', "did you mean 'envelope'?"),
        ("format = 5", "this must be text, not a number"),
    ],
)
def test_a_mistyped_output_gets_a_suggestion(file: SettingsFile, wrong: str, right: str):
    said = file.complaint(output=wrong + ('\nsink_id = "s"' if file.command == "run" else ""))
    assert f"[output] {wrong.splitlines()[-1].split(' ')[0]}: " in said
    assert right in said


@pytest.mark.parametrize(("wrong", "right"), [("sorce", "source"), ("outptu", "output")])
def test_a_mistyped_table_gets_a_suggestion(file: SettingsFile, wrong: str, right: str):
    text = (SOURCE + GROUP + OUTPUT).replace(f"[{right}]", f"[{wrong}]")
    assert f"did you mean [{right}]?" in file.complaint(text=text)


def test_brokers_that_are_mistyped_are_not_called_missing(file: SettingsFile):
    text = (SOURCE + OUTPUT).replace("bootstrap.servers", "bootstrap.server")
    if file.command == "sink":
        text = text.replace("[output]", f"{GROUP}[output]")
    said = file.complaint(text=text)
    assert "line 2: [source] kafka.bootstrap.server: " in said
    assert "did you mean 'kafka.bootstrap.servers'?" in said


@pytest.mark.parametrize(
    ("command", "source", "output", "more"),
    [
        ("run", 'maxTriggerDelay = "10 minutes"', "", ""),
        ("run", 'tickInterval = "10 minutes"', "", ""),
        ("run", 'kafka.request.timeout.ms = "10 minutes"', "", ""),
        ("run", 'kafka.fetch.max.wait.ms = "1 second"', "", ""),
        ("run", "", 'trigger = "10 minutes"', ""),
        ("run", "", 'sink_id = "s"', '[timers]\nby = "key"\nafter = "10 minutes"'),
        (
            "run",
            "",
            'sink_id = "s"',
            '[dedup]\nby = "key"\nevent_time = "timestamp"\nwithin = "10 minutes"\n'
            'lateness = "5 minutes"',
        ),
        (
            "run",
            "",
            'sink_id = "s"',
            '[aggregate]\nby = "key"\ncolumns = { n = "count" }\nevent_time = "timestamp"\n'
            'forget_after = "10 minutes"',
        ),
        ("sink", 'kafka.max.poll.interval.ms = "10 minutes"', "", ""),
        ("sink", 'kafka.fetch.max.wait.ms = "1 second"', "", ""),
        ("sink", "", "", '[batch]\nage = "10 minutes"'),
    ],
)
def test_a_duration_is_read_in_every_section_and_a_wrong_one_is_named(
    tmp_path: Path, command: str, source: str, output: str, more: str
):
    file = SettingsFile(command, tmp_path)
    file.read(source, output, more)

    def misspelt(text: str) -> str:
        return text.replace(" minutes", " minuts").replace(" second", " secnd")

    said = file.complaint(misspelt(source), misspelt(output), misspelt(more))
    assert "is not a duration: write it as" in said
    assert ", line " in said


def test_a_duration_in_the_source_means_what_it_says():
    options = {"request.timeout.ms": "2 minutes", "fetch.max.bytes": "10 MiB"}
    found = client_options("broker:9092", options)
    assert (found.request_timeout_ms, found.fetch_bytes_max) == (120_000, 10 * 1024 * 1024)


def test_a_number_in_place_of_a_duration_is_shown_how_to_write_one(tmp_path: Path):
    file = SettingsFile("run", tmp_path)
    said = file.complaint(output="trigger = 10")
    assert said.endswith(
        '[output] trigger: this must be text, not a number: write it as "10 minutes"'
    )


def test_a_key_of_the_command_line_that_is_wrong_is_the_one_that_is_named(tmp_path: Path):
    file = SettingsFile("run", tmp_path)
    file.read()
    with pytest.raises(ConfigurationError, match=r"^--option source\.subscirbe: unknown option"):
        read_pipeline(file.path, ["source.subscirbe=u"])
