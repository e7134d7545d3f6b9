"""A process that creates objects in a directory store until it is killed, or meets one refusal.

Run by test_directory.py, sometimes under strace or with limits. Prints one line per answer.
"""

import asyncio
import hashlib
import os
import resource
import sys

from holdfast.errors import HoldfastError
from holdfast.store.directory import DirectoryStore


def checked_body(size: int) -> bytes:
    """Random bytes behind their own digest and length."""
    content = os.urandom(size)
    return hashlib.sha256(content).digest() + size.to_bytes(8, "big") + content


async def create_for_ever(path: str, generation: str, anonymous_files: bool) -> None:
    store = DirectoryStore(path, anonymous_files=anonymous_files)

    async def worker(number: int) -> None:
        count = 0
        # Many buffers take several writes, so that a kill often falls between two of them.
        body = memoryview(checked_body(1 << 20))
        buffers = [body[start : start + 150] for start in range(0, len(body), 150)]
        while True:
            key = f"lanes/{number}/{generation}-{count:06}"
            answer = await store.create(key, buffers)
            print(answer.value, key, flush=True)
            count += 1

    await asyncio.gather(*(worker(number) for number in range(4)))


async def create_each(path: str, sizes: list[int]) -> None:
    store = DirectoryStore(path, threads=1)
    for number, size in enumerate(sizes):
        try:
            answer = (await store.create(f"f/{number}", [checked_body(size)])).value
        except HoldfastError as error:
            answer = f"{type(error).__name__} {error}"
        print(answer, flush=True)
    await store.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["for-ever", path, generation, mode]:
            asyncio.run(create_for_ever(path, generation, mode == "anonymous"))
        case ["each", path, *sizes]:
            asyncio.run(create_each(path, [int(size) for size in sizes]))
        case ["each-up-to", limit, path, *sizes]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
            asyncio.run(create_each(path, [int(size) for size in sizes]))
        case other:
            sys.exit(f"unknown arguments {other}")
