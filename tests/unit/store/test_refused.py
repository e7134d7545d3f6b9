"""What a provider's refusals mean: which are about credentials, and that keys are read again."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.errors import CredentialsRefused, StoreUnavailable
from holdfast.store.objects import ObjectStore, open_object_store

KEYS = "[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"


class Provider(ThreadingHTTPServer):
    """Gives one answer to everything, and remembers whose requests came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 403
        self.code = ""
        self.seen: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.seen.append(self.headers["Authorization"].split("Credential=")[1].split("/")[0])
        body = f"<Error><Code>{self.server.code}</Code></Error>" if self.server.code else ""
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """A test run is no place for it."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(KEYS.format(key="old"))
    return path


def rotate(keys: Path) -> None:
    keys.write_text(KEYS.format(key="new"))


def opened(provider: Provider, keys: Path) -> ObjectStore:
    url = f"s3://bucket/x?endpoint=http://127.0.0.1:{provider.server_port}&region=us-east-1"
    return open_object_store(url, variables={"AWS_SHARED_CREDENTIALS_FILE": str(keys)})


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, ""),
        (403, ""),
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (400, "ExpiredToken"),
        (400, "InvalidToken"),
        (400, "TokenRefreshRequired"),
    ],
)
@in_event_loop
async def test_a_refusal_of_credentials_is_named_and_the_next_request_has_new_ones(
    provider: Provider, keys: Path, status: int, code: str
):
    provider.status, provider.code = status, code
    store = opened(provider, keys)
    try:
        rotate(keys)
        with pytest.raises(CredentialsRefused, match="credentials"):
            await store.create("a", (b"1",))
        with pytest.raises(CredentialsRefused):
            await store.create("a", (b"1",))
    finally:
        await store.close()
    assert provider.seen == ["old", "new"]


@in_event_loop
async def test_a_bad_request_without_a_reason_lets_keys_be_read_again_but_is_not_called_a_refusal(
    provider: Provider, keys: Path
):
    provider.status = 400
    store = opened(provider, keys)
    try:
        rotate(keys)
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as failed:
                await store.size("a")
            assert not isinstance(failed.value, CredentialsRefused)
    finally:
        await store.close()
    assert provider.seen == ["old", "new"]


@pytest.mark.parametrize(("status", "code"), [(409, ""), (404, "NoSuchBucket"), (501, "")])
@in_event_loop
async def test_other_answers_are_no_refusal_and_keys_are_left_alone(
    provider: Provider, keys: Path, status: int, code: str
):
    provider.status, provider.code = status, code
    store = opened(provider, keys)
    try:
        rotate(keys)
        for _ in range(2):
            try:
                await store.create("a", (b"1",))
            except StoreUnavailable as error:
                assert not isinstance(error, CredentialsRefused)
    finally:
        await store.close()
    assert set(provider.seen) == {"old"}
