"""The policy's tokenizer with its chat template, and a query as the tokens that it starts from.

The template is the model's own, or what the config gives: Jinja text, or a file that holds it.
Importable without torch, vLLM or Ray.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.query import Message


def read_chat_template(given: str) -> str:
    """Return the template's text; ConfigError for a file that is not there.

    Text without any Jinja mark would make every prompt the same, so it can only be a file's name.
    """
    if "{" in given or "\n" in given:
        return given
    path = Path(os.path.expanduser(given))
    if not os.path.isfile(path):  # pathlib's raises for a name that no file can have
        raise ConfigError(
            f"got policy.chat_template={given[:200]!r}, wanted a Jinja template or an "
            "existing file that holds one: correct the path, or write the template into the config"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"got policy.chat_template={given!r}, a file that is no text ({error}), wanted a Jinja "
            "template: correct the path"
        ) from error


def policy_tokenizer(
    model: str,
    *,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
    needs_template: bool = True,
) -> Any:
    """Return the tokenizer of a model folder or hub name; ConfigError when it has no template."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"got model {model} whose tokenizer cannot be loaded ({reason}), wanted a whole "
            "Hugging Face folder: set policy.model to one"
        ) from error
    if chat_template is not None:
        tokenizer.chat_template = read_chat_template(chat_template)
    if needs_template and not tokenizer.chat_template:
        raise ConfigError(
            f"got model {model} without a chat template, wanted one: set policy.chat_template to a "
            "Jinja template or a file that holds one"
        )
    return tokenizer


def prompt_token_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return what the policy is given for these messages.

    ConfigError when the template refuses them: many take no system message, or only turns.
    """
    from jinja2 import TemplateError

    try:
        ids = tokenizer.apply_chat_template(
            [message.model_dump() for message in messages],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
    except (TemplateError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        roles = ", ".join(message.role for message in messages)
        raise ConfigError(
            f"got messages of the roles {roles[:200]}, which the chat template refuses ({reason}), "
            "wanted messages that it takes: change the query, or set policy.chat_template"
        ) from error
    if not ids:
        raise ConfigError(
            "got a chat template that makes an empty prompt, wanted one that holds the messages: "
            "set policy.chat_template to another one"
        )
    return [int(i) for i in ids]
