"""Reads a config: YAML plus ``key=value`` overrides into a checked ``RunConfig``.

Importable without torch, vLLM or Ray. Every mistake is a ConfigError of one sentence that names the
key, what it got and what it wanted.
"""

import difflib
import os
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.config import RunConfig
from core.errors import ConfigError

_MAX_SHOWN = 120
"""Characters of a wrong value that a message shows."""


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key which a section has twice: the first would be lost unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode) and k.value != "<<"]
        doubled = next((key for key in own if own.count(key) > 1), None)
        if doubled is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {doubled!r} twice in one section", node.start_mark
            )
        return super().construct_mapping(node, deep)


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
    if not os.path.isfile(path):
        raise ConfigError(
            f"got --config {str(path)!r}, wanted an existing YAML file: the shipped ones are in "
            "drivers/configs/"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = yaml.load(text, _Loader)
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


def _apply(tree: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(f"got the override {override!r}, wanted key=value, e.g. loop.steps=10")
    node = tree
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(
                f"got the override {override!r}, but {part!r} is not a section, wanted the name of "
                "a config key"
            )
        node = child
    try:
        node[parts[-1]] = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        node[parts[-1]] = text


def _first_problem(error: ValidationError, tree: Mapping[str, Any]) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    evolution = tree.get("evolution")
    method = evolution.get("method") if isinstance(evolution, dict) else None
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
    if key == "evolution" and not isinstance(evolution, dict):
        message = "a section with its method, e.g. `evolution: {method: ratchet}`"
    return f"got {key}={_shown(problem['input'])}, wanted: {message}"


def _shown(value: object) -> str:
    text = reprlib.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


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
        # os.path.exists says no to names that no file can have; reading them says what is wrong.
        if name is None or os.path.exists(name) or not os.path.exists(folder / name):
            return name
        return str(folder / name)

    data = config.data.model_copy(
        update={"train": found(config.data.train), "eval": found(config.data.eval)}
    )
    return config.model_copy(update={"data": data})
