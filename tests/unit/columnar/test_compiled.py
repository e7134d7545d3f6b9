"""Kernels are kept where only their own user can have written them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from holdfast.columnar.compiled import address_of, byte_at, cache_folder, is_private, kernel


def test_a_package_that_can_be_written_keeps_numbas_own_place(tmp_path: Path):
    assert cache_folder(tmp_path, tmp_path) is None


def test_a_package_that_cannot_be_written_has_a_folder_of_its_user(tmp_path: Path):
    missing = tmp_path / "missing"
    folder = cache_folder(missing, tmp_path)
    assert folder is not None and folder.parent == tmp_path
    assert str(os.getuid()) in folder.name
    assert is_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_not_trusted(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not is_private(shared)


def test_a_link_or_a_file_in_place_of_the_folder_is_not_trusted(tmp_path: Path):
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    file = tmp_path / "file"
    file.write_text("")
    assert not is_private(link)
    assert not is_private(file)


def test_a_kernel_reads_the_bytes_of_its_array():
    assert total(np.array([1, 2, 250], dtype=np.uint8)) == 253


def test_compiled_kernels_are_kept_in_the_folder_that_numba_is_told(tmp_path: Path):
    program = (
        "import numpy as np; from holdfast.columnar.kernels import micros;"
        "import numba; print(micros(2, 1), numba.config.CACHE_DIR)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert found.stdout.split() == ["3000", str(tmp_path)]
    assert list(tmp_path.rglob("kernels.micros-*.nbi"))


@kernel
def total(numbers: np.ndarray) -> int:
    found = 0
    for i in range(len(numbers)):
        found += byte_at(address_of(numbers), i)
    return found
