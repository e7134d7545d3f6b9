"""S3, GCS and Azure as a store: the client library's blocking calls, run in separate threads.

Owns the meaning of the library's errors. Looks for credentials again after a refusal, so changed
keys need no restart. The library's create says "already exists" for 412, for 409, and for our own
write whose answer was lost, so EXISTS only means here that the key must be read back. Every answer
that is not certain is StoreUnavailable. Must never retry a create, and never use the library's
asynchronous calls: they can abort the interpreter at its exit.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from holdfast.environment import Environment, SystemEnvironment, process_variables
from holdfast.errors import (
    ConfigurationError,
    CredentialsRefused,
    ObjectNotFound,
    StoreUnavailable,
)
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry
from holdfast.store.keys import check_key, check_prefix
from holdfast.store.object_address import Client, parse_object_address
from holdfast.store.object_clients import ObjectClients
from holdfast.store.object_listing import folder_of, offset_of, select

if TYPE_CHECKING:
    from obstore import ObjectMeta

LIST_PAGE = 1000
CLOSE_SECONDS_MAX = 1.0
Entries = list[ObjectEntry]

P = ParamSpec("P")
T = TypeVar("T")

_REFUSED = re.compile(
    r"status code: 40[13]\b|\((ExpiredToken|InvalidToken|TokenRefreshRequired"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch)\)"
)
_STATUS = re.compile(r"status code: (4\d\d [A-Za-z ]+\(\w+\)|4\d\d [A-Za-z ]+)")
"""The status in a refusal. The library's text is long; a person needs the code and our hint."""
_BAD_REQUEST = re.compile(r"status code: 400\b")
_ERROR_CODE = re.compile(r"<Code>([A-Za-z0-9._-]{1,80})</Code>")


def open_object_store(
    url: str,
    *,
    variables: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    keeps_trying: bool = True,
) -> "ObjectStore":
    """Return the store at an s3://, gs:// or az:// address, without contacting it yet."""
    given = process_variables() if variables is None else variables
    clients = ObjectClients(
        parse_object_address(url), given, environment=environment or SystemEnvironment()
    )
    return ObjectStore(clients, keeps_trying=keeps_trying)


class ObjectStore:
    """The store in one bucket, below one prefix."""

    def __init__(self, clients: ObjectClients, *, keeps_trying: bool = True) -> None:
        address = clients.address
        self._address = address
        self._clients = clients
        self._keeps_trying = keeps_trying
        self._has_answered = False
        self._threads = ThreadPoolExecutor(
            address.threads, thread_name_prefix=f"holdfast-{address.scheme}"
        )
        self._is_closed = False

    @property
    def url(self) -> str:
        return self._address.url

    @property
    def is_remote(self) -> bool:
        return True

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        check_key(key)
        return await self._call(self._create, key, body)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        return await self._call(self._read, key, start, length)

    async def size(self, key: str) -> int | None:
        check_key(key)
        return await self._call(self._size, key)

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        check_prefix(prefix)
        return await self._call(self._list, prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if keys:
            await self._call(self._delete, tuple(keys))

    async def close(self) -> None:
        """Stop the threads, and wait a little for the calls under way.

        A call that the store does not answer keeps its thread until its own time-out. With all
        tries of the client library that may take minutes.
        """
        if self._is_closed:
            return
        self._is_closed = True
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self._threads.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits for us
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=end, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), CLOSE_SECONDS_MAX)

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._is_closed:
            raise StoreUnavailable(f"the store {self.url} is closed")
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))
        except ObjectNotFound:
            self._has_answered = True
            raise
        except CredentialsRefused as error:
            if self._keeps_trying or self._has_answered:
                raise
            raise ConfigurationError(str(error)) from error
        self._has_answered = True
        return answer

    def _create(self, key: str, body: Buffers) -> CreateAnswer:
        try:
            # One put, never multipart: not every provider has conditional multipart uploads.
            whole = body[0] if len(body) == 1 else b"".join(body)
            obstore.put(self._clients.creator, key, whole, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return CreateAnswer.EXISTS
        except FileNotFoundError as error:
            raise self._unavailable("create", key, error, "is there such a bucket?") from error
        except BaseError as error:
            raise self._unavailable("create", key, error) from error
        return CreateAnswer.CREATED

    def _read(self, key: str, start: int, length: int | None) -> bytes:
        if length is not None and length <= 0:
            self._check_there(key)
            return b""
        try:
            if length is not None:
                return obstore.get_range(
                    self._clients.reader, key, start=start, length=length
                ).to_bytes()
            if start:
                got = obstore.get(self._clients.reader, key, options={"range": {"offset": start}})
            else:
                got = obstore.get(self._clients.reader, key)
            body = got.bytes().to_bytes()
        except FileNotFoundError as error:
            raise self._not_found("read", key, error) from error
        except BaseError as error:
            # For a range past the end, providers return an error that has no class of its own.
            if self._is_past_end(key, start):
                return b""
            raise self._unavailable("read", key, error) from error
        if len(body) != got.meta["size"] - start:
            raise StoreUnavailable(
                f"read of {key!r} in {self.url} from byte {start} returned {len(body)} bytes; the"
                f" object has {got.meta['size']}"
            )
        return body

    def _size(self, key: str) -> int | None:
        try:
            return obstore.head(self._clients.reader, key)["size"]
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise self._unavailable("size", key, error) from error

    def _list(self, prefix: str, after: str, limit: int | None) -> Entries:
        page = LIST_PAGE if limit is None else max(1, min(limit, LIST_PAGE))
        try:
            return select(
                _pages(self._clients.reader, folder_of(prefix), offset_of(prefix, after), page),
                prefix=prefix,
                after=after,
                limit=limit,
            )
        except (BaseError, FileNotFoundError) as error:
            raise self._unavailable("list", prefix, error) from error

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._clients.reader, keys)
        except FileNotFoundError:
            # GCS and Azure stop at a missing key; later keys may still exist.
            for key in keys:
                self._delete_one(key)
        except BaseError as error:
            raise self._unavailable("delete", keys[0], error) from error

    def _delete_one(self, key: str) -> None:
        try:
            obstore.delete(self._clients.reader, key)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise self._unavailable("delete", key, error) from error

    def _check_there(self, key: str) -> None:
        if self._size(key) is None:
            raise ObjectNotFound(f"there is no object {key!r} in {self.url}")

    def _is_past_end(self, key: str, start: int) -> bool:
        size = self._size(key)
        return size is not None and start >= size

    def _not_found(
        self, operation: str, key: str, error: Exception
    ) -> ObjectNotFound | StoreUnavailable:
        if "NoSuchBucket" in str(error):
            return self._unavailable(operation, key, error, "is there such a bucket?")
        return ObjectNotFound(f"there is no object {key!r} in {self.url}")

    def _unavailable(
        self, operation: str, key: str, error: Exception, hint: str = ""
    ) -> StoreUnavailable:
        reason = _short_reason(error)
        # The library's listing wraps a refusal in its general error.
        is_refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        is_refused = is_refused or _REFUSED.search(reason) is not None
        # The answer to a HEAD has no body, so an expired token looks like any bad request.
        if is_refused or _BAD_REQUEST.search(reason):
            self._clients.renew()
        if is_refused:
            status = _STATUS.search(reason)
            reason = status[1] if status is not None else reason
            source = self._clients.credentials.source
            hint = f"check the credentials ({source}) and what they may do"
        kind = CredentialsRefused if is_refused else StoreUnavailable
        return kind(
            f"{operation} of {key!r} in {self.url}: {reason}" + (f"; {hint}" if hint else "")
        )


def _pages(client: Client, folder: str, offset: str | None, page: int) -> Iterator[Entries]:
    # The library's type also covers Arrow batches, whose package is not installed.
    library: Any = obstore
    rows: Sequence[ObjectMeta]
    for rows in library.list(client, folder or None, offset=offset, chunk_size=page):
        yield [
            ObjectEntry(row["path"], row["size"], int(row["last_modified"].timestamp() * 1000))
            for row in rows
        ]


def _short_reason(error: Exception) -> str:
    """Return the library's first line without the server's answer, plus the code in that answer."""
    text = str(error)
    head = text.partition("\n")[0].partition("<?xml")[0].partition("<Error")[0]
    code = _ERROR_CODE.search(text)
    return head[:300].rstrip(": ") + (f" ({code.group(1)})" if code else "")
