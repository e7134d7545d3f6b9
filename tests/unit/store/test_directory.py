"""The directory store against kill -9, full disks, failing syncs and what others leave behind."""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.errors import CallError, ConfigurationError, StoreUnavailable
from holdfast.store.directory import DirectoryStore
from holdfast.store.interface import CreateAnswer
from holdfast.store.keys import TEMPORARY_FOLDER

CHILD = str(Path(__file__).with_name("directory_child.py"))
KILLS = 15


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


def is_whole(body: bytes) -> bool:
    digest, size, content = body[:32], int.from_bytes(body[32:40], "big"), body[40:]
    return len(content) == size and hashlib.sha256(content).digest() == digest


def child(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, CHILD, *arguments], capture_output=True, text=True, timeout=60
    )


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def strace_or_skip(*options: str) -> tuple[str, ...]:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trial = subprocess.run([strace, "-f", *options, "true"], capture_output=True, timeout=30)
    if trial.returncode:
        pytest.skip("strace may not trace here")
    return (strace, "-f", *options)


@pytest.mark.parametrize("mode", ["anonymous", "named"])
def test_after_kill_9_every_visible_object_is_whole_and_every_answered_one_is_there(
    tmp_path: Path, mode: str
):
    root = tmp_path / "store"
    answered: list[str] = []
    for generation in range(KILLS):
        command = [sys.executable, CHILD, "for-ever", str(root), f"{generation:02}", mode]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # The other workers are anywhere in their creates when one answer is read.
            for _ in range(1 + generation * 3 % 17):
                answer, key = process.stdout.readline().split()
                assert answer == "created"
                answered.append(key)
            process.kill()
            answered += [line.split()[1] for line in process.stdout if line.endswith("\n")]

    async def check() -> None:
        store = DirectoryStore(str(root))
        visible = [entry.key for entry in await store.list("")]
        assert len(visible) >= len(answered) >= KILLS
        assert set(answered) <= set(visible)
        for key in visible:
            assert is_whole(await store.read(key)), key
        await store.close()

    run(check())
    left_over = root / TEMPORARY_FOLDER
    assert not left_over.exists() or not list(left_over.iterdir())


def test_opening_removes_left_overs_but_not_what_another_process_is_writing(tmp_path: Path):
    root = tmp_path / "store"
    folder = root / TEMPORARY_FOLDER
    folder.mkdir(parents=True)
    (folder / "dead").write_bytes(b"half an obj")
    holder = (
        "import fcntl, sys\n"
        "held = open(sys.argv[1], 'wb'); fcntl.flock(held, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(folder / "alive")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "held\n"
        run(DirectoryStore(str(root)).close())
        assert [path.name for path in folder.iterdir()] == ["alive"]
        process.stdin.close()
    run(DirectoryStore(str(root)).close())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("anonymous_files", [True, False])
@in_event_loop
async def test_without_anonymous_files_the_answers_are_the_same(
    tmp_path: Path, anonymous_files: bool
):
    store = DirectoryStore(str(tmp_path), anonymous_files=anonymous_files)
    answers = await asyncio.gather(*(store.create("a/b", [b"%d" % i]) for i in range(8)))
    assert answers.count(CreateAnswer.CREATED) == 1
    assert answers.count(CreateAnswer.EXISTS) == 7
    assert await store.read("a/b") == b"%d" % answers.index(CreateAnswer.CREATED)
    assert [entry.key for entry in await store.list("")] == ["a/b"]
    assert not list((tmp_path / TEMPORARY_FOLDER).glob("*"))
    await store.close()


def test_bytes_are_synced_before_the_link_and_the_folders_before_the_answer(tmp_path: Path):
    trace = tmp_path / "trace"
    calls = "mkdirat,mkdir,openat,writev,fdatasync,linkat,fsync,write"
    strace = strace_or_skip("-y", "-o", str(trace), "-e", f"trace={calls}")
    root = tmp_path / "store"
    assert child("each", str(root), "1000", before=strace).stdout == "created\n"
    events = _events(trace.read_text(), str(root))
    assert events == [
        ("sync folder", str(tmp_path)),
        ("make", "f"),
        ("sync folder", str(root)),
        ("write", "object"),
        ("sync bytes", "object"),
        ("link", "0"),
        ("sync folder", str(root / "f")),
        ("answer", "created"),
    ]


def test_the_folder_is_synced_before_the_answer_that_a_key_is_taken(tmp_path: Path):
    trace = tmp_path / "trace"
    strace = strace_or_skip("-y", "-o", str(trace), "-e", "trace=fsync,writev,linkat,write")
    root = tmp_path / "store"
    assert child("each", str(root), "1000").stdout == "created\n"
    assert child("each", str(root), "1000", before=strace).stdout == "exists\n"
    events = _events(trace.read_text(), str(root))
    assert events[-2:] == [("sync folder", str(root / "f")), ("answer", "exists")]
    assert ("write", "object") not in events


def _events(trace: str, root: str) -> list[tuple[str, str]]:
    patterns = {
        "sync folder": r"fsync\(\d+<([^>]*)>\)\s+= 0",
        "make": rf'mkdirat\(\d+<{re.escape(root)}>, "([^"]+)"',
        "write": r"writev\(\d+<[^>]*/()#?\d+[^>]*>",
        "sync bytes": r"fdatasync\(\d+<()",
        "link": r'linkat\(.*, "(\d+)", AT_SYMLINK_FOLLOW\)\s+= 0',
        "answer": r'write\(1<[^>]*>, "(created|exists)',
    }
    events: list[tuple[str, str]] = []
    for line in trace.splitlines():
        for name, pattern in patterns.items():
            found = re.search(rf"\b{pattern}", line)
            if found:
                events.append((name, found.group(1) or "object"))
    return events


def test_a_failed_sync_of_the_bytes_leaves_nothing_and_the_next_create_works(tmp_path: Path):
    strace = strace_or_skip("-o", "/dev/null", "-e", "inject=fdatasync:error=EIO:when=1")
    answers = child("each", str(tmp_path), "5000", "5000", before=strace).stdout.splitlines()
    assert answers[0].startswith("StoreUnavailable") and "Input/output error" in answers[0]
    assert answers[1] == "created"
    assert not (tmp_path / "f" / "0").exists()
    assert is_whole((tmp_path / "f" / "1").read_bytes())


def test_after_a_failed_sync_of_a_folder_no_create_is_answered_any_more(tmp_path: Path):
    # The first sync is of the root, for the new folder; the second is after the link.
    strace = strace_or_skip("-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=2")
    answers = child("each", str(tmp_path), "5000", "5000", before=strace).stdout.splitlines()
    assert answers[0].startswith("StoreUnavailable") and "unknown" in answers[0]
    assert answers[1].startswith("StoreUnavailable") and "is read-only since an fsync" in answers[1]
    assert not (tmp_path / "f" / "1").exists()


def test_a_write_that_ends_in_the_middle_is_unavailable_and_leaves_nothing(tmp_path: Path):
    answers = child("each-up-to", "65536", str(tmp_path), "1000", "200000", "2000").stdout
    first, second, third = answers.splitlines()
    assert (first, third) == ("created", "created")
    assert second.startswith("StoreUnavailable") and "File too large" in second
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["0", "2"]


def test_a_full_disk_is_unavailable_and_leaves_nothing(tmp_path: Path):
    mounted = tmp_path / "small"
    mounted.mkdir()
    script = f'mount -t tmpfs -o size=512k tmpfs {mounted} && exec "$@"'
    before = ("unshare", "-rm", "sh", "-c", script, "sh")
    if shutil.which("unshare") is None or subprocess.run([*before, "true"]).returncode:
        pytest.skip("no small file system can be mounted here")
    done = child("each", str(mounted / "store"), "100000", "900000", "100000", before=before)
    first, second, third = done.stdout.splitlines()
    assert (first, third) == ("created", "created")
    assert second.startswith("StoreUnavailable") and "No space left on device" in second


@in_event_loop
async def test_a_folder_that_someone_removed_is_made_again(tmp_path: Path):
    store = DirectoryStore(str(tmp_path / "store"))
    await store.create("a/b/c", [b"1"])
    shutil.rmtree(tmp_path / "store" / "a")
    assert await store.create("a/b/c", [b"2"]) is CreateAnswer.CREATED
    assert await store.read("a/b/c") == b"2"
    await store.close()


@in_event_loop
async def test_a_key_below_an_object_is_a_wrong_call_and_not_an_outage(tmp_path: Path):
    store = DirectoryStore(str(tmp_path))
    await store.create("a/b", [b"object"])
    with pytest.raises(CallError):
        await store.create("a/b/c", [b"below it"])
    assert await store.read("a/b") == b"object"
    await store.close()


def test_a_directory_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigurationError, match="file/store"):
        DirectoryStore(str(tmp_path / "file" / "store"))


@in_event_loop
async def test_strangers_in_the_directory_are_not_objects(tmp_path: Path):
    store = DirectoryStore(str(tmp_path))
    await store.create("a/1", [b"x"])
    (tmp_path / "a" / "editor~").write_text("backup")
    (tmp_path / "a" / "link").symlink_to("1")
    os.mkfifo(tmp_path / "a" / "pipe")
    assert [entry.key for entry in await store.list("")] == ["a/1"]
    await store.close()


@in_event_loop
async def test_no_descriptor_is_left_open_by_answers_or_refusals(tmp_path: Path):
    store = DirectoryStore(str(tmp_path), threads=2)
    await store.create("warm/up", [b"x"])
    before = open_descriptors()
    for number in range(50):
        await store.create(f"n/{number % 10}/x/y", [b"x"])
        await store.read("warm/up")
        await store.list("", limit=3)
        with pytest.raises(CallError):
            await store.create("warm/up/below", [b"x"])
    assert open_descriptors() == before
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read("warm/up")
