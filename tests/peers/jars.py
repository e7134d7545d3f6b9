"""The peers' jars, and our Java, Go and Node programs: fetched and compiled once into a cache.

It owns the cache folder (HOLDFAST_CACHE, else ~/.cache/holdfast). It never writes into the tree,
and one lock keeps test workers from fetching at the same time.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
POM = ROOT / "peers" / "pom.xml"
SPARK_POM = ROOT / "peers" / "spark" / "pom.xml"
CONNECT_POM = ROOT / "peers" / "connect" / "pom.xml"
JAVA_SOURCES = ROOT / "peers" / "java"
GO_SOURCES = ROOT / "peers" / "go"
NODE_SOURCES = ROOT / "peers" / "node"
CONNECT_SOURCES = ROOT / "peers" / "redpanda-connect"
BUILD_SECONDS_MAX = 1_800
KAFKA_VERSION = "4.3.1"
JAVA_MAJOR_MIN = 17
FETCH_SECONDS_MAX = 600
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class PeerUnavailable(Exception):
    """A tool is missing here, or what it fetches cannot be had: a reason to skip."""


def cache_folder() -> Path:
    """Where fetched and compiled files stay between runs."""
    return Path(os.environ.get("HOLDFAST_CACHE") or Path.home() / ".cache" / "holdfast")


def java_command() -> str:
    """The path of a Java that is new enough."""
    java = shutil.which("java")
    if java is None:
        raise PeerUnavailable(f"Apache Kafka needs Java {JAVA_MAJOR_MIN}: no java on the path")
    banner = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    found = re.search(r'version "(\d+)', banner)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        raise PeerUnavailable(f"Apache Kafka needs Java {JAVA_MAJOR_MIN}: found {banner[:80]!r}")
    return java


def kafka_class_path() -> str:
    """The class path of Apache Kafka; the first caller fetches the jars by Maven."""
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}-{_digest([POM])}"
    with _locked("kafka"):
        if not folder.is_dir():
            _fetch_jars(POM, folder, "Apache Kafka")
    return f"{folder}/*"


def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's own Kafka source, for spark.jars; the first caller fetches them."""
    folder = cache_folder() / f"spark-kafka-{_digest([SPARK_POM])}"
    with _locked("spark-kafka"):
        if not folder.is_dir():
            _fetch_jars(SPARK_POM, folder, "Spark's Kafka source")
    return sorted(folder.glob("*.jar"))


def connect_jars() -> list[Path]:
    """The jars of Kafka Connect and its file connectors; the first caller fetches them."""
    folder = cache_folder() / f"kafka-connect-{_digest([CONNECT_POM])}"
    with _locked("kafka-connect"):
        if not folder.is_dir():
            _fetch_jars(CONNECT_POM, folder, "Kafka Connect")
    return sorted(folder.glob("*.jar"))


def program_class_path() -> str:
    """The class path of our Java programs with Apache Kafka's; the first caller compiles them."""
    jars = kafka_class_path()
    sources = sorted(JAVA_SOURCES.rglob("*.java"))
    folder = cache_folder() / f"programs-{_digest([POM, *sources])}"
    with _locked("programs"):
        if not folder.is_dir():
            _compile(sources, jars, folder)
    return f"{folder}{os.pathsep}{jars}"


def go_program() -> Path:
    """Our Go program, the client franz-go; the first caller compiles it."""
    return _go_built("franz-go", GO_SOURCES)


def node_program(name: str) -> list[str]:
    """The command of one of our Node programs; the first caller fetches kafkajs."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise PeerUnavailable("kafkajs needs Node.js: no node or no npm on the path")
    sources = sorted(path for path in NODE_SOURCES.iterdir() if path.suffix in (".js", ".json"))
    folder = cache_folder() / f"node-{_digest(sources)}"
    with _locked("node"):
        if not folder.is_dir():
            _install_node(npm, sources, folder)
    return [node, str(folder / name)]


def _install_node(npm: str, sources: list[Path], folder: Path) -> None:
    partial = _empty(folder.with_suffix(".partial"))
    for source in sources:
        shutil.copy(source, partial)
    installed = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=partial,
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS_MAX,
        check=False,
    )
    if installed.returncode != 0:
        raise PeerUnavailable(f"npm could not fetch kafkajs: {installed.stderr[-600:]}")
    partial.rename(folder)


def redpanda_connect() -> Path:
    """Redpanda Connect with Kafka and S3; the first caller compiles it, for some minutes."""
    return _go_built("redpanda-connect", CONNECT_SOURCES)


def _go_built(name: str, folder: Path) -> Path:
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod"))
    program = cache_folder() / f"{name}-{_digest(sources)}"
    with _locked(name):
        if not program.is_file():
            _build_go(program, folder, name)
    return program


def _build_go(program: Path, folder: Path, name: str) -> None:
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable(f"{name} needs Go: no go on the path")
    partial = program.with_suffix(".partial")
    for step in (["mod", "download"], ["build", "-trimpath", "-o", str(partial), "."]):
        done = subprocess.run(
            [go, *step],
            cwd=folder,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0 and step[0] == "mod":
            raise PeerUnavailable(f"Go could not fetch {name}: {done.stderr[-600:]}")
        if done.returncode != 0:
            raise RuntimeError(f"go build: {done.stderr}")
    partial.rename(program)


def _fetch_jars(pom: Path, folder: Path, what: str) -> None:
    java_command()
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"the jars of {what} are fetched by Maven: no mvn on the path")
    partial = _empty(folder.with_suffix(".partial"))
    command = [
        *(maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={partial}", "-DincludeScope=runtime"),
    ]
    fetched = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
    )
    if fetched.returncode != 0:
        raise PeerUnavailable(f"Maven could not fetch {what}: {fetched.stdout[-600:]}")
    partial.rename(folder)


def _compile(sources: list[Path], jars: str, folder: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise PeerUnavailable("the Java client needs a JDK: no javac on the path")
    partial = _empty(folder.with_suffix(".partial"))
    command = [javac, "-Xlint:all,-processing,-path", "-d", str(partial), "-cp", jars]
    compiled = subprocess.run(
        [*command, *map(str, sources)], capture_output=True, text=True, timeout=300, check=False
    )
    if compiled.returncode != 0:
        raise RuntimeError(f"javac: {compiled.stderr}")
    partial.rename(folder)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
