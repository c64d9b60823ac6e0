"""core/ does no file I/O, opens no connection and starts no process.

Third-party modules that it must not import are import-linter's part.
Looked for in the syntax tree, so that a text or comment that mentions one is no finding.
"""

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "core"
FILES = sorted(CORE.rglob("*.py"))

CALLS = {"open", "input", "print"}
METHODS = {
    "open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "makedirs", "rmdir",
    "unlink", "rmtree", "touch", "symlink_to", "iterdir", "glob", "rglob", "exists", "is_file",
    "is_dir", "copyfile", "copytree", "mkstemp", "mkdtemp", "listdir", "scandir", "getenv",
}  # fmt: skip
OF_OS = {"replace", "rename", "remove", "stat", "environ"}
"""Names that other types have too: findings only on ``os``."""
MODULES = {
    "os", "io", "pathlib", "shutil", "tempfile", "socket", "subprocess", "sqlite3", "urllib",
    "http", "logging.handlers", "asyncio", "threading", "time", "importlib.resources",
}  # fmt: skip


def findings(tree: ast.AST) -> list[str]:
    """What in a module would touch the world outside its arguments."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(f"line {node.lineno}: {name}()")
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                found.append(f"line {node.lineno}: .{name}()")
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in OF_OS:
                found.append(f"line {node.lineno}: os.{name}")
            case ast.Import(names=names):
                found += [f"line {node.lineno}: import {n.name}" for n in names if is_io(n.name)]
            case ast.ImportFrom(module=str(module)) if is_io(module):
                found.append(f"line {node.lineno}: from {module}")
            case _:
                pass
    return found


def is_io(module: str) -> bool:
    return module in MODULES or module.partition(".")[0] in MODULES


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CORE)))
def test_a_core_module_does_no_io(path: Path) -> None:
    assert findings(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    [
        "open('x')",
        "Path('x').read_text()",
        "path.write_bytes(b'')",
        "os.replace('a', 'b')",
        "import sqlite3",
        "from pathlib import Path",
        "def f():\n    with open('x') as g:\n        pass",
    ],
)
def test_io_is_found(code: str) -> None:
    assert findings(ast.parse(code))


def test_text_methods_are_no_io() -> None:
    assert findings(ast.parse("'a'.replace('a', 'b'); rows.remove(1); re.match('x', y)")) == []
