"""Room on the disk that is reserved for the few small objects without which a broker cannot serve.

Owns one file in the root of a directory store. Its content means nothing, only its blocks matter:
when the disk is full, a few of them are freed for a needed object. Brokers on one directory share
the file without a lock, because a paused broker must not hold up the others, and a race costs a few
blocks at most. A reserve that is missing, used up or cannot be created is not an error. Must never
free room for other objects, and never take the last room of a disk.
"""

import logging
import os
from collections.abc import Callable

from holdfast.store.interface import Buffers
from holdfast.store.keys import RESERVE_FILE

RESERVE_BYTES = 4 * 1024 * 1024
FREE_BYTES_MIN = 2 * RESERVE_BYTES
"""The reserve is filled only if this much is free."""
GIVEN_BYTES = 16 * 1024
"""How much is freed for one object: blocks for it, and for a folder that grows. If that is too
little, the caller tries again and gets more."""
RESERVE_MODE = 0o644

IsNeeded = Callable[[str, Buffers], bool]
"""A function: must the object of this key and body be written before a broker can serve?"""

log = logging.getLogger("holdfast.store")


class Reserve:
    """The reserve of one directory. Its calls block, and may come from several threads."""

    def __init__(self, root_fd: int, is_needed: IsNeeded) -> None:
        self.is_needed = is_needed
        self._root_fd = root_fd
        self._is_allocated = False
        """True if we allocated the blocks: in a copied store the file may have its size only."""

    def fill(self) -> None:
        """Fill the reserve if the disk has room for it."""
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            fd = self._open(os.O_CREAT)
            try:
                self._fill(fd)
            finally:
                os.close(fd)
        except OSError as error:
            log.debug("store_reserve_not_filled error=%s", error)

    def _fill(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        disk = os.fstatvfs(fd)
        is_whole = self._is_allocated and size >= RESERVE_BYTES
        if is_whole or disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
            return
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
        self._is_allocated = True
        log.info("store_reserve_filled bytes=%d", RESERVE_BYTES)

    def give(self, key: str) -> bool:
        """Free some of the reserve for an object that found no room; False if none is left."""
        try:
            fd = self._open()
        except OSError:
            return False
        try:
            size = os.fstat(fd).st_size
            left = max(0, size - GIVEN_BYTES)
            os.ftruncate(fd, left)
            # Some file systems free blocks only with their journal.
            os.fsync(fd)
        except OSError:
            return False
        finally:
            os.close(fd)
        if size > 0:
            log.warning("store_reserve_given key=%s bytes_left=%d", key, left)
        return size > 0

    def _open(self, more_flags: int = 0) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more_flags
        return os.open(RESERVE_FILE, flags, RESERVE_MODE, dir_fd=self._root_fd)
