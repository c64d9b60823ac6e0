"""Who judges or writes, as one line: part of each verdict's cache key and of each version's origin.

The line names backend, model, sampling and prompt templates with a digest of their text, so that
changing any of them changes the identity. The embedded rules are part of every judge, since rule
criteria are decided by code whatever the backend.
"""

import hashlib
from collections.abc import Sequence

from core.config_served import GradingConfig, ServedModelConfig, WriterConfig
from serve.backends.rules import RULES_MODEL
from serve.prompts import load_prompt
from serve.writer_prompts import writer_templates

REPAIR_TEMPLATE = "judge_repair"
RESCORE_TEMPLATE = "rescore"


def judge_template(config: GradingConfig) -> str:
    """Return the name of the prompt that asks for verdicts."""
    return f"judge_{config.template}"


def judge_identity(config: GradingConfig) -> str:
    """Return the judge's identity line."""
    line = _identity(config, (judge_template(config), REPAIR_TEMPLATE, RESCORE_TEMPLATE))
    is_alone = config.per_criterion and config.backend != "rules"
    return f"{line} per_criterion" if is_alone else line


def writer_identity(config: WriterConfig) -> str:
    """Return the writer's identity line."""
    return _identity(config, writer_templates())


def _identity(config: ServedModelConfig, templates: Sequence[str]) -> str:
    if config.backend == "rules":
        return RULES_MODEL
    digest = hashlib.sha256("\0".join(load_prompt(t) for t in templates).encode()).hexdigest()
    place = f"@{config.base_url}" if config.base_url else ""
    return (
        f"{config.backend}:{config.model}{place} temperature={config.temperature:g} "
        f"seed={config.seed} max_tokens={config.max_tokens} "
        f"{templates[0]}#{digest[:10]} {RULES_MODEL}"
    )
