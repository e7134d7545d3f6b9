"""Bootstrap lists as people write them."""

import pytest

from holdfast.client.address import Address, parse_bootstrap
from holdfast.errors import ConfigurationError


def test_a_list_is_read_with_its_spaces_and_empty_parts():
    assert parse_bootstrap(" a:1, b.example:9092 ,,[::1]:65535") == [
        Address("a", 1),
        Address("b.example", 9092),
        Address("::1", 65535),
    ]


def test_an_address_is_written_as_it_is_read():
    for text in ("a:1", "[::1]:9092"):
        assert str(parse_bootstrap(text)[0]) == text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "at least one host:port"),
        (" , ", "at least one host:port"),
        ("localhost", "9092"),
        (":9092", "not host:port"),
        ("[]:9092", "not host:port"),
        ("a:", "1 to 65535"),
        ("a:0", "1 to 65535"),
        ("a:65536", "1 to 65535"),
        ("a:-1", "1 to 65535"),
        ("a:9092x", "1 to 65535"),
        ("::1:9092", r"\[address\]:port"),
    ],
)
def test_a_wrong_address_is_named_with_the_remedy(text: str, remedy: str):
    with pytest.raises(ConfigurationError, match=remedy):
        parse_bootstrap(text)
