"""The rubric writer: one raw reply for a contrast (CARE) or a replacement (RARE) request.

It renders the request, asks the backend, and returns what came; reading the reply and deciding
about it is the method's. A reply that did not come is a ``Completion`` with a failure, never an
exception.
For a policy that thinks, only the part after its reasoning is shown.
``WriterReplica`` is the class that Ray Serve runs.
"""

import asyncio
import dataclasses

from pydantic import SecretStr

from core.config_served import WriterConfig
from core.evolution.care_prompt import contrast_prompt
from core.evolution.rare_prompt import replacement_prompt
from core.grading.visible import visible_response
from core.records import Completion
from core.writer_requests import ContrastRequest, WriterRequest
from serve.backends.base import CompletionBackend, CompletionRequest
from serve.backends.rules import RulesBackend
from serve.identity import CONTRAST_TEMPLATE, REPLACE_TEMPLATE, writer_identity
from serve.prompts import load_prompt
from serve.replica import Replica


class RubricWriter:
    """Writes rubric edits; ``backend`` is the model, None writes by rules."""

    def __init__(self, config: WriterConfig, backend: CompletionBackend | None = None) -> None:
        self._backend = backend
        self._rules = RulesBackend()
        self._contrast_template = load_prompt(CONTRAST_TEMPLATE)
        self._replace_template = load_prompt(REPLACE_TEMPLATE)
        self.identity = writer_identity(config)

    async def write(self, request: WriterRequest) -> Completion:
        """Return the raw reply; ``failure`` is set when there is none."""
        request = _visible(request)
        if self._backend is None:
            # In a thread: code that looks for patterns in long texts must not block the replica.
            return await asyncio.to_thread(self._rules.write, request)
        return await self._backend.complete(CompletionRequest(prompt=self._prompt(request)))

    def _prompt(self, request: WriterRequest) -> str:
        if isinstance(request, ContrastRequest):
            return contrast_prompt(self._contrast_template, request)
        return replacement_prompt(self._replace_template, request)


def _visible(request: WriterRequest) -> WriterRequest:
    if isinstance(request, ContrastRequest):
        return dataclasses.replace(request, response=visible_response(request.response))
    return dataclasses.replace(
        request, responses=tuple(visible_response(r) for r in request.responses)
    )


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
