"""Files and functions stay small enough to read: the limits are the project's own."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "actors", "serve", "drivers", "tests")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_PARAMETERS = 7
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> list[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_and_its_functions_are_within_the_limits(path: Path) -> None:
    too_long = [
        f"{path.name}:{f.lineno} {f.name} has {_num_lines(f)} lines, limit {MAX_FUNCTION_LINES}"
        for f in functions(path)
        if _num_lines(f) > MAX_FUNCTION_LINES
    ]
    too_wide = [
        f"{path.name}:{f.lineno} takes {_num_parameters(f)}, limit {MAX_CONSTRUCTOR_PARAMETERS}"
        for f in functions(path)
        if f.name == "__init__" and _num_parameters(f) > MAX_CONSTRUCTOR_PARAMETERS
    ]
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert num_lines <= MAX_FILE_LINES, f"{path.name} has {num_lines} lines: split it"
    assert too_long + too_wide == []


def _num_lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _num_parameters(function: Function) -> int:
    """All but ``self``."""
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
