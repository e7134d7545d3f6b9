"""Which Python Spark's workers run on, and what is said of one that cannot run our tasks."""

import sys
import venv
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.spark.runtime.executors import (
    PYTHON_SETTING,
    PYTHON_VARIABLE,
    check_python,
    choose_python,
)

MASTER = "spark://host:7077"


def chosen(master: str, variables: dict[str, str], **config: str) -> str | None:
    choose_python(variables, config, master=master)
    return variables.get(PYTHON_VARIABLE)


@pytest.mark.parametrize("master", [MASTER, "local[2]", "yarn"])
def test_tasks_run_on_the_python_of_the_driver(master: str):
    assert chosen(master, {}) == sys.executable


def test_a_python_that_the_caller_named_stays():
    assert chosen(MASTER, {PYTHON_VARIABLE: "/opt/python"}) == "/opt/python"


def test_the_setting_of_spark_reaches_the_workers():
    config = {PYTHON_SETTING: "/opt/python"}
    assert chosen(MASTER, {PYTHON_VARIABLE: "python3"}, **config) == "/opt/python"


def test_an_image_on_kubernetes_keeps_its_own_python():
    assert chosen("k8s://https://host:443", {}) is None


def test_the_python_of_the_driver_is_fit():
    check_python(sys.executable)
    check_python(str(Path(sys.executable).parent / "python3"))


def test_a_python_without_the_libraries_is_refused_with_their_names_and_the_remedy(tmp_path: Path):
    venv.create(tmp_path, with_pip=False)
    with pytest.raises(ConfigurationError) as refused:
        check_python(str(tmp_path / "bin" / "python"))
    said = str(refused.value)
    assert "\n" not in said
    assert "lacks holdfast, cramjam" in said
    assert "PYSPARK_PYTHON" in said


def test_a_python_that_spark_gives_the_package_needs_the_libraries_alone(tmp_path: Path):
    venv.create(tmp_path, with_pip=False)
    with pytest.raises(ConfigurationError, match="lacks cramjam"):
        check_python(str(tmp_path / "bin" / "python"), has_package=False)


def test_another_version_of_python_is_named(tmp_path: Path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho '[[3, 9], []]'\n")
    other.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"it is Python 3\.9, and the driver is Python 3"):
        check_python(str(other))


@pytest.mark.parametrize("body", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n"])
def test_what_is_no_python_is_refused(tmp_path: Path, body: str):
    other = tmp_path / "python"
    other.write_text(body)
    other.chmod(0o755)
    with pytest.raises(ConfigurationError, match="does not run"):
        check_python(str(other))


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(ConfigurationError, match="/no/such/python, which does not exist"):
        check_python("/no/such/python")
