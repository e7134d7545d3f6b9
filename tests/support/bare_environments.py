"""Environments with nothing but the wheel and what its metadata asks for.

Owns building the wheel and the environments. Nothing is downloaded: the dependencies are linked
from the environment that runs the tests, which has the locked versions; they must be versions that
the metadata allows. What the metadata does not name is not there, as after `pip install holdfast`
on a new machine. A larger environment shares the linked files of smaller ones, and what Python and
numba have compiled of the wheel.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
BUILD_SECONDS_MAX = 120
RUN_SECONDS_MAX = 120
UV = str(Path(sys.executable).parent / "uv")


def build_wheel(folder: Path) -> Path:
    """The wheel of this source tree, built without a network."""
    command = [UV, "build", "--quiet", "--wheel", "--offline", "--no-build-isolation"]
    run_checked([*command, "--python", sys.executable, "-o", str(folder), str(ROOT)])
    (wheel,) = folder.glob("holdfast-*.whl")
    return wheel


class BareEnvironment:
    """A virtual environment, with the wheel and one extra of it or none.

    `onto` are environments whose libraries it must have as well; `tools` are distributions that a
    user has beside the wheel. Without a wheel, it has the libraries of the others alone.
    """

    def __init__(
        self,
        folder: Path,
        wheel: Path | None,
        *,
        extra: str = "",
        onto: Sequence["BareEnvironment"] = (),
        tools: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        self._site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        self.names = {name for smaller in onto for name in smaller.names}
        self._libraries = [path for smaller in onto for path in smaller._libraries]
        wanted = set(self.names)
        for tool in tools:
            wanted |= {tool} | needed(metadata.distribution(tool), "")
        if wheel is not None:
            install = [UV, "pip", "install", "--quiet", "--offline", "--no-deps"]
            run_checked([*install, "--python", str(self.python), str(wheel)])
            (own,) = metadata.distributions(name="holdfast", path=[str(self._site)])
            asked = needed(own, extra)
            assert self.names <= asked, f"[{extra}] does not ask for {self.names - asked}"
            wanted |= asked
            for smaller in onto[:1]:
                shutil.rmtree(self._site / "holdfast")
                (self._site / "holdfast").symlink_to(smaller._site / "holdfast")
        self._link(wanted - self.names)
        self.names = wanted
        (self._site / "libraries.pth").write_text("".join(f"{path}\n" for path in self._libraries))

    def _link(self, names: set[str]) -> None:
        folder = self.folder / "libraries"
        folder.mkdir()
        for name in names:
            link_distribution(metadata.distribution(name), folder)
        self._libraries.insert(0, folder)

    @property
    def variables(self) -> dict[str, str]:
        """What a shell has that never activated this environment, nor knows the source tree."""
        return {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV"))
        }

    def run(
        self, *command: str, seconds_max: float = RUN_SECONDS_MAX, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment to its end, outside the source tree."""
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )


def needed(distribution: metadata.Distribution, extra: str) -> set[str]:
    """The names of all distributions that one asks for, directly or through others.

    Fails where the environment of the tests has a version that is not allowed.
    """
    found: set[str] = set()
    asked = [(distribution, extra)]
    seen: set[tuple[str, str]] = set()
    while asked:
        one, wanted_extra = asked.pop()
        name = one.metadata["Name"].lower()
        if (name, wanted_extra) in seen:
            continue
        seen.add((name, wanted_extra))
        for text in one.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not marker.evaluate({"extra": wanted_extra}):
                continue
            is_own = requirement.name == distribution.metadata["Name"]
            other = distribution if is_own else metadata.distribution(requirement.name)
            if not is_own:
                found.add(requirement.name)
                is_allowed = requirement.specifier.contains(other.version, prereleases=True)
                assert is_allowed, f"{name} asks for {text}, and {other.version} is installed"
            asked += [(other, part) for part in ("", *requirement.extras)]
    return found


def link_distribution(distribution: metadata.Distribution, site: Path) -> None:
    """Put the files of an installed distribution, compiled ones too, into another environment."""
    for path in distribution.files or ():
        if ".." in path.parts:
            continue
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            continue
        source = Path(str(path.locate())).resolve()
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy2(source, target)


def run_checked(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
