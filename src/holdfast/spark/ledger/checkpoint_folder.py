"""The folder of a checkpoint before a query opens it: tells whether one has begun, sets it aside.

Owns the renaming. That is the only change that Holdfast ever makes to a checkpoint, and only if a
person asks for it. Must never delete one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from holdfast.addresses import is_local_address, local_path
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = "offsets"
COMMITS = "commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFolder:
    """The folder of a checkpoint, on any file system."""

    location: str
    names: Callable[[str], list[str]]
    """A function that returns the names in a folder below; none if that does not exist."""
    rename: Callable[[str], None]

    def has_begun(self) -> bool:
        """True if a query has stored where it begins; before that it may begin anywhere."""
        return any(name.isdigit() for name in self.names(OFFSETS))

    def has_committed(self) -> bool:
        """True if Spark has noted that a micro-batch is done."""
        return any(name.isdigit() for name in self.names(COMMITS))

    def set_aside(self, suffix: str) -> str | None:
        """Rename the folder and return its new name; None if there is none to rename."""
        if not self.names(""):
            return None
        aside = f"{self.location.rstrip('/')}.{suffix}"
        self.rename(aside)
        return aside


def local_folder(location: str) -> CheckpointFolder | None:
    """Return a folder on this machine; None if it is elsewhere, so that Spark must look."""
    if not is_local_address(location):
        return None
    path = local_path(location)

    def names(below: str) -> list[str]:
        folder = path / below
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def rename(aside: str) -> None:
        path.rename(local_path(aside))

    return CheckpointFolder(location=location, names=names, rename=rename)


def spark_folder(spark: "SparkSession", location: str) -> CheckpointFolder:
    """Return a folder that Spark can reach; ConfigurationError if it cannot."""
    java = cast(Any, spark)._jvm
    configuration = cast(Any, spark)._jsc.hadoopConfiguration()
    try:
        root = java.org.apache.hadoop.fs.Path(location)
        files = root.getFileSystem(configuration)
        files.exists(root)
    except Exception as wrong:
        raise ConfigurationError(
            f"this Spark cannot write its checkpoint to {location}: {_first_line(wrong)}. Name a"
            " directory, or give Spark the jars for that address (spark.jars.packages in"
            " [spark.conf]; s3:// is s3a:// there)"
        ) from wrong

    def names(below: str) -> list[str]:
        folder = java.org.apache.hadoop.fs.Path(root, below) if below else root
        if not files.exists(folder):
            return []
        return [str(entry.getPath().getName()) for entry in files.listStatus(folder)]

    def rename(aside: str) -> None:
        if not files.rename(root, java.org.apache.hadoop.fs.Path(aside)):
            raise ConfigurationError(f"{location} cannot be renamed to {aside}: do it by hand")

    return CheckpointFolder(location=location, names=names, rename=rename)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    java = next((line for line in lines if "Exception" in line), lines[0] if lines else "")
    return java.removeprefix(": ")[:300]
