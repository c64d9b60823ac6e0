"""One call to a model outside the training loop: the conversation, how to sample, what came back.

Benchmarks, anchors, rubric building and audits say in these terms what they ask; who asks
(``drivers/asking.py``) and which endpoint answers is not their business. ``call_digest`` tells two
calls apart, so that a kept reply is used again only for exactly the call that it answered.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from core.config_served import ServedModelConfig
from core.query import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How a model's reply is drawn."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    """Where the endpoint knows it: servers of one's own do, the hosted ones do not."""
    repetition_penalty: float = 1.0
    """As ``top_k``."""
    max_tokens: int = 1024
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCall:
    """A conversation to be continued by one reply."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    schema: dict[str, Any] | None = None
    """JSON schema of the reply, where the backend can enforce one."""


def sampling_of(config: ServedModelConfig) -> Sampling:
    """Return how a model's config says to sample."""
    return Sampling(temperature=config.temperature, max_tokens=config.max_tokens, seed=config.seed)


def user_call(
    text: str,
    *,
    system: str = "",
    sampling: Sampling | None = None,
    schema: dict[str, Any] | None = None,
) -> ModelCall:
    """Return the call of one user message, after a system message if there is one."""
    head = (Message(role="system", content=system),) if system else ()
    return ModelCall(
        messages=(*head, Message(role="user", content=text)),
        sampling=sampling or Sampling(),
        schema=schema,
    )


def call_digest(call: ModelCall, model: str) -> str:
    """Return what tells this call to this model from any other."""
    parts = {
        "model": model,
        "messages": [[m.role, m.content] for m in call.messages],
        "sampling": asdict(call.sampling),
        "schema": call.schema,
    }
    data = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:32]
