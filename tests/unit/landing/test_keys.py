"""Key templates: what is legal, what is refused and with which remedy."""

import pytest

from holdfast.errors import ConfigurationError
from holdfast.landing.keys import DEFAULT_TEMPLATE, HIVE_TEMPLATE, KeyTemplate


def test_the_default_key_is_topic_partition_and_padded_offset():
    key = KeyTemplate().key("orders", 3, 42, ".jsonl.zst")
    assert key == "orders+3+00000000000000000042.jsonl.zst"


def test_hive_folders_are_possible():
    key = KeyTemplate(HIVE_TEMPLATE).key("orders", 3, 42, ".parquet")
    assert key == "topic=orders/partition=3/00000000000000000042.parquet"


@pytest.mark.parametrize(
    "text", [DEFAULT_TEMPLATE, HIVE_TEMPLATE, "x/{topic}-{partition}-{offset}"]
)
@pytest.mark.parametrize("topic", ["a", "a-1", "a.b_c", "1", "a-1-00000000000000000001"])
def test_a_key_is_read_back_to_what_it_was_made_of(text: str, topic: str):
    template = KeyTemplate(text)
    assert template.parse(template.key(topic, 12, 7, ".x"), ".x") == (topic, 12, 7)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("{topic}+{offset}", "lacks {partition}"),
        ("{partition}+{offset}", "lacks {topic}"),
        ("{topic}+{partition}", "lacks {offset}"),
        ("{date}/{topic}+{partition}+{offset}", "can differ at each try"),
        ("dt=%Y/{topic}+{partition}+{offset}", "can differ at each try"),
        ("{timestamp}/{topic}+{partition}+{offset}", "can differ at each try"),
        ("{uuid}/{topic}+{partition}+{offset}", "can differ at each try"),
        ("{tpoic}+{partition}+{offset}", "only {topic}, {partition} and {offset}"),
        ("{offset}+{topic}+{partition}", "move {offset} to the end"),
        ("{topic}+{partition}+{offset}.txt", "move {offset} to the end"),
        ("{topic}{partition}+{offset}", "separator"),
        ("{topic}+{partition}{offset}", "separator"),
        ("{topic}+{partition}+1{offset}", "separator"),
        ("{topic}/{topic}+{partition}+{offset}", "twice"),
        ("/{topic}+{partition}+{offset}", "empty"),
        ("../{topic}+{partition}+{offset}", "path"),
    ],
)
def test_a_template_that_could_double_or_mix_objects_is_refused(text: str, remedy: str):
    with pytest.raises(ConfigurationError) as refused:
        KeyTemplate(text)
    assert remedy in str(refused.value)
    assert DEFAULT_TEMPLATE in str(refused.value)
