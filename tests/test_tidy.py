"""Style as numbers: lengths of modules, functions and folders; docstrings; names; imports."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 25
PRODUCT = sorted((ROOT / "src").rglob("*.py"))
SIMULATION = sorted((ROOT / "simulation").rglob("*.py"))
SOURCES = sorted(
    p
    for part in ("src", "simulation", "tests", "benchmarks", "examples")
    for p in (ROOT / part).rglob("*.py")
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports() -> Iterator[tuple[str, str]]:
    """Each import of a module of this repository by another one."""
    modules = {module_name(path): path for path in SOURCES}
    for importer, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            yield from ((importer, name) for name in named if name in modules)


IMPORTS = list(imports())


def folder_of_tests(module: str) -> str | None:
    """The folder below tests/ that a module is in; None for one that is in no such folder."""
    first, *folders, _ = module.split(".")
    return folders[0] if first == "tests" and folders else None


def test_there_are_sources_to_check():
    assert len(SOURCES) > 20


def test_no_module_is_longer_than_its_bound():
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in SOURCES
        if (lines := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert not too_long


def test_no_function_is_longer_than_its_bound():
    too_long: list[str] = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {lines}")
    assert not too_long


def test_every_module_says_what_it_owns():
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.read_text().strip()
        and not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()
    ]
    assert not silent


def test_no_folder_of_the_product_holds_more_modules_than_its_bound():
    """The messages of the protocol are one file for each of Kafka's."""
    counts = Counter(path.parent for path in PRODUCT if path.stem != "__init__")
    del counts[ROOT / "src/holdfast/protocol/messages"]
    assert {folder: n for folder, n in counts.items() if n > FOLDER_MODULES_MAX} == {}


def test_no_public_class_name_stands_for_two_things():
    places: dict[str, list[str]] = {}
    for path in PRODUCT + SIMULATION:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_test_module_is_imported_by_another_module():
    assert not [
        f"{importer} imports {imported}"
        for importer, imported in IMPORTS
        if imported.rpartition(".")[2].startswith("test_")
    ]


def test_what_two_folders_of_tests_share_is_in_tests_support():
    """tests/chaos and tests/peers are programs, which every test may import."""
    open_to_all = {"support", "peers", "chaos"}
    assert not [
        f"{importer} imports {imported}"
        for importer, imported in IMPORTS
        if (folder := folder_of_tests(imported)) is not None
        and folder not in open_to_all
        and folder_of_tests(importer) not in (None, folder)
    ]


def test_no_module_is_called_utils():
    assert not [p for p in SOURCES if p.stem in ("utils", "helpers", "common", "misc")]
