"""Sinks and pipelines are written in the same words, and old words still work with a hint."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.quantities import duration_ms, since_ms
from holdfast.sink.config_file import read_sink
from holdfast.spark.pipelines.file import read_pipeline
from holdfast.spark.source.options import Subscribe

SOURCE = """
[source]
kafka.bootstrap.servers = "127.0.0.1:9092"
subscribe = ["orders"]
startingOffsets = "latest"
kafka.isolation.level = "read_committed"
failOnDataLoss = false
"""
OUTPUT = '[output]\nto = "lake"\nformat = "jsonl"\nlayout = "envelope"\ncompression = "zstd"\n'
OLD = """
[source]
bootstrap.servers = "127.0.0.1:9092"
topics = ["orders"]
auto.offset.reset = "latest"
isolation.level = "read_committed"
[output]
to = "lake"
on-data-loss = "cover"
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "orders.toml"
    path.write_text(text)
    return path


def test_one_source_and_one_output_are_read_by_a_sink_and_by_a_pipeline(tmp_path: Path):
    hints: list[str] = []
    pipeline = read_pipeline(file(tmp_path, SOURCE + OUTPUT), hint=hints.append)
    group = SOURCE + 'kafka.group.id = "g"\n' + OUTPUT
    sink = read_sink(file(tmp_path, group), hint=hints.append)
    assert hints == []
    assert pipeline.options.selection == Subscribe(sink.member.topics)
    assert pipeline.options.bootstrap_servers == sink.bootstrap
    assert pipeline.options.read_committed and sink.read_committed
    assert pipeline.source["startingOffsets"] == sink.offset_reset == "latest"
    assert not pipeline.options.fail_on_data_loss
    assert sink.output.on_data_loss == "cover"
    assert getattr(pipeline.sink, "format", None) == "jsonl.zst/envelope"
    assert (sink.output.format, sink.output.layout) == ("jsonl", "envelope")


def test_old_words_mean_the_same_and_each_is_hinted_at_with_the_new_one(tmp_path: Path):
    hints: list[str] = []
    old = OLD.replace("[output]", 'group.id = "g"\n[output]')
    old += 'bad-records = "fail"\n[limits]\nrecord-bytes = "1MiB"\n'
    sink = read_sink(file(tmp_path, old), hint=hints.append)
    assert (sink.bootstrap, sink.member.topics) == ("127.0.0.1:9092", ("orders",))
    assert (sink.member.group_id, sink.offset_reset) == ("g", "latest")
    assert (sink.output.on_data_loss, sink.output.bad_records) == ("cover", "fail")
    assert sink.limits.record_bytes == 1024 * 1024
    assert "orders.toml: [source] topics is now called subscribe; the old name still works" in hints
    assert any("on-data-loss is now called failOnDataLoss below [source]" in h for h in hints)
    assert len(hints) == 8


def test_a_pipeline_takes_the_words_of_old_sinks_and_its_own_old_format(tmp_path: Path):
    hints: list[str] = []
    text = OLD + 'format = "jsonl.zst"\n'
    pipeline = read_pipeline(file(tmp_path, text), hint=hints.append)
    assert pipeline.options.selection == Subscribe(("orders",))
    assert not pipeline.options.fail_on_data_loss
    assert getattr(pipeline.sink, "format", None) == "jsonl.zst"
    assert 'orders.toml: [output] format = "jsonl.zst" is now format = "jsonl"' in hints
    assert len(hints) == 6


def test_the_command_line_wins_whichever_name_it_or_the_file_has(tmp_path: Path):
    old = OLD.replace("[output]", 'group.id = "g"\n[output]')
    new = SOURCE + 'kafka.group.id = "g"\n' + OUTPUT
    for text in (old, new):
        for name in ("source.group.id=h", "source.kafka.group.id=h"):
            assert read_sink(file(tmp_path, text), [name]).member.group_id == "h"
        for name in ("source.topics=other", "source.subscribe=other"):
            assert read_sink(file(tmp_path, text), [name]).member.topics == ("other",)


def test_an_error_names_the_word_that_stands_in_the_file(tmp_path: Path):
    text = OLD.replace("[output]", 'group.id = ""\n[output]')
    with pytest.raises(ConfigurationError, match=r"line 7: \[source\] group.id: it is empty"):
        read_sink(file(tmp_path, text))


@pytest.mark.parametrize("text", ["10 minutes", "10m", "10 min", "600s", "600000"])
def test_a_duration_is_read_the_same_in_every_table(tmp_path: Path, text: str):
    source = f'{SOURCE}maxTriggerDelay = "{text}"\n'
    options = read_pipeline(file(tmp_path, source + OUTPUT)).options
    assert options.trigger_delay_ms_max == 600_000
    assert duration_ms(text, bare_is_ms=True) == 600_000
    if not text.isdigit():
        pipeline = read_pipeline(file(tmp_path, f'{SOURCE}{OUTPUT}trigger = "{text}"\n'))
        assert pipeline.trigger.interval_ms == 600_000
    sink = SOURCE + f'kafka.group.id = "g"\n{OUTPUT}[batch]\nage = "{text}"\n'
    assert read_sink(file(tmp_path, sink)).batch.age_ms == 600_000


def test_since_takes_a_duration_or_a_time():
    assert since_ms("10 min", now_ms=1_000_000) == 400_000
    assert since_ms("1970-01-01T00:01", now_ms=0) == 60_000
    assert since_ms("77", now_ms=0) == 77
    with pytest.raises(ConfigurationError, match="neither a duration nor a time"):
        since_ms("soon", now_ms=0)
