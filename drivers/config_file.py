"""Reads a config: YAML plus ``key=value`` overrides into a checked ``RunConfig``.

Importable without torch, vLLM or Ray. Every mistake is a ConfigError of one sentence that names the
key, what it got and what it wanted.
"""

import difflib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from core.config import RunConfig
from core.config_evolution import EvolutionConfig
from core.errors import ConfigError
from drivers.config_layers import ConfigLoader, config_path, read_layers, with_data_paths

_MAX_SHOWN = 120
"""Characters of a wrong value that a message shows."""


def load_config(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the config of ``path`` with the overrides applied, its data paths resolved.

    ``path`` is a YAML file or the bare name of a shipped recipe. A relative data path is looked for
    in the working folder, then beside the file that names it. An override of ``evolution.method``
    is applied before the others, and leaves nothing of the section that another method had. Raises
    ConfigError.
    """
    file = config_path(path)
    tree = read_layers(file)
    for override in sorted(overrides, key=lambda o: not _is_method(o)):
        _apply(tree, override)
    if isinstance(tree.get("data"), dict):
        tree["data"] = with_data_paths(tree["data"], file.parent)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_problem(error, tree)}") from None


def dump_config(config: RunConfig) -> str:
    """Return the resolved config as YAML; it can be given to ``--config`` again."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _is_method(override: str) -> bool:
    return override.partition("=")[0].strip() == "evolution.method"


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
        value = yaml.load(text, ConfigLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = text
    if _is_method(override) and node.get("method") != value:
        node.clear()
    node[parts[-1]] = value


def _first_problem(error: ValidationError, tree: Mapping[str, Any]) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    evolution = tree.get("evolution")
    method = evolution.get("method") if isinstance(evolution, dict) else None
    if location[:1] == ["evolution"] and location[1:2] == [method]:
        del location[1]  # the union's tag, which is no key of the file
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return f"got the unknown key `{key}`{_suggestion(location, method)}"
    if problem["type"] == "missing":
        return f"got no `{key}`, wanted it to be set"
    if problem["type"] == "union_tag_not_found" and isinstance(evolution, dict):
        return (
            f"got `evolution` without a method, wanted `method` to be one of {', '.join(METHODS)}"
        )
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"`{key}`: {message}" if key else message
    if key == "evolution" and not isinstance(evolution, dict):
        message = "a section with its method, e.g. `evolution: {method: ratchet}`"
    return f"got {key}={_shown(problem['input'])}, wanted: {message}"


def _shown(value: object) -> str:
    text = reprlib.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _suggestion(location: Sequence[str], method: object) -> str:
    """Name the keys that stand at the unknown key's place, or the methods that have the key."""
    model: Any = RunConfig
    for depth, part in enumerate(location[:-1]):
        if depth == 0 and part == "evolution":
            model = METHODS.get(str(method))
        else:
            field = model.model_fields.get(part) if _is_model(model) else None
            model = _section(field.annotation) if field is not None else None
    if not _is_model(model):
        return ", wanted a key of that section"
    names, key = list(model.model_fields), location[-1]
    owners = [name for name, part in METHODS.items() if key in part.model_fields]
    if location[:-1] == ["evolution"] and owners:
        return (
            f" with evolution.method={method}, wanted one of {', '.join(names)}: `{key}` belongs "
            f"to {', '.join(owners)}"
        )
    close = difflib.get_close_matches(key, names, n=1)
    meant = f": did you mean `{close[0]}`?" if close else ""
    return f", wanted one of {', '.join(names)}{meant}"


def _section(annotation: Any) -> Any:
    """Return the section's class; of an optional one, the class without None."""
    given = [part for part in get_args(annotation) if part is not type(None)]
    return given[0] if len(given) == 1 else annotation


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)


def _methods() -> dict[str, type[BaseModel]]:
    """The class of each method's section, by the method's name."""
    union, _ = get_args(EvolutionConfig)
    return {part.model_fields["method"].default: part for part in get_args(union)}


METHODS = _methods()
