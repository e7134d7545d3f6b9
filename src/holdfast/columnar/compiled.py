"""The door to numba: how a kernel is compiled and cached, and the two reads that need its insides.

Owns the choice of the cache folder and every cast around numba, which has no types. A kernel
compiles at its first call. Must never load compiled code from a folder that another user could
have written. `copy_bytes` and `load_word` check nothing: who calls them has checked.
"""

import importlib
import os
import stat
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from holdfast.environment import process_variables

numba: Any = importlib.import_module("numba")
_extending: Any = importlib.import_module("numba.extending")
_cgutils: Any = importlib.import_module("numba.core.cgutils")
_ir: Any = importlib.import_module("llvmlite.ir")

P = ParamSpec("P")
R = TypeVar("R")

i64 = cast(Callable[[Any], int], np.int64)
u64 = np.uint64
"""Inside a kernel, as numba reads them: a mix of the two would become a float."""

CACHE_DIR_VARIABLE = "NUMBA_CACHE_DIR"
FOLDER_MODE = 0o700


def _package_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"


def cache_folder(package: Path, temporary: Path) -> Path | None:
    """Where compiled kernels go when numba has no place of its own; None where numba has one."""
    if CACHE_DIR_VARIABLE in process_variables() or os.access(package, os.W_OK):
        return None
    return temporary / f"holdfast-kernels-{os.getuid()}-{_package_version()}"


def is_private(folder: Path) -> bool:
    """Whether a folder is there, or could be made, that only this user can write."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


_FOLDER = cache_folder(Path(__file__).parent, Path(tempfile.gettempdir()))


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled at its first call and kept on disk for the next process.

    The cache folder is numba's global setting: it is put back, for it is not ours alone.
    """
    cached = _FOLDER is None or is_private(_FOLDER)
    before = numba.config.CACHE_DIR
    if cached and _FOLDER is not None:
        numba.config.CACHE_DIR = str(_FOLDER)
    try:
        compiled = _compile(function, cached=cached)
    finally:
        numba.config.CACHE_DIR = before
    return cast(Callable[P, R], compiled)


def _compile(function: Any, *, cached: bool) -> Any:
    options = {"nogil": True, "error_model": "numpy"}
    if cached:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:
            # No folder can be written at all: compile in each process.
            pass
    return numba.njit(cache=False, **options)(function)


def _byte_pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position])


def _copy_bytes(
    typing_context: Any, to: Any, to_position: Any, source: Any, position: Any, size: Any
) -> Any:
    types = numba.types
    signature = types.void(to, types.uint64, source, types.uint64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_type, _, source_type, _, _ = signature.args
        into, into_position, origin, origin_position, count = arguments
        _cgutils.raw_memcpy(
            builder,
            _byte_pointer(context, builder, to_type, into, into_position),
            _byte_pointer(context, builder, source_type, origin, origin_position),
            count,
            _ir.Constant(_ir.IntType(64), 1),
        )
        return context.get_dummy_value()

    return signature, generate


def _load_word(typing_context: Any, source: Any, position: Any) -> Any:
    types = numba.types
    signature = types.uint64(source, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _ir.IntType(64)
        pointer = _byte_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.load(builder.bitcast(pointer, word.as_pointer()), align=1)

    return signature, generate


copy_bytes = cast(
    Callable[[NDArray[np.uint8], np.uint64, NDArray[np.uint8], np.uint64, np.uint64], None],
    _extending.intrinsic(_copy_bytes),
)
"""(to, to_position, source, position, size): one memcpy."""

load_word = cast(
    Callable[[NDArray[np.uint8], np.uint64], np.uint64], _extending.intrinsic(_load_word)
)
"""(source, position): eight bytes, little-endian, at any alignment."""
