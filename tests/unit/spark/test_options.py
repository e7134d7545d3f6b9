"""The options of the source: Kafka's names and meanings, and messages that help."""

import pytest

from holdfast.errors import ConfigurationError
from holdfast.quantities import duration_ms
from holdfast.spark.source.options import (
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    End,
    NoMatch,
    Rows,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_options,
)
from holdfast.spark.source.where import ALL_ROWS, parse_where

STORE = {"store": "/data", "subscribe": "orders"}


def stream(**options: str) -> SourceOptions:
    return parse_options({**STORE, **options}, streaming=True)


def batch(**options: str) -> SourceOptions:
    return parse_options({**STORE, **options}, streaming=False)


def refusal(options: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse_options(options, streaming=streaming)
    return str(refused.value)


def test_defaults_are_those_of_the_kafka_source():
    new, whole = stream(), batch()
    assert new.starting is End.LATEST
    assert (whole.starting, whole.ending) == (End.EARLIEST, End.LATEST)
    assert new.fail_on_data_loss
    assert not new.include_headers
    assert not new.read_committed
    assert new.offsets_per_trigger_max is None
    assert new.trigger_delay_ms_max == 15 * 60_000
    assert new.no_match is NoMatch.ERROR
    assert new.rows is Rows.RECORDS


def test_names_are_case_insensitive():
    options = parse_options(
        {"STORE": "/d", "Subscribe": "t", "STARTINGOFFSETS": "Earliest", "failondataloss": "FALSE"},
        streaming=True,
    )
    assert options.starting is End.EARLIEST
    assert not options.fail_on_data_loss


def test_topics_are_selected_in_three_ways():
    assert stream(subscribe=" b, a ,b").selection == Subscribe(("a", "b"))
    pattern = parse_options({"store": "/d", "subscribePattern": "or.*"}, streaming=True)
    assert pattern.selection == SubscribePattern("or.*")
    assigned = parse_options({"store": "/d", "assign": '{"a":[1,0,1]}'}, streaming=True)
    assert assigned.selection == Assign({"a": (0, 1)})


def test_one_timestamp_wins_over_timestamps_and_these_over_offsets():
    everything = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders":{"0":7}}',
        "startingOffsets": '{"orders":{"0":9}}',
    }
    assert stream(**everything).starting == AtTimestamp(5)
    del everything["startingTimestamp"]
    assert stream(**everything).starting == AtTimestamps({("orders", 0): 7})
    del everything["startingOffsetsByTimestamp"]
    assert stream(**everything).starting == AtOffsets({("orders", 0): 9})


def test_both_or_neither_of_store_and_broker_is_refused():
    assert "neither is set" in refusal({"subscribe": "t"})
    both = refusal({"store": "/d", "kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    assert "both are set" in both
    assert "store" in refusal({"store": " ", "subscribe": "t"})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("failOnDataLos", "failOnDataLoss"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("includeHeader", "includeHeaders"),
    ],
)
def test_an_unknown_option_names_the_nearest_right_one(wrong: str, right: str):
    message = refusal({**STORE, wrong: "1"})
    assert f"did you mean '{right}'?" in message


def test_an_option_that_resembles_none_lists_them_all():
    assert "startingOffsets" in refusal({**STORE, "zzz": "1"})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kafka.group.id", "no consumer group"),
        ("groupIdPrefix", "no consumer group"),
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.enable.auto.commit", "checkpoint"),
        ("kafka.key.deserializer", "key"),
        ("kafka.value.deserializer", "value"),
        ("kafka.interceptor.classes", "change records"),
        ("topic", "subscribe"),
        ("path", "store"),
    ],
)
def test_options_that_cannot_be_used_say_why(name: str, remedy: str):
    broker = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert remedy in refusal({**broker, name: "x"})


def test_a_broker_option_on_a_store_is_refused_but_the_isolation_level_is_not():
    assert "kafka.client.id" in refusal({**STORE, "kafka.client.id": "x"})
    assert stream(**{"kafka.isolation.level": "read_committed"}).read_committed


def test_what_tunes_a_java_consumer_is_named_as_idle():
    options = parse_options(
        {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.max.poll.records": "9"},
        streaming=True,
    )
    assert "kafka.max.poll.records" in options.ignored[0]
    assert options.client == {}
    assert "maxOffsetsPerTrigger" in batch(maxOffsetsPerTrigger="9").ignored[0]


def test_a_batch_cannot_start_at_the_end_nor_end_at_the_start():
    assert "latest" in refusal({**STORE, "startingOffsets": "latest"}, streaming=False)
    one = '{"orders":{"0":-1}}'
    assert "orders-0" in refusal({**STORE, "startingOffsets": one}, streaming=False)
    assert "earliest" in refusal({**STORE, "endingOffsets": "earliest"}, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str):
    assert "availableNow" in refusal({**STORE, name: "1"})


def test_start_and_end_must_name_the_same_partitions_in_order():
    def ends(start: str, end: str) -> str:
        options = {**STORE, "startingOffsets": start, "endingOffsets": end}
        return refusal(options, streaming=False)

    assert "orders-1" in ends('{"orders":{"0":1}}', '{"orders":{"0":2,"1":3}}')
    assert "above" in ends('{"orders":{"0":5}}', '{"orders":{"0":2}}')


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": ""},
        {"subscribe": "a/b"},
        {"assign": '{"t":[0]}'},
        {"startingOffsets": "newest"},
        {"startingOffsets": '{"t":5}'},
        {"startingOffsets": '{"t":{"0":-3}}'},
        {"startingOffsets": '{"t":{"x":3}}'},
        {"startingOffsets": '{"t":{"0":true}}'},
        {"startingTimestamp": "yesterday"},
        {"maxOffsetsPerTrigger": "0"},
        {"maxOffsetsPerTrigger": "many"},
        {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
        {"minPartitions": "-1"},
        {"includeHeaders": "yes"},
        {"maxTriggerDelay": "soon"},
        {"rows": "objects"},
        {"kafka.isolation.level": "serializable"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_option(options: dict[str, str]):
    message = refusal({**STORE, **options})
    assert next(iter(options)).lower() in message.lower() or "duration" in message


def test_where_is_for_batches_and_a_stream_says_why_and_what_instead():
    assert batch(where="offset < 5").row_filter == parse_where("offset < 5")
    assert batch().row_filter == ALL_ROWS
    said = refusal({**STORE, "where": "offset < 5"})
    assert said.startswith("where is for batch queries")
    assert "tile" in said
    assert "DataFrame.where" in said
    assert "OR at character" in refusal({**STORE, "where": "offset = 1 OR 2"}, streaming=False)


def test_a_pattern_must_be_a_regular_expression():
    assert "regular expression" in refusal({"store": "/d", "subscribePattern": "["})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("15m", 900_000), ("10s", 10_000), ("250", 250), ("500 ms", 500), ("2h", 7_200_000)],
)
def test_durations_are_written_as_spark_writes_them(text: str, expected_ms: int):
    assert duration_ms(text, bare_is_ms=True) == expected_ms
