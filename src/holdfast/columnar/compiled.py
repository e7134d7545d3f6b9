"""The one place that imports numba: compiling and caching of kernels, bytes by their address.

Owns the choice of the cache folder and every cast around numba, which has no types. A kernel
compiles at its first call. Must never load compiled code from a folder that another user could have
written. Numba keeps a compiled kernel until the kernel's own file changes. So after a change to
this file, delete the cache files (*.nbi, *.nbc). Functions that read or write by address check
nothing: their caller must have checked.
"""

import importlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from holdfast import __version__
from holdfast.environment import process_variables

numba: Any = importlib.import_module("numba")
_extending: Any = importlib.import_module("numba.extending")
_cgutils: Any = importlib.import_module("numba.core.cgutils")
_ir: Any = importlib.import_module("llvmlite.ir")

P = ParamSpec("P")
R = TypeVar("R")

i64 = cast(Callable[[Any], int], np.int64)
u64 = np.uint64
"""Integer types inside a kernel, as numba reads them.

An expression of both would become a float.
"""

CACHE_DIR_VARIABLE = "NUMBA_CACHE_DIR"
FOLDER_MODE = 0o700


def cache_folder(package: Path, temporary: Path) -> Path | None:
    """Return the cache folder for compiled kernels. None if numba can use its usual one."""
    if CACHE_DIR_VARIABLE in process_variables() or os.access(package, os.W_OK):
        return None
    return temporary / f"holdfast-kernels-{os.getuid()}-{__version__}"


def is_private(folder: Path) -> bool:
    """True if a folder exists, or could be created, that only this user can write."""
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
    """Compile the function at its first call, and keep the result on disk for the next process.

    The cache folder is a global setting of numba. It is restored, because other code may use it.
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
            # No cache folder can be written: compile in each process.
            pass
    return numba.njit(cache=False, **options)(function)


def _pointer(builder: Any, address: Any, position: Any, bits: int) -> Any:
    place = builder.add(address, position)
    return builder.inttoptr(place, _ir.IntType(bits).as_pointer())


def _address_of(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _ir.IntType(64))

    return numba.types.uint64(array), generate


def _byte_at(typing_context: Any, address: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.load(_pointer(builder, arguments[0], arguments[1], 8))
        return builder.zext(byte, _ir.IntType(64))

    return numba.types.int64(numba.types.uint64, numba.types.int64), generate


def _word_at(typing_context: Any, address: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(builder, arguments[0], arguments[1], 64), align=1)

    return numba.types.uint64(numba.types.uint64, numba.types.int64), generate


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], _ir.Constant(_ir.IntType(1), 0))

    return numba.types.int64(numba.types.uint64), generate


def _put_byte(typing_context: Any, address: Any, position: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, offset, value = arguments
        low = builder.trunc(value, _ir.IntType(8))
        builder.store(low, _pointer(builder, place, offset, 8))
        return context.get_dummy_value()

    types = numba.types
    return types.void(types.uint64, types.int64, types.int64), generate


def _copy_bytes(
    typing_context: Any, to: Any, to_position: Any, source: Any, position: Any, size: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, into_position, origin, origin_position, count = arguments
        _cgutils.raw_memcpy(
            builder,
            _pointer(builder, into, into_position, 8),
            _pointer(builder, origin, origin_position, 8),
            count,
            _ir.Constant(_ir.IntType(64), 1),
        )
        return context.get_dummy_value()

    types = numba.types
    return types.void(types.uint64, types.int64, types.uint64, types.int64, types.int64), generate


Address = np.uint64
"""The address of an array's bytes.

Numba counts references to an array at each call that gets one as an argument. That took two thirds
of the time of the walk through JSON; a number needs no counting. The array must be an argument of
the outermost kernel, so that it outlives the call.
"""

address_of = cast(Callable[[NDArray[Any]], Address], _extending.intrinsic(_address_of))
byte_at = cast(Callable[[Address, int], int], _extending.intrinsic(_byte_at))
word_at = cast(Callable[[Address, int], np.uint64], _extending.intrinsic(_word_at))
"""Eight bytes as a little-endian number, at any alignment."""
trailing_zeros = cast(Callable[[np.uint64], int], _extending.intrinsic(_trailing_zeros))
"""The number of lowest bits that are zero. 64 if all are."""
put_byte = cast(Callable[[Address, int, int], None], _extending.intrinsic(_put_byte))
copy_bytes = cast(
    Callable[[Address, int, Address, int, int], None], _extending.intrinsic(_copy_bytes)
)
"""One memcpy: (to, to_position, source, position, size)."""
