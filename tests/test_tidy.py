"""Style as numbers: module and function lengths, and a docstring that says what a module owns."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
SOURCES = sorted(
    p
    for part in ("src", "simulation", "tests", "benchmarks", "examples")
    for p in (ROOT / part).rglob("*.py")
)


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


def test_no_module_is_called_utils():
    assert not [p for p in SOURCES if p.stem in ("utils", "helpers", "common", "misc")]
