"""A config file with the files that it extends, as one tree of keys.

``extends: other.yaml`` names a file relative to the one that says it, or a shipped recipe by its
bare name (``extends: care``). Sections are merged key by key and the child wins; lists and plain
values are replaced whole. A child's ``evolution`` (or ``offline``) that names a ``method`` replaces
the parent's section: what another method has must not linger. Relative data paths are those of
the file that names them. Importable without torch, vLLM or Ray.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.errors import ConfigError

RECIPES = Path(__file__).parent / "configs"
"""The shipped recipes."""

METHOD_SECTIONS = ("evolution", "offline")
"""Sections whose keys depend on their ``method``."""

_MAX_SHOWN = 120
_MAX_CHAIN = 20
"""Files that one config can rest on."""


class ConfigLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key which a section has twice: the first would be lost unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode) and k.value != "<<"]
        doubled = next((key for key in own if own.count(key) > 1), None)
        if doubled is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {doubled!r} twice in one section", node.start_mark
            )
        return super().construct_mapping(node, deep)


def config_path(name: str) -> Path:
    """Return the file that ``--config`` names: a path, or a shipped recipe's bare name."""
    return _existing(name, Path(), f"--config {name!r}")


def read_layers(path: Path) -> dict[str, Any]:
    """Return the keys of ``path`` over those of the files that it extends; raises ConfigError."""
    return _read(path, ())


def _read(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """``below`` are the files that led here."""
    place = path.resolve()
    if place in below or len(below) >= _MAX_CHAIN:
        chain = " -> ".join(p.name for p in (*below, place))
        raise ConfigError(
            f"{below[0]}: got files that extend each other ({chain[-300:]}), wanted a chain that "
            "ends: take one `extends` out"
        )
    tree = _with_own_paths(_read_yaml(path), path.parent)
    if "extends" not in tree:
        return tree
    parent = tree.pop("extends")
    if not isinstance(parent, str) or not parent:
        raise ConfigError(
            f"{path}: got extends={parent!r:.60}, wanted one file name (or a shipped recipe's)"
        )
    found = _existing(parent, path.parent, f"{path}: extends {parent!r}")
    return _merged(_read(found, (*below, place)), tree)


def _merged(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        known = merged.get(key)
        is_new_method = key in METHOD_SECTIONS and isinstance(value, dict) and "method" in value
        if isinstance(known, dict) and isinstance(value, dict) and not is_new_method:
            merged[key] = _merged(known, value)
        else:
            merged[key] = value
    return merged


def _existing(name: str, folder: Path, what: str) -> Path:
    """Return the file of this name: as a path from ``folder``, else a shipped recipe."""
    path = folder / name
    if os.path.isfile(path):
        return path
    is_bare = Path(name).name == name
    recipe = RECIPES / (name if name.endswith(".yaml") else f"{name}.yaml")
    if is_bare and os.path.isfile(recipe):
        return recipe
    shipped = sorted(p.stem for p in RECIPES.glob("*.yaml"))
    close = difflib.get_close_matches(Path(name).stem, shipped, n=1) if is_bare else []
    meant = f": did you mean `{close[0]}`?" if close else ""
    raise ConfigError(
        f"got {what[:300]}, wanted an existing YAML file: the shipped ones are in "
        f"drivers/configs/{meant}"
    )


# ------------------------------------------------------------------ one file
def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = yaml.load(text, ConfigLoader)
    except OSError as error:
        raise ConfigError(
            f"got --config {path}, which cannot be read ({error.strerror}), wanted a YAML file"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: got text that is not YAML ({_yaml_problem(error)}), wanted config keys as "
            "in drivers/configs/quickstart.yaml: correct it there"
        ) from None
    if not isinstance(tree, dict):
        got = "an empty file" if tree is None else f"a {type(tree).__name__}"
        raise ConfigError(
            f"{path}: got {got}, wanted a mapping of config keys: see "
            "drivers/configs/quickstart.yaml"
        )
    return tree


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error)
    what = " ".join(what.split())[:_MAX_SHOWN]
    return f"line {mark.line + 1}: {what}" if mark is not None else what


def _with_own_paths(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tree with the data files of this layer found beside it."""
    data = tree.get("data")
    if not isinstance(data, dict):
        return tree
    return tree | {"data": with_data_paths(data, folder)}


def with_data_paths(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the ``data`` section with its files; ``folder`` is that of the file that names them.

    A relative path is looked for in the working folder first.
    """

    def found(name: Any) -> Any:
        # os.path.exists says no to names that no file can have; reading them says what is wrong.
        if not isinstance(name, str) or os.path.exists(name) or not os.path.exists(folder / name):
            return name
        return str(folder / name)

    changed = {key: found(data[key]) for key in ("train", "eval") if key in data}
    rubrics = data.get("task_rubrics")
    if isinstance(rubrics, dict):
        changed["task_rubrics"] = {task: found(name) for task, name in rubrics.items()}
    return {**data, **changed}
