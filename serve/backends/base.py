"""What a model backend is to the judge and to the rubric writer: one prompt in, one reply out.

``complete`` never raises for what an endpoint or a model does: a reply that did not come is a
``Completion`` whose ``failure`` names the kind and whose ``detail`` says why. It returns within
``config.timeout_s`` of its call, retries included; where a backend has places of its own, of the
moment that it gets one. Backends hold no state that changes an answer.
"""

import os
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr

from core.clean_text import clean_text, clean_value
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.model_calls import Sampling, sampling_of
from core.query import Message
from core.records import Completion, FailureKind, Usage

NO_KEY = "none"
"""Sent to an endpoint of one's own that asks for no key; the client insists on one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """Ask a model for one reply; its texts are cleaned, so that they can be sent anywhere."""

    prompt: str = ""
    """One user message; or, instead of it, a whole conversation."""
    messages: tuple[Message, ...] = ()
    schema: dict[str, Any] | None = None
    """JSON schema of the reply, where the backend can enforce one."""
    sampling: Sampling | None = None
    """None: as the model's config says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", clean_text(self.prompt))
        object.__setattr__(self, "schema", clean_value(self.schema))

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The messages to send."""
        if not self.messages:
            return [{"role": "user", "content": self.prompt}]
        return [{"role": m.role, "content": clean_text(m.content)} for m in self.messages]

    def sampling_under(self, config: ServedModelConfig) -> Sampling:
        """Return how to sample: the request's own way, or the config's."""
        return self.sampling or sampling_of(config)


class CompletionBackend(Protocol):
    """A model that answers prompts."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the reply, or a failure; never raises for what the model does."""
        ...

    async def check_health(self) -> None:
        """Raise when no reply can come any more, so that the replica is replaced."""
        ...

    async def close(self) -> None:
        """Free connections and processes."""
        ...


def failed(config: ServedModelConfig, kind: FailureKind, detail: str, usage: Usage) -> Completion:
    """Return the completion that says there is no reply."""
    return Completion(
        text="",
        finish_reason="",
        model=config.model,
        usage=usage,
        failure=kind,
        detail=detail,
    )


def cost_usd(config: ServedModelConfig, prompt_tokens: int, completion_tokens: int) -> float:
    """Return what the tokens cost at the config's prices."""
    return (
        prompt_tokens * config.usd_per_million_prompt_tokens
        + completion_tokens * config.usd_per_million_completion_tokens
    ) / 1e6


def read_api_key(config: ServedModelConfig) -> SecretStr:
    """Return the key from the environment variable that the config names.

    An endpoint of one's own (``base_url``) needs none unless the config names its variable.
    """
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and config.needs_key:
        raise ConfigError(
            f"got no key for model {config.model!r}: the environment variable "
            f"{config.api_key_env} is empty, wanted a key there "
            "(or `base_url` of an endpoint that needs none)"
        )
    if not (key.isascii() and key.isprintable()) or any(c.isspace() for c in key):
        # The client would repeat such a text in its error.
        raise ConfigError(
            f"got a key in the environment variable {config.api_key_env} with blanks or characters "
            "that no key has, wanted the bare key: set it again"
        )
    return SecretStr(key or NO_KEY)
