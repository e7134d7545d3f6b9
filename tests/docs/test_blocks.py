"""How pages are read: blocks, what is said about them, and what counts as the same output."""

from tests.support.page_blocks import Installed, blocks_of, installed_by, lines_in_order

PAGE = """# A page

1. Start it:

   <!-- keeps running until: is ready -->
   ```sh
   holdfast serve
   ```

2. Write `orders.toml`:

   ```toml title="orders.toml"
   [source]
   ```

<!-- not run: needs a cloud -->
```sh
aws s3 ls
```
"""


def test_blocks_come_with_their_language_their_file_and_what_is_said_about_them():
    serve, toml, cloud = blocks_of(PAGE)
    assert (serve.language, serve.text, serve.line) == ("sh", "holdfast serve\n", 6)
    assert (serve.running_until, serve.not_run_because) == ("is ready", None)
    assert (toml.title, toml.text, toml.running_until) == ("orders.toml", "[source]\n", None)
    assert (cloud.running_until, cloud.not_run_because) == (None, "needs a cloud")


def test_expected_lines_are_looked_for_in_order():
    assert lines_in_order("one\ntwo", "zero\none\nand two\n") is None
    assert lines_in_order("two\none", "one\ntwo\n") == "one"
    assert lines_in_order("three", "one\ntwo\n") == "three"


def test_dots_stand_for_the_rest_of_a_line_or_for_lines():
    assert lines_in_order("one\n...\nlast", "one\ntwo\nthree\nlast") is None
    assert lines_in_order("8,000 rows in ... files", "8,000 rows in 12 files") is None
    assert lines_in_order("8,000 rows in ... files", "8,000 rows in 12\nfiles") is not None


def test_the_width_of_columns_is_not_compared():
    assert lines_in_order("orders  4  rows", "orders      4   rows") is None


def test_a_reader_has_what_the_page_says_to_install():
    shell = "pip install '.[spark]'   # '.' alone: the broker\n"
    assert installed_by(shell) == Installed("spark", ())
    assert installed_by(shell + "(`pip install aiokafka`)") == Installed("spark", ("aiokafka",))
    assert installed_by("pip install . confluent-kafka") == Installed("", ("confluent-kafka",))
    assert installed_by("holdfast serve") == Installed("all", ())
