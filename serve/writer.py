"""The rubric writer: one raw reply for each request of ``core/writer_requests.py``.

It renders the request (``serve/writer_prompts.py``), asks the backend, and returns what came;
reading the reply and deciding about it is the method's. A reply that did not come is a
``Completion`` with a failure, never an exception. Without a model only contrasts and replacements
are written (by rules in code); everything else is ``undecidable``.
For a policy that thinks, only the part after its reasoning is shown.
``WriterReplica`` is the class that Ray Serve runs.
"""

import asyncio
import dataclasses
from typing import Any

from pydantic import SecretStr

from core.config_served import WriterConfig
from core.grading.visible import visible_response
from core.records import Completion
from core.writer_requests import WriterRequest
from serve.backends.base import CompletionBackend, CompletionRequest
from serve.backends.rules import RulesBackend
from serve.identity import writer_identity
from serve.prompts import load_prompt
from serve.replica import Replica
from serve.writer_prompts import WRITER_PROMPTS, writer_templates

_RESPONSES = frozenset({"response", "responses", "response_a", "response_b"})
"""Fields of a request that hold what a policy wrote."""


class RubricWriter:
    """Writes rubric edits; ``backend`` is the model, None writes by rules."""

    def __init__(self, config: WriterConfig, backend: CompletionBackend | None = None) -> None:
        self._backend = backend
        self._rules = RulesBackend()
        self._templates = {name: load_prompt(name) for name in writer_templates()}
        self.identity = writer_identity(config)

    async def write(self, request: WriterRequest) -> Completion:
        """Return the raw reply; ``failure`` is set when there is none."""
        request = _visible(request)
        if self._backend is None:
            # In a thread: code that looks for patterns in long texts must not block the replica.
            return await asyncio.to_thread(self._rules.write, request)
        return await self._backend.complete(CompletionRequest(prompt=self._prompt(request)))

    def _prompt(self, request: WriterRequest) -> str:
        prompt = WRITER_PROMPTS.get(type(request))
        if prompt is None:
            raise TypeError(
                f"got a {type(request).__name__}, wanted a request with an entry in WRITER_PROMPTS"
            )
        return prompt.render(self._templates[prompt.template], request)


def _visible(request: WriterRequest) -> WriterRequest:
    """Return the request without the reasoning of a policy that thinks."""
    shown: dict[str, Any] = {}
    for field in dataclasses.fields(request):
        if field.name in _RESPONSES:
            value = getattr(request, field.name)
            is_one = isinstance(value, str)
            shown[field.name] = (
                visible_response(value) if is_one else tuple(map(visible_response, value))
            )
    return dataclasses.replace(request, **shown)


class WriterReplica(Replica):
    """One replica of the deployment ``RubricWriter``."""

    async def __init__(self, config: WriterConfig, api_key: SecretStr, model: str) -> None:
        backend = await self.start(config, api_key, model, part="writer")
        self._writer = RubricWriter(config, backend)

    async def write(self, request: WriterRequest) -> Completion:
        """See ``RubricWriter``."""
        return await self._writer.write(request)

    async def describe(self) -> tuple[str, str]:
        """Return the config it runs, as JSON, and its identity."""
        return self.config_json(), self._writer.identity
