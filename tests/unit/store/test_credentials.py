"""Where the keys of a store come from, what is said where there are none, and when they are new."""

from pathlib import Path

import pytest

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import ConfigurationError
from holdfast.store.credentials import find_credentials
from holdfast.store.object_address import parse_object_address
from holdfast.store.object_clients import RENEW_S_MIN, ObjectClients

FIXED = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
TOKEN = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn:role"}
PROFILES = """
[default]
aws_access_key_id = one
aws_secret_access_key = first
[other]
aws_access_key_id = two
aws_secret_access_key = second
aws_session_token = third
[role]
role_arn = arn:role
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".aws" / "credentials"
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES)
    return path


def test_variables_come_before_a_token_and_before_a_file(file: Path):
    of_file = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert find_credentials("s3", {**of_file, **TOKEN, **FIXED}).config == {
        "access_key_id": "a",
        "secret_access_key": "s",
    }
    by_token = find_credentials("s3", {**of_file, **TOKEN})
    assert by_token.source == "the token in /token"
    assert not by_token.are_fixed
    assert find_credentials("s3", of_file).config["access_key_id"] == "one"


def test_the_file_of_the_home_folder_is_found_and_a_profile_can_be_named(file: Path):
    home = {"HOME": str(file.parents[1])}
    assert find_credentials("s3", home).config == {
        "access_key_id": "one",
        "secret_access_key": "first",
    }
    named = find_credentials("s3", {**home, "AWS_PROFILE": "other"})
    assert named.config["session_token"] == "third"
    assert "profile 'other'" in named.source
    tilde = {**home, "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
    assert find_credentials("s3", tilde).config["access_key_id"] == "one"


def test_without_any_of_them_the_library_looks_by_itself(tmp_path: Path):
    for variables in ({}, {"HOME": str(tmp_path)}):
        found = find_credentials("s3", variables)
        assert not found.are_fixed
        assert "role" in found.source
    assert not find_credentials("gs", FIXED).are_fixed


@pytest.mark.parametrize(
    ("profile", "text", "said"),
    [
        ("nobody", PROFILES, "profile 'nobody'"),
        ("role", PROFILES, "does not use role_arn, SSO or credential_process"),
        ("default", "canary = canary", "cannot be read"),
        ("default", "[default]\naws_secret_access_key = canary\n", "has no aws_access_key_id"),
        ("default", None, "cannot be read"),
    ],
)
def test_a_place_that_was_named_and_has_no_keys_is_refused_without_showing_any(
    file: Path, profile: str, text: str | None, said: str
):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    variables = {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": profile}
    with pytest.raises(ConfigurationError, match=said) as refused:
        find_credentials("s3", variables)
    assert "canary" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_no_secret_is_in_the_text_of_credentials(file: Path):
    found = find_credentials("s3", {"HOME": str(file.parents[1])})
    assert "first" not in repr(found)


def clients(variables: dict[str, str]) -> tuple[ObjectClients, VirtualClock]:
    clock = VirtualClock()
    environment = SeededEnvironment(seed=0, clock=clock)
    address = parse_object_address("s3://bucket/x?region=eu-west-1")
    return ObjectClients(address, variables, environment=environment), clock


def test_clients_are_made_anew_when_the_file_has_other_keys_and_only_then(file: Path):
    made, _ = clients({"HOME": str(file.parents[1])})
    before = made.creator
    made.renew()
    assert made.creator is before
    file.write_text(PROFILES.replace("first", "rotated"))
    made.renew()
    assert made.creator is not before
    assert made.credentials.config["secret_access_key"] == "rotated"


def test_while_the_file_is_away_the_old_keys_are_kept(file: Path):
    made, _ = clients({"AWS_SHARED_CREDENTIALS_FILE": str(file)})
    before = made.creator
    file.unlink()
    made.renew()
    assert made.creator is before
    file.write_text(PROFILES.replace("first", "rotated"))
    made.renew()
    assert made.credentials.config["secret_access_key"] == "rotated"


def test_a_token_service_is_not_asked_at_every_refusal():
    made, clock = clients(TOKEN)
    made.renew()
    first = made.reader
    clock.seconds = RENEW_S_MIN / 2
    made.renew()
    assert made.reader is first
    clock.seconds = RENEW_S_MIN
    made.renew()
    assert made.reader is not first
