"""Reads a config: YAML plus ``key=value`` overrides into a checked ``RunConfig`` or
``OfflineConfig``.

Importable without torch, vLLM or Ray. Every mistake is a ConfigError of one sentence that names the
key, what it got and what it wanted; a config of the other command says which command it is for.
"""

import difflib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from core.config import RunConfig
from core.config_evolution import EvolutionConfig
from core.config_offline import OfflineConfig, OfflineMethod
from core.errors import ConfigError
from drivers.config_layers import (
    METHOD_SECTIONS,
    ConfigLoader,
    config_path,
    read_layers,
    with_data_paths,
)

_Config = TypeVar("_Config", RunConfig, OfflineConfig)

_MAX_SHOWN = 120
"""Characters of a wrong value that a message shows."""


def load_config(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the config of ``path`` with the overrides applied, its data paths resolved.

    ``path`` is a YAML file or the bare name of a shipped recipe. A relative data path is looked for
    in the working folder, then beside the file that names it. An override of ``evolution.method``
    is applied before the others, and leaves nothing of the section that another method had. Raises
    ConfigError.
    """
    tree = _read_tree(path, overrides)
    if "offline" in tree:
        raise ConfigError(
            f"{path}: got a config of offline training (it has the section `offline`), wanted one "
            f"of a run with rollouts: use `ratchet offline --config {path}`"
        )
    return _checked(RunConfig, path, tree)


def load_offline_config(path: str, overrides: Sequence[str] = ()) -> OfflineConfig:
    """Return a config of offline training, read like ``load_config``; raises ConfigError."""
    tree = _read_tree(path, overrides)
    if "offline" not in tree:
        raise ConfigError(
            f"{path}: got a config without the section `offline`, wanted one of offline training "
            f"(sft_anchor, sft_scripts, dpo_rlcf): a run with rollouts is `ratchet train --config "
            f"{path}`"
        )
    return _checked(OfflineConfig, path, tree)


def dump_config(config: BaseModel) -> str:
    """Return the resolved config as YAML; it can be given to ``--config`` again."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _read_tree(path: str, overrides: Sequence[str]) -> dict[str, Any]:
    file = config_path(path)
    tree = read_layers(file)
    for override in sorted(overrides, key=lambda o: not _is_method(o)):
        _apply(tree, override)
    if isinstance(tree.get("data"), dict):
        tree["data"] = with_data_paths(tree["data"], file.parent)
    return tree


def _checked(model: type[_Config], path: str, tree: Mapping[str, Any]) -> _Config:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_problem(error, tree, model)}") from None


def _is_method(override: str) -> bool:
    key = override.partition("=")[0].strip()
    return key in [f"{section}.method" for section in METHOD_SECTIONS]


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


def _first_problem(error: ValidationError, tree: Mapping[str, Any], model: type[BaseModel]) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    name = location[0] if location and location[0] in METHOD_SECTIONS else ""
    section = tree.get(name)
    method = section.get("method") if isinstance(section, dict) else None
    if name and location[1:2] == [method]:
        del location[1]  # the union's tag, which is no key of the file
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return f"got the unknown key `{key}`{_suggestion(location, method, model)}"
    if problem["type"] == "missing":
        return f"got no `{key}`, wanted it to be set"
    if problem["type"] == "union_tag_not_found" and isinstance(section, dict):
        known = ", ".join(METHODS[name])
        return f"got `{name}` without a method, wanted `method` to be one of {known}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"`{key}`: {message}" if key else message
    if name and key == name and not isinstance(section, dict):
        example = "ratchet" if name == "evolution" else "dpo"
        message = f"a section with its method, e.g. `{name}: {{method: {example}}}`"
    return f"got {key}={_shown(problem['input'])}, wanted: {message}"


def _shown(value: object) -> str:
    text = reprlib.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _suggestion(location: Sequence[str], method: object, whole: type[BaseModel]) -> str:
    """Name the keys that stand at the unknown key's place, or the methods that have the key."""
    model: Any = whole
    for depth, part in enumerate(location[:-1]):
        if depth == 0 and part in METHOD_SECTIONS:
            model = METHODS[part].get(str(method))
        else:
            field = model.model_fields.get(part) if _is_model(model) else None
            model = _section(field.annotation) if field is not None else None
    if not _is_model(model):
        return ", wanted a key of that section"
    names, key = list(model.model_fields), location[-1]
    section = location[0]
    known = METHODS.get(section, {}) if len(location) == 2 else {}
    owners = [name for name, part in known.items() if key in part.model_fields]
    if owners:
        return (
            f" with {section}.method={method}, wanted one of {', '.join(names)}: `{key}` belongs "
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


def _methods(annotated: Any) -> dict[str, type[BaseModel]]:
    """The class of each method's section, by the method's name."""
    union, _ = get_args(annotated)
    return {part.model_fields["method"].default: part for part in get_args(union)}


METHODS = {"evolution": _methods(EvolutionConfig), "offline": _methods(OfflineMethod)}
"""The classes of each section whose keys depend on its method."""
