"""The options by which a command is told which model answers: the same for every command and role.

For the role ``judge``: ``--judge NAME``, ``--judge-url URL``, ``--judge-backend``,
``--judge-key-env VAR`` and ``--judge-set KEY=VALUE`` for any other key of ``ServedModelConfig``
(prices, concurrency, limits), such as ``--judge-set max_concurrency=32``.
"""

import argparse
from typing import Any

import yaml
from pydantic import ValidationError

from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.validation import first_problem


def add_model_options(parser: argparse.ArgumentParser, role: str, does: str) -> None:
    """Add the options of one role; ``does`` says what the model is for, such as ``that judges``."""
    group = parser.add_argument_group(f"the model {does}")
    group.add_argument(
        f"--{role}", default="", metavar="NAME", help="its name at the endpoint, or a folder (vllm)"
    )
    group.add_argument(
        f"--{role}-backend",
        default="openai",
        choices=("openai", "vllm"),
        help="an OpenAI-compatible endpoint (default), or vLLM in this process",
    )
    group.add_argument(f"--{role}-url", metavar="URL", help="the endpoint (default: OpenAI's own)")
    group.add_argument(
        f"--{role}-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable with its key (default: OPENAI_API_KEY)",
    )
    group.add_argument(
        f"--{role}-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other key of a served model, e.g. max_concurrency=32, "
        "usd_per_million_prompt_tokens=0.4 (may be given again)",
    )


def model_config(args: argparse.Namespace, role: str) -> ServedModelConfig:
    """Return the config of the role's model; ConfigError when the options make none."""
    name = role.replace("-", "_")
    model = getattr(args, name)
    if not model:
        raise ConfigError(f"got no --{role}, wanted the NAME of the model")
    fields: dict[str, Any] = {
        "backend": getattr(args, f"{name}_backend"),
        "model": model,
        "base_url": getattr(args, f"{name}_url"),
        "api_key_env": getattr(args, f"{name}_key_env"),
    }
    for given in getattr(args, f"{name}_set"):
        key, equals, value = given.partition("=")
        if not equals or key not in ServedModelConfig.model_fields:
            known = ", ".join(k for k in ServedModelConfig.model_fields if k not in fields)
            raise ConfigError(f"got --{role}-set {given!r}, wanted KEY=VALUE with one of: {known}")
        fields[key] = yaml.safe_load(value)
    try:
        return ServedModelConfig.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"--{role}: {first_problem(error)}") from error
