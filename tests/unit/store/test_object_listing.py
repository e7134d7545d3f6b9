"""A listing in byte order, over servers that keep byte order and servers that walk folders."""

import random
from collections.abc import Callable, Iterator

import pytest

from holdfast.store.interface import ObjectEntry
from holdfast.store.keys import key_problem
from holdfast.store.object_listing import folder_of, offset_of, select

CHARACTERS = "ab/-.0 1=A_"


def s3_pages(keys: list[str], folder: str, offset: str | None, size: int) -> Iterator[list[str]]:
    """As S3: by the bytes of the whole key."""
    inside = [key for key in sorted(keys) if key.startswith(f"{folder}/" if folder else "")]
    rest = [key for key in inside if key > (offset or "")]
    for start in range(0, len(rest), size):
        yield rest[start : start + size]


def walk_pages(keys: list[str], folder: str, offset: str | None, size: int) -> Iterator[list[str]]:
    """As SeaweedFS: part by part, without what is below a folder that is the offset itself."""
    inside = [key for key in keys if key.startswith(f"{folder}/" if folder else "")]
    inside.sort(key=lambda key: key.split("/"))
    if offset is not None:
        bound = offset.split("/")
        inside = [
            key
            for key in inside
            if key.split("/") > bound and not key.startswith(f"{offset.rstrip('/')}/")
        ]
    for start in range(0, len(inside), size):
        yield inside[start : start + size]


Pages = Callable[[list[str], str, str | None, int], Iterator[list[str]]]


def listing(
    server: Pages, keys: list[str], prefix: str, after: str, limit: int | None, size: int
) -> tuple[list[str], int]:
    """The keys that are selected, and how many pages were read for them."""
    read = 0

    def entries() -> Iterator[list[ObjectEntry]]:
        nonlocal read
        for page in server(keys, folder_of(prefix), offset_of(prefix, after), size):
            read += 1
            yield [ObjectEntry(key, 1, 0) for key in page]

    found = select(entries(), prefix=prefix, after=after, limit=limit)
    return [entry.key for entry in found], read


def random_text(chance: random.Random) -> str:
    return "".join(chance.choice(CHARACTERS) for _ in range(chance.randrange(1, 7)))


def random_keys(chance: random.Random) -> list[str]:
    """Keys of which none is also a folder, as both kinds of server can hold them."""
    legal: list[str] = []
    for key in sorted({random_text(chance) for _ in range(60)}, key=len):
        parts = key.split("/")
        folders = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if "" not in parts and not {".", ".."} & set(parts) and not folders & set(legal):
            legal.append(key)
    folders = {key[:at] for key in legal for at in range(len(key)) if key[at] == "/"}
    return [key for key in legal if key not in folders]


@pytest.mark.parametrize("server", [s3_pages, walk_pages])
def test_every_listing_equals_the_model_in_both_orders(server: Pages):
    chance = random.Random(7)
    compared = 0
    for _ in range(1500):
        keys = random_keys(chance)
        prefix = chance.choice(["", random_text(chance), *(key[:2] for key in keys[:3])])
        if prefix.startswith("/") or "//" in prefix:
            continue
        after = chance.choice(["", random_text(chance), chance.choice([*keys, "z"])])
        limit = chance.choice([None, 0, 1, 2, 5])
        expected = [key for key in sorted(keys) if key.startswith(prefix) and key > after]
        expected = expected if limit is None else expected[:limit]
        found, _ = listing(server, keys, prefix, after, limit, chance.choice([1, 2, 7, 1000]))
        assert found == expected, (keys, prefix, after, limit)
        compared += bool(found)
    assert compared > 300


def test_an_offset_is_a_legal_key_and_below_what_is_wanted():
    chance = random.Random(11)
    offsets = 0
    for _ in range(5000):
        after = random_text(chance)
        offset = offset_of("", after)
        if offset is not None:
            assert key_problem(offset) is None and offset < after, (after, offset)
            offsets += 1
    assert offsets > 500


@pytest.mark.parametrize("server", [s3_pages, walk_pages])
def test_the_end_of_a_long_lane_is_found_without_reading_it_from_its_start(server: Pages):
    keys = [f"lanes/1/{number:020}" for number in range(5000)]
    for number in (4990, 4989):
        found, pages = listing(server, keys, "lanes/1/", keys[number], None, 100)
        assert found == keys[number + 1 :]
        assert pages == 1


@pytest.mark.parametrize("server", [s3_pages, walk_pages])
def test_a_limit_in_one_folder_ends_the_listing_early(server: Pages):
    keys = [f"lanes/1/{number:020}" for number in range(5000)]
    found, pages = listing(server, keys, "lanes/1/", keys[1000], 150, 100)
    assert found == keys[1001:1151]
    assert pages == 2


@pytest.mark.parametrize("server", [s3_pages, walk_pages])
def test_the_first_keys_past_the_prefix_end_the_listing(server: Pages):
    keys = [f"n/{letter}{number:03}" for letter in "abc" for number in range(500)]
    found, pages = listing(server, keys, "n/b", "", None, 100)
    assert found == keys[500:1000]
    assert pages == 11, "five of n/a, five of n/b, and one that shows the end"
