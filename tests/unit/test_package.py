"""What is installed is whole: every package is listed, and so is every file that is no Python."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "actors", "serve", "drivers", "prompts")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_folder_with_python_is_a_package_of_the_installed_project() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    assert found - set(SETTINGS["packages"]) == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_other_file_is_package_data(folder: str) -> None:
    patterns = SETTINGS["package-data"].get(folder, [])
    listed = {path for pattern in patterns for path in (ROOT / folder).glob(pattern)}
    others = {
        path
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert others - listed == set()
