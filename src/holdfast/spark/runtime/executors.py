"""Which Python runs Spark's tasks, whether it can run Holdfast's, and how it gets the package.

Owns the checks and their messages. Spark itself reports a missing module or another Python version
only in the middle of a query, in a Java stack trace. Must never import in this process what it
looks for.
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS_MAX = 60
PYTHON_VARIABLE = "PYSPARK_PYTHON"
PYTHON_SETTING = "spark.pyspark.python"
LIBRARIES = ("cramjam", "fastcrc", "msgspec", "numba", "numpy", "obstore", "pyarrow")
"""What the package itself needs where tasks run. Spark also needs pandas."""
LOOK = (
    "import importlib.util, json, sys; names = sys.argv[1:]; "
    "print(json.dumps([list(sys.version_info[:2]),"
    " [name for name in names if importlib.util.find_spec(name) is None]]))"
)
REMEDY = (
    f"set {PYTHON_VARIABLE} to a Python {sys.version_info[0]}.{sys.version_info[1]} that is at the"
    " same path on every machine and has `pip install 'holdfast[spark]'`"
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a Python reported about itself."""

    version: tuple[int, int]
    missing: tuple[str, ...]

    def problem(self) -> str | None:
        """Return what keeps it from running tasks, or None."""
        here = (sys.version_info[0], sys.version_info[1])
        if self.version != here:
            return f"it is Python {_dotted(self.version)}, and the driver is Python {_dotted(here)}"
        if self.missing:
            return f"it lacks {', '.join(self.missing)}"
        return None


def choose_python(
    variables: MutableMapping[str, str], config: Mapping[str, str], *, master: str
) -> None:
    """Let tasks run on the driver's Python, unless the caller named another.

    On Kubernetes nothing is set by default: an image has its own Python, at its own path.
    """
    wanted = config.get(PYTHON_SETTING)
    if wanted is not None:
        variables[PYTHON_VARIABLE] = wanted
    elif not master.startswith("k8s://"):
        variables.setdefault(PYTHON_VARIABLE, sys.executable)


def check_python(python: str, *, has_package: bool = True) -> None:
    """Raise ConfigurationError if a Python of this machine cannot plan and run Holdfast's tasks.

    Without `has_package`, Spark gives it the package, and it needs only the libraries.
    """
    if python == sys.executable:
        return
    found = shutil.which(python)
    if found is None:
        raise ConfigurationError(
            f"Spark is set to run its Python workers with {python}, which does not exist: {REMEDY}"
        )
    names = ("holdfast", *LIBRARIES) if has_package else LIBRARIES
    try:
        done = subprocess.run(
            [found, "-c", LOOK, *names],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=True,
        )
        version, missing = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigurationError(
            f"Spark is set to run its Python workers with {found}, which does not run ({error}):"
            f" {REMEDY}"
        ) from error
    problem = _Seen((version[0], version[1]), tuple(missing)).problem()
    if problem is not None:
        raise ConfigurationError(
            f"Spark runs its Python workers with {found}, and {problem}: {REMEDY}, before the"
            " session starts"
        )


def check_executors(spark: "SparkSession") -> None:
    """Run one small task on a cluster; ConfigurationError if it cannot run Holdfast's tasks."""
    try:
        answers = _ask_executors(spark.sparkContext)
    except Exception as error:
        raise ConfigurationError(
            f"the executors of {spark.sparkContext.master} cannot run Python tasks"
            f" ({_cause(str(error))}): {REMEDY}"
        ) from error
    for seen in answers:
        problem = seen.problem()
        if problem is not None:
            raise ConfigurationError(
                f"the Python of the executors of {spark.sparkContext.master} cannot run Holdfast:"
                f" {problem}: {REMEDY}"
            )


def _ask_executors(context: Any) -> list[_Seen]:
    names = ("holdfast", *LIBRARIES)

    # A nested function is pickled as code, others by their name, which executors may not know.
    def look(rows: Iterable[int]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        import sys

        lacks = tuple(name for name in names if importlib.util.find_spec(name) is None)
        for _ in rows:
            yield sys.version_info[0], sys.version_info[1], lacks

    rows = context.parallelize([0], 1).mapPartitions(look).collect()
    return [_Seen((major, minor), tuple(lacks)) for major, minor, lacks in rows]


def _cause(text: str) -> str:
    """Return the line of a failure's text that names the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for wanted in ("PYTHON_VERSION_MISMATCH", "Cannot run program", "ModuleNotFoundError"):
        for line in lines:
            if wanted in line:
                return line
    return lines[0] if lines else "no reason given"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def ship_package(spark: "SparkSession") -> None:
    """Send this package, as the driver has it, to the executors of a cluster."""
    zipped = str(package_zip())
    context: Any = getattr(spark, "sparkContext", None)
    if context is not None:
        context.addPyFile(zipped)
    else:
        cast(Any, spark).addArtifacts(zipped, pyfile=True)


def package_zip(folder: Path | None = None) -> Path:
    """Pack this package as a zip for spark.submit.pyFiles or spark.sparkContext.addPyFile.

    Returns the path of the zip, in `folder` or in a new temporary directory. The same source gives
    the same name and bytes. The libraries that the package needs are not in it.
    """
    package = Path(__file__).parents[2]
    sources = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".typed"))
    if not sources:
        raise ConfigurationError(f"{package} has no files: Holdfast itself runs from a zip")
    bodies = [(str(path.relative_to(package.parent)), path.read_bytes()) for path in sources]
    digest = hashlib.sha256(repr(bodies).encode()).hexdigest()[:16]
    target = (folder or Path(tempfile.mkdtemp(prefix="holdfast-"))) / f"holdfast-{digest}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in bodies:
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return target
