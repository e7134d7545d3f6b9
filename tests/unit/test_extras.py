"""Extras that are there, and the one line for those that are not."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast.extras import MODULES, is_installed, require

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_whose_modules_are_all_there_is_installed(extra: str):
    assert is_installed(extra)
    require("holdfast sink", extra)


@pytest.mark.parametrize("extra", MODULES)
def test_each_module_is_a_distribution_that_the_extra_asks_for(extra: str):
    def asked(name: str) -> set[str]:
        wanted = [Requirement(text) for text in PROJECT["optional-dependencies"][name]]
        more = [asked(part) for one in wanted for part in one.extras if one.name == "holdfast"]
        return {one.name for one in wanted}.union(*more)

    assert set(MODULES[extra]) <= asked(extra)


@pytest.mark.parametrize("module", ["pyspark_holdfast", "pyspark_holdfast_landed"])
def test_what_spark_imports_by_itself_never_fails_where_the_extra_is_missing(module: str):
    program = (
        f"import sys; sys.modules['numba'] = None; import {module} as found;"
        " sys.exit(hasattr(found, 'DefaultSource'))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
