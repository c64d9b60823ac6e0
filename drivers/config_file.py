"""Reads a config: YAML plus ``key=value`` overrides into a checked ``RunConfig``.

Importable without torch, vLLM or Ray. Every mistake is a ConfigError of one sentence that names the
key, what it got and what it wanted.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.config import RunConfig
from core.errors import ConfigError


def load_config(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the config of ``path`` with the overrides applied, its data paths resolved.

    A relative data path is looked for in the working folder, then beside the config file.
    Raises ConfigError.
    """
    tree = _read_yaml(Path(path))
    for override in overrides:
        _apply(tree, override)
    try:
        config = RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_problem(error, tree)}") from None
    return _with_data_paths(config, Path(path).parent)


def dump_config(config: RunConfig) -> str:
    """Return the resolved config as YAML; it can be given to ``--config`` again."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(
            f"got --config {path}, wanted an existing YAML file: the shipped ones are in "
            "drivers/configs/"
        )
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: got text that is not YAML ({_line(error)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: got {type(tree).__name__}, wanted a mapping of config keys")
    return tree


def _line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else str(error)


def _apply(tree: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(f"got the override {override!r}, wanted key=value, e.g. loop.steps=10")
    node = tree
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"got the override {override!r}, but {part!r} is not a section")
        node = child
    try:
        node[parts[-1]] = yaml.safe_load(text)
    except yaml.YAMLError:
        node[parts[-1]] = text


def _first_problem(error: ValidationError, tree: Mapping[str, Any]) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    method = str((tree.get("evolution") or {}).get("method", ""))
    if method in location[1:2]:
        del location[1]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return f"got the unknown key `{key}`{_suggestion(location)}"
    if problem["type"] == "missing":
        return f"got no `{key}`, wanted it to be set"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"`{key}`: {message}" if key else message
    return f"got {key}={problem['input']!r}, wanted: {message}"


def _suggestion(location: Sequence[str]) -> str:
    """Name the keys that stand at the unknown key's place."""
    model: Any = RunConfig
    for part in location[:-1]:
        field = model.model_fields.get(part) if _is_model(model) else None
        model = field.annotation if field is not None else None
    if not _is_model(model):
        return ", wanted a key of that section"
    names = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], names, n=1)
    meant = f": did you mean `{close[0]}`?" if close else ""
    return f", wanted one of {', '.join(names)}{meant}"


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)


def _with_data_paths(config: RunConfig, folder: Path) -> RunConfig:
    def found(name: str | None) -> str | None:
        if name is None or Path(name).exists() or not (folder / name).exists():
            return name
        return str(folder / name)

    data = config.data.model_copy(
        update={"train": found(config.data.train), "eval": found(config.data.eval)}
    )
    return config.model_copy(update={"data": data})
