"""A user's function from a Python file: it gets the streaming DataFrame and returns another.

Owns the loading, which runs the file, and the check of what the function returns. Must never call
it before there is a Spark session, nor show a person a traceback if one line is enough.
"""

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigurationError, HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FUNCTION = "pipeline"
OPTIONS = "OPTIONS"
NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"
EXAMPLE = "def pipeline(frame): return frame"


class NeedsSession(ConfigurationError):
    """The file asks Spark for something while it is loaded, as `@udf("int")` does.

    `module` has what the file had defined by then. A pipeline's OPTIONS mostly come first.
    """

    def __init__(self, message: str, module: ModuleType) -> None:
        super().__init__(message)
        self.module = module


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A function that was found, and has not been called."""

    path: Path
    name: str
    module: ModuleType
    function: Callable[["DataFrame"], object]

    def __call__(self, frame: "DataFrame") -> "DataFrame":
        """Return the function's DataFrame; ConfigurationError if it is none, or not a stream.

        Executors cannot import the file, so what is pickled of it is pickled by value.
        """
        from pyspark import cloudpickle
        from pyspark.sql import DataFrame

        cast(Any, cloudpickle).register_pickle_by_value(self.module)
        try:
            found = self.function(frame)
        except HoldfastError:
            raise
        except Exception as wrong:
            raise ConfigurationError(
                f"{self.path.name}, line {_line(wrong, self.path)}, in {self.name}:"
                f" {type(wrong).__name__}: {str(wrong).splitlines()[0] if str(wrong) else ''}"
            ) from wrong
        if not isinstance(found, DataFrame):
            raise ConfigurationError(
                f"{self}: it returned {type(found).__name__}, not a DataFrame: end the function"
                " with `return frame`"
            )
        if not found.isStreaming:
            raise ConfigurationError(
                f"{self}: it returned a DataFrame that is not a stream: derive it from the frame"
                " that the function gets"
            )
        return found

    def __str__(self) -> str:
        return f"{self.path.name}:{self.name}"


def load_transform(path: Path, name: str = FUNCTION) -> Transform:
    """Return the function of this name in a file."""
    module = load_module(path)
    function = getattr(module, name, None)
    if not callable(function):
        there = [
            other
            for other, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"write `{EXAMPLE}`"
        raise ConfigurationError(f"{path.name} has no function {name!r}: {hint}")
    try:
        inspect.signature(function).bind(object())
    except TypeError as wrong:
        raise ConfigurationError(
            f"{path.name}:{name} must take one argument, the frame ({wrong}): write `{EXAMPLE}`"
        ) from wrong
    return Transform(path=path, name=name, module=module, function=function)


def options_in(module: ModuleType, path: Path) -> Mapping[str, Any]:
    """Return the tables of a pipeline that is a Python file: a dict of dicts called OPTIONS."""
    found: object = getattr(module, OPTIONS, {})
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{path.name}: {OPTIONS} is {type(found).__name__}: it must be a dict of the tables,"
            ' as in OPTIONS = {"source": {...}, "output": {...}}'
        )
    return cast("dict[str, Any]", found)


def load_module(path: Path) -> ModuleType:
    """Run a file, once for each process. It can import modules beside it."""
    name = f"holdfast_pipeline_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as missing:
        del sys.modules[name]
        raise ConfigurationError(f"{path}: {missing.strerror}") from missing
    except SyntaxError as wrong:
        del sys.modules[name]
        raise ConfigurationError(f"{path.name}, line {wrong.lineno}: {wrong.msg}") from wrong
    except Exception as wrong:
        del sys.modules[name]
        if NO_SESSION in str(wrong):
            raise NeedsSession(
                f"{path.name}, line {_line(wrong, path)}: this needs a Spark session while the file"
                " is loaded: move it into the function",
                module,
            ) from wrong
        raise ConfigurationError(
            f"{path.name}, line {_line(wrong, path)}: {type(wrong).__name__}: {wrong}"
        ) from wrong
    return module


def _line(error: Exception, path: Path) -> int | None:
    """Return the last line of the file that the error passed through."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
