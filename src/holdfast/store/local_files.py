"""Objects as files below one root folder: the blocking calls of the directory store.

Owns durability on a local file system. An object appears by link(2), whole or not at all, after its
bytes were synced. A create answers only after its folder was synced too, also if the answer is
"exists", because that may be our own earlier try whose folder sync failed. Must never run on the
event loop, and never replace a file.

Another process can see an object between the link and the sync of the folder. Only a power cut in
those milliseconds could undo it, and that stops every process which uses this directory.
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.errors import CallError, ConfigurationError, ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry
from holdfast.store.keys import TEMPORARY_FOLDER, key_problem
from holdfast.store.reserve import IsNeeded, Reserve

BUFFERS_PER_WRITE_MAX = 1024
"""IOV_MAX of Linux."""
SETTLED_FOLDERS_MAX = 16_384
OBJECT_MODE = 0o644
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_ANONYMOUS_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
WRONG_CALL = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})


class LocalFiles:
    """The files below one root. Many threads and processes may use them at the same time."""

    def __init__(self, root: str, *, sync: bool = True, anonymous_files: bool = True) -> None:
        self._root = Path(root).absolute()
        self._sync = sync
        self._anonymous_files = (
            anonymous_files and hasattr(os, "O_TMPFILE") and os.access("/proc/self/fd", os.X_OK)
        )
        self._settled: dict[str, None] = {}
        self._settling = threading.Lock()
        self._temporary_numbers = iter(range(1 << 62))
        self._failed_sync: OSError | None = None
        self._reserve: Reserve | None = None
        try:
            self._make_root()
            self._root_fd = os.open(self._root, FOLDER_FLAGS)
            self._remove_left_overs()
        except OSError as error:
            raise ConfigurationError(
                f"the store directory {str(self._root)!r} cannot be used ({error.strerror}):"
                " name a directory that this user may create and write"
            ) from error

    def keep_reserve(self, is_needed: IsNeeded) -> None:
        """Let needed objects take room from the reserve if the disk is full."""
        self._reserve = Reserve(self._root_fd, is_needed)

    def fill_reserve(self) -> None:
        """Fill the reserve if the disk has room for it."""
        if self._reserve is not None:
            self._reserve.fill()

    def create(self, key: str, body: Buffers) -> CreateAnswer:
        """Write, sync, link, sync the folder. On a full disk, retry a needed object."""
        if self._failed_sync is not None:
            # A kernel reports a failed sync once and then forgets the lost pages: a second sync
            # that succeeds would prove nothing.
            raise StoreUnavailable(
                f"the store directory {str(self._root)!r} is read-only since an fsync of a folder"
                f" failed ({self._failed_sync}): check the disk, then restart"
            ) from self._failed_sync
        try:
            return self._create(key, body)
        except OSError as error:
            if not self._has_made_room(error, key, body):
                raise _as_store_error(error, "create", key) from error
        # The first try found no room, so it made no link and left nothing behind.
        try:
            return self._create(key, body)
        except OSError as error:
            raise _as_store_error(error, "create", key) from error

    def read(self, key: str, start: int, length: int | None) -> bytes:
        """Return the bytes of a range, fewer if the object ends."""
        try:
            fd = self._open_object(key)
            try:
                left = max(0, os.fstat(fd).st_size - start)
                return _read_range(fd, start, left if length is None else min(left, length))
            finally:
                os.close(fd)
        except OSError as error:
            raise _as_store_error(error, "read", key) from error

    def size(self, key: str) -> int | None:
        """Return the object's size; None if there is no such object."""
        try:
            status = os.stat(key, dir_fd=self._root_fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _as_store_error(error, "size", key) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, prefix: str, after: str, limit: int | None) -> list[ObjectEntry]:
        """Return objects in byte order of the whole key. Only returned objects cost a stat."""
        entries: list[ObjectEntry] = []
        if limit is not None and limit <= 0:
            return entries
        try:
            for key in self._keys(prefix.rpartition("/")[0], prefix, after):
                try:
                    status = os.stat(key, dir_fd=self._root_fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entries.append(ObjectEntry(key, status.st_size, status.st_mtime_ns // 1_000_000))
                if limit is not None and len(entries) >= limit:
                    break
        except OSError as error:
            raise _as_store_error(error, "list", prefix) from error
        return entries

    def delete(self, keys: Iterable[str]) -> None:
        """Unlink objects without a sync: one that reappears after a power cut is deleted again.

        Folders stay, even empty ones, because another process may be about to create in them.
        """
        for key in keys:
            try:
                os.unlink(key, dir_fd=self._root_fd)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                raise _as_store_error(error, "delete", key) from error

    def close(self) -> None:
        """Close the root; no call may be under way."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    def _has_made_room(self, error: OSError, key: str, body: Buffers) -> bool:
        reserve = self._reserve
        if reserve is None or error.errno not in NO_ROOM or not reserve.is_needed(key, body):
            return False
        return reserve.give(key)

    def _create(self, key: str, body: Buffers) -> CreateAnswer:
        folder, _, name = key.rpartition("/")
        folder_fd = self._open_folder_durably(folder)
        try:
            return self._create_in(folder_fd, name, key, body)
        except FileNotFoundError:
            # Another process removed the folder after we opened it.
            self._settled.pop(folder, None)
            raise
        finally:
            os.close(folder_fd)

    def _create_in(self, folder_fd: int, name: str, key: str, body: Buffers) -> CreateAnswer:
        if _is_there(name, folder_fd):
            # A repeated large create should not write everything again just to find this out.
            self._sync_folder(folder_fd, key)
            return CreateAnswer.EXISTS
        fd, temporary = self._open_unnamed(folder_fd)
        try:
            _write_all(fd, body)
            if self._sync:
                os.fdatasync(fd)
            answer = self._link(fd, temporary, folder_fd, name)
        finally:
            if temporary is not None:
                _unlink_if_there(temporary, self._root_fd)
            os.close(fd)
        self._sync_folder(folder_fd, key)
        return answer

    def _open_unnamed(self, folder_fd: int) -> tuple[int, str | None]:
        """Open a file that is not an object yet; return it and its temporary name, if any."""
        if self._anonymous_files:
            try:
                flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
                return os.open(".", flags, OBJECT_MODE, dir_fd=folder_fd), None
            except OSError as error:
                if error.errno not in NO_ANONYMOUS_FILES:
                    raise
                self._anonymous_files = False
        (self._root / TEMPORARY_FOLDER).mkdir(exist_ok=True)
        while True:
            number = next(self._temporary_numbers)
            temporary = f"{TEMPORARY_FOLDER}/{os.getpid()}-{id(self)}-{number}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                fd = os.open(temporary, flags, OBJECT_MODE, dir_fd=self._root_fd)
            except FileExistsError:
                continue
            # The lock tells a cleaner in another process that this file is in use.
            fcntl.flock(fd, fcntl.LOCK_EX)
            return fd, temporary

    def _link(self, fd: int, temporary: str | None, folder_fd: int, name: str) -> CreateAnswer:
        source = f"/proc/self/fd/{fd}" if temporary is None else temporary
        try:
            # With a src_dir_fd Python calls linkat(2) and may follow the link in /proc.
            os.link(
                source,
                name,
                src_dir_fd=self._root_fd,
                dst_dir_fd=folder_fd,
                follow_symlinks=temporary is None,
            )
        except FileExistsError:
            return CreateAnswer.EXISTS
        return CreateAnswer.CREATED

    def _sync_folder(self, folder_fd: int, key: str) -> None:
        if not self._sync:
            return
        try:
            os.fsync(folder_fd)
        except OSError as error:
            self._failed_sync = error
            raise StoreUnavailable(
                f"create of {key!r} in {str(self._root)!r}: the fsync of its folder failed"
                f" ({error}), so the outcome is unknown"
            ) from error

    def _open_folder_durably(self, folder: str) -> int:
        """Open the folder, create it if it is missing, and sync every entry above it once.

        Opening by path costs 4 us beside milliseconds of sync, so no descriptors are kept. Only a
        bounded list of the folders is kept whose parents need no more sync.
        """
        if folder in self._settled:
            try:
                return os.open(folder or ".", FOLDER_FLAGS, dir_fd=self._root_fd)
            except FileNotFoundError:
                self._settled.pop(folder, None)
        with self._settling:
            parts = folder.split("/") if folder else []
            folder_fd = os.open(".", FOLDER_FLAGS, dir_fd=self._root_fd)
            for part in parts:
                parent_fd = folder_fd
                try:
                    folder_fd = self._open_child_folder(parent_fd, part)
                finally:
                    os.close(parent_fd)
            while len(self._settled) >= SETTLED_FOLDERS_MAX:
                del self._settled[next(iter(self._settled))]
            self._settled[folder] = None
        return folder_fd

    def _open_child_folder(self, parent_fd: int, part: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=parent_fd)
        if self._sync:
            # Also if it existed: another process may have made it and not synced it yet.
            os.fsync(parent_fd)
        return os.open(part, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent_fd)

    def _open_object(self, key: str) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(key, flags, dir_fd=self._root_fd)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(f"there is no object {key!r} in {str(self._root)!r}") from error
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise ObjectNotFound(f"{key!r} in {str(self._root)!r} is not an object but a folder")

    def _keys(self, folder: str, prefix: str, after: str) -> Iterator[str]:
        base = f"{folder}/" if folder else ""
        names: list[str] = []
        try:
            folder_fd = os.open(folder or ".", FOLDER_FLAGS, dir_fd=self._root_fd)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with os.scandir(folder_fd) as found:
                for entry in found:
                    # A folder sorts as its name with a slash, as in the keys below it.
                    if entry.is_dir(follow_symlinks=False):
                        name = f"{base}{entry.name}/"
                        is_wanted = name > after or after.startswith(name)
                    else:
                        name = base + entry.name
                        is_wanted = name > after and entry.is_file(follow_symlinks=False)
                    if is_wanted and name.startswith(prefix):
                        names.append(name)
        finally:
            os.close(folder_fd)
        names.sort()
        for name in names:
            if not name.endswith("/"):
                if key_problem(name) is None:
                    yield name
            elif name != f"{TEMPORARY_FOLDER}/":
                yield from self._keys(name[:-1], prefix, after)

    def _make_root(self) -> None:
        missing = [path for path in (self._root, *self._root.parents) if not path.is_dir()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            parent_fd = os.open(path.parent, FOLDER_FLAGS)
            try:
                os.fsync(parent_fd)
            finally:
                os.close(parent_fd)

    def _remove_left_overs(self) -> None:
        """Remove temporary files whose process is gone: those that no process has locked."""
        folder = self._root / TEMPORARY_FOLDER
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        for name in names:
            path = f"{TEMPORARY_FOLDER}/{name}"
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._root_fd)
            except OSError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _unlink_if_there(path, self._root_fd)
            except BlockingIOError:
                continue
            finally:
                os.close(fd)


def _write_all(fd: int, body: Buffers) -> None:
    left = [view for buffer in body if (view := memoryview(buffer).cast("B")).nbytes]
    position = 0
    while position < len(left):
        written = os.writev(fd, left[position : position + BUFFERS_PER_WRITE_MAX])
        while position < len(left) and written >= left[position].nbytes:
            written -= left[position].nbytes
            position += 1
        if written:
            left[position] = left[position][written:]


def _read_range(fd: int, start: int, length: int) -> bytes:
    if length <= 0:
        return b""
    chunk = os.pread(fd, length, start)
    if len(chunk) == length:
        return chunk
    chunks = [chunk]
    done = len(chunk)
    while chunk and done < length:
        chunk = os.pread(fd, length - done, start + done)
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def _is_there(name: str, folder_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unlink_if_there(path: str, dir_fd: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def _as_store_error(error: OSError, operation: str, key: str) -> StoreUnavailable | CallError:
    if error.errno in WRONG_CALL:
        return CallError(
            f"{operation} of {key!r}: a folder of this key is an object already, or a name is too"
            f" long ({error})"
        )
    return StoreUnavailable(f"{operation} of {key!r} failed on the local disk: {error}")
