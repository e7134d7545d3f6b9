"""Addresses of stores: what opens, what is refused, and that no secret is repeated."""

import asyncio
from pathlib import Path

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.store.address import open_store
from holdfast.store.credentials import Credentials, find_credentials
from holdfast.store.directory import DirectoryStore
from holdfast.store.memory import MemoryStore
from holdfast.store.object_address import make_client, parse_object_address
from holdfast.store.objects import ObjectStore, open_object_store
from holdfast.store.read_only import open_read_only

ENVIRONMENT = SystemEnvironment()
NO_KEYS = Credentials(source="none")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("{tmp}/store", DirectoryStore),
        ("{tmp}/a folder/store", DirectoryStore),
        ("file://{tmp}/store", DirectoryStore),
        ("file://localhost{tmp}/store", DirectoryStore),
        ("memory://", MemoryStore),
        ("s3://bucket", ObjectStore),
        ("s3://bucket/a/prefix/", ObjectStore),
        ("s3://bucket/p?endpoint=http://127.0.0.1:1&region=eu-west-1&threads=3", ObjectStore),
        ("gs://bucket/prefix?skip_signature=true", ObjectStore),
        ("az://container/prefix?account=somebody&skip_signature=true", ObjectStore),
    ],
)
def test_an_address_opens_the_store_that_it_names(tmp_path: Path, address: str, kind: type):
    store = open_store(address.format(tmp=tmp_path), environment=ENVIRONMENT)
    assert type(store) is kind
    assert store.is_remote is (kind is ObjectStore)
    asyncio.run(store.close())


@in_event_loop
async def test_a_file_address_is_the_same_directory_as_its_path(tmp_path: Path):
    one = open_store(str(tmp_path / "a b"), environment=ENVIRONMENT)
    two = open_store(f"file://{tmp_path}/a%20b", environment=ENVIRONMENT)
    await one.create("k", [b"x"])
    assert await two.read("k") == b"x"
    await one.close()
    await two.close()


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("", "address is empty"),
        ("   ", "address is empty"),
        ("s3a://bucket/x", "did you mean s3://"),
        ("gcs://bucket/x", "did you mean gs://"),
        ("abfss://container/x", "did you mean az://"),
        ("memry://", "did you mean memory://"),
        ("https://bucket.example/x", "use s3://bucket/prefix"),
        ("file://host/path", "three slashes"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/a/../b", "would change the path"),
        ("s3://bucket/x?regio=eu", "did you mean 'region'"),
        ("s3://bucket/x?colour=red", "known are endpoint, region"),
        ("s3://bucket/x?timeout_seconds=soon", "must be a number"),
        ("s3://bucket/x?timeout_seconds=-1", "must be a number"),
        ("s3://bucket/x?threads=0", "must be a number"),
        ("s3://bucket/x?endpoint=127.0.0.1:8333", "write http://127.0.0.1:8333 or https://127"),
        ("s3://bucket/x?endpoint=localhost:8333", "write http://localhost:8333 or https://"),
        ("s3://bucket/x?endpoint=s3.example.org", "write http://s3.example.org or https://"),
        ("s3://bucket/x?endpoint=ftp://s3.example.org", "write http://s3.example.org or https://"),
        ("s3://bucket/x?endpoint=", "without http:// or https://"),
        ("s3://bucket/x?endpoint=http://", "write it as in http://127.0.0.1:8333"),
        ("s3://bucket/x?endpoint=http://a b:80", "write it as in http://127.0.0.1:8333"),
        ("s3://bucket/x?endpoint=http://{host}:80", "write it as in http://127.0.0.1:8333"),
        ("s3://bucket/x?region=eu%0Awest", "write it as in region=eu-west-1"),
        ("s3://buck et/x", "an invalid bucket name"),
        ("s3://[bucket/x", "use s3://bucket/prefix"),
        ("file://[x/y", "three slashes"),
    ],
)
def test_an_address_that_is_not_understood_is_refused_with_a_remedy(address: str, remedy: str):
    with pytest.raises(ConfigurationError) as caught:
        open_store(address, environment=ENVIRONMENT)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://someone:canary@bucket/x",
        "s3://bucket/x?secret_access_key=canary",
        "s3://bucket/x?session_token=canary",
        "az://container/x?sas_key=canary",
        "gs://bucket/x?service_account_key=canary",
        "s3://bucket/x?endpoint=http://user:canary@127.0.0.1:8333",
        "s3://bucket/x?endpoint=user:canary@127.0.0.1:8333",
        "s3://bucket/x?endpoint=http%3A%2F%2Fuser%3Acanary%40127.0.0.1:8333",
        "az://container/x?account=a&endpoint=https://canary@127.0.0.1",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str):
    with pytest.raises(ConfigurationError, match="environment") as caught:
        open_store(address, environment=ENVIRONMENT)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["file://user:canary@host/x", "s3://user:canary@[bucket", "https://u:canary@h/x"]
)
def test_no_refusal_repeats_a_password(address: str):
    for opened in (open_store, open_read_only):
        with pytest.raises(ConfigurationError) as caught:
            opened(address, environment=ENVIRONMENT)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_ENDPOINT_URL": "127.0.0.1:8333"}, "AWS_ENDPOINT_URL is '127.0.0.1:8333', without"),
        ({"AWS_ENDPOINT": "127.0.0.1:8333"}, "the variable AWS_ENDPOINT is"),
        ({"AWS_ENDPOINT_URL_S3": "http://u:canary@h"}, "AWS_ENDPOINT_URL_S3 carries credentials"),
        (
            {"AWS_ACCESS_KEY_ID": "canary\n", "AWS_SECRET_ACCESS_KEY": "canary"},
            "the access_key_id from the variable AWS_ACCESS_KEY_ID has a character",
        ),
    ],
)
def test_variables_on_which_the_client_library_would_panic_are_refused_and_not_repeated(
    variables: dict[str, str], said: str
):
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with pytest.raises(ConfigurationError) as caught:
        open_object_store("s3://bucket/x", variables={**keys, **variables})
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


def test_an_endpoint_of_the_address_wins_over_a_variable_that_cannot_be_used():
    variables = {"AWS_ENDPOINT_URL": "127.0.0.1:8333"}
    url = "s3://bucket/x?endpoint=http://127.0.0.1:8333&skip_signature=true"
    asyncio.run(open_object_store(url, variables=variables).close())


def test_a_client_that_creates_has_no_retries_and_both_have_a_time_out():
    address = parse_object_address("s3://bucket/x?timeout_seconds=7&region=eu-west-1")
    creator = make_client(address, {}, NO_KEYS, has_retries=False)
    reader = make_client(address, {}, NO_KEYS, has_retries=True)
    assert creator.retry_config is not None and creator.retry_config["max_retries"] == 0
    assert reader.retry_config is not None and reader.retry_config["max_retries"] == 3
    for client in (creator, reader):
        assert client.client_options is not None
        assert "7" in str(client.client_options["timeout"])


def test_options_of_the_address_win_over_variables():
    address = parse_object_address("s3://bucket/x?region=eu-west-1")
    variables = {"AWS_REGION": "us-west-2", "AWS_ENDPOINT_URL": "http://127.0.0.1:5"}
    config = make_client(
        address, variables, find_credentials("s3", variables), has_retries=False
    ).config
    assert config["region"] == "eu-west-1"
    assert config["endpoint"] == "http://127.0.0.1:5"
