"""Run the blocks of a page as a reader would, in a folder and a network of their own.

    python -m tests.docs.run_page README.md

The reader's environment has the wheel and what the page says to install, and nothing else: see
tests/support/bare_environments.py. Where the system allows it, the page gets its own loopback
network and its own process ids: 127.0.0.1:9092 is then free, and `pgrep` finds nobody else's
processes, whatever else runs on the machine. Exit code 1
and the place in the page where something went wrong.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.terminal import CommandFailed, Terminal
from tests.peers.seaweedfs import SeaweedFs
from tests.support.bare_environments import BareEnvironment
from tests.support.page_blocks import Block, blocks_of, installed_by, lines_in_order, needs_s3
from tests.support.shared_environments import SharedEnvironments

ROOT = Path(__file__).parent.parent.parent
IN_OWN_NETWORK = "HOLDFAST_DOCS_OWN_NETWORK"
SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x1 | 0x40
S3_PORT = 8333
BUCKETS = ("lake", "my-bucket")
LONG_LINE = 400
OF_SPARKS_DAEMON = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:  File \"[^\"\n]*/pyspark/daemon\.py\".*\n(?:    .*\n)*)+"
    r"BrokenPipeError: .*\n"
)
"""By a daemon of Spark's own, in a session that is not ours, on a busy machine: no setting stops
it."""


class PageRun:
    """One page, block after block."""

    def __init__(self, page: Path, folder: Path, variables: dict[str, str]) -> None:
        self._page = page
        self._folder = folder
        self._logs = folder.parent
        self._variables = variables
        self._terminals: list[Terminal] = []
        self._main = self._open_terminal()
        self._printed: str | None = ""
        """What the last block printed; None after one that does not run here."""
        self.blocks_run = 0

    def run(self) -> None:
        for block in blocks_of(self._page.read_text()):
            if block.not_run_because is not None:
                self._printed = None
                continue
            try:
                self._run_block(block)
            except CommandFailed as failed:
                raise SystemExit(f"{self._page}:{block.line}: {failed}") from failed

    def end(self) -> list[str]:
        """End what still runs; return what each terminal showed."""
        return [terminal.end() for terminal in reversed(self._terminals)]

    def _run_block(self, block: Block) -> None:
        match block.language:
            case "sh" if block.running_until is not None:
                terminal = self._open_terminal()
                terminal.start(block.text, until=block.running_until)
            case "sh":
                self._printed = self._main.run(block.text)
            case "text" if self._printed is None:
                return
            case "text":
                missing = lines_in_order(block.text, self._printed)
                if missing is not None:
                    raise CommandFailed(f"this was not printed: {missing}\n{self._printed}")
            case "python" if block.title is None:
                name = f"block_{block.line}.py"
                (self._folder / name).write_text(block.text)
                self._printed = self._main.run(f"python {name}")
            case _ if block.title is not None:
                path = self._folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            case "":
                raise CommandFailed("a block without a language: sh, text, python, toml?")
            case _:
                return
        self.blocks_run += 1

    def _open_terminal(self) -> Terminal:
        log = self._logs / f"terminal-{len(self._terminals)}.log"
        self._terminals.append(Terminal(self._folder, log, self._variables))
        return self._terminals[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--environments", type=Path, help="where bare environments are, or go")
    parser.add_argument("--show", action="store_true", help="print what the first terminal shows")
    options = parser.parse_args()
    page = ROOT / options.page
    if IN_OWN_NETWORK not in os.environ:
        os.environ[IN_OWN_NETWORK] = "no"
        _enter_own_network()
    if os.environ[IN_OWN_NETWORK] == "yes":
        _raise_loopback()
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-") as name, contextlib.ExitStack() as s3:
        installed = installed_by(page.read_text())
        environments = SharedEnvironments(options.environments or Path(name) / "environments")
        variables = _variables(environments.get(installed.extra, tools=installed.tools))
        if needs_s3(page.read_text()):
            variables |= s3.enter_context(_s3_server(Path(name) / "s3"))
        folder = Path(name) / "reader"
        folder.mkdir()
        shutil.copytree(ROOT / "examples", folder / "examples")
        run = PageRun(page, folder, variables)
        try:
            run.run()
        finally:
            shown = run.end()
        for text in shown:
            if "Traceback (most recent call last)" in OF_SPARKS_DAEMON.sub("", text):
                raise SystemExit(f"{options.page}: a traceback:\n{text[-5000:]}")
    if options.show:
        print(shown[-1], end="")
    print(f"{options.page}: {run.blocks_run} blocks as written")


def _enter_own_network() -> None:
    """Start again apart from all other processes; return where the system does not allow that."""
    for as_root in ([], ["--map-root-user"]):
        unshare = ["unshare", *as_root, "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        tried = subprocess.run([*unshare, "true"], capture_output=True, check=False)
        if tried.returncode == 0:
            os.environ[IN_OWN_NETWORK] = "yes"
            again = [sys.executable, "-m", "tests.docs.run_page", *sys.argv[1:]]
            os.execvp("unshare", [*unshare, *again])


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sH14s", b"lo", IFF_UP_RUNNING, b"")
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def _variables(environment: BareEnvironment) -> dict[str, str]:
    """What a reader's shell has: the commands of the environment, and nothing of this one."""
    own = Path(sys.prefix) / "bin"
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != own]
    return environment.variables | {
        "PATH": os.pathsep.join([str(environment.python.parent), *path]),
        "COLUMNS": str(LONG_LINE),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def _s3_server(folder: Path):
    """A real S3 server at the address that pages name, with the buckets that pages name."""
    folder.mkdir()
    server = SeaweedFs(folder, bucket=BUCKETS[0])
    server.port = S3_PORT
    server.start()
    try:
        for bucket in BUCKETS[1:]:
            server.create_bucket(bucket)
        yield server.variables | {"AWS_ENDPOINT_URL": server.endpoint}
    finally:
        server.stop()


if __name__ == "__main__":
    main()
