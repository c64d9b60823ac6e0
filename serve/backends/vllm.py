"""A model in the replica itself: one vLLM engine, structured output by JSON schema.

Prompts start with what a group's calls share, so the engine's prefix cache is on. The schema allows
no free white space (small models can loop on it). An engine that has died fails the health check,
and Serve replaces the replica; when the replica is killed its engine's processes end too.
The engine is given ``max_ongoing_requests`` calls at a time; others wait here, and their time limit
has not begun. A schema that the engine refuses is left out, once. Nothing that a request does
raises: a prompt over the context, a cut or late reply is a failure.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from core.config_served import ServedModelConfig
from core.engine_args import engine_env, served_engine_args
from core.model_calls import Sampling
from core.records import Completion, Usage
from serve.backends.base import CompletionRequest, failed

_SHUTDOWN_S = 5.0

logger = logging.getLogger(__name__)


async def start_vllm_backend(config: ServedModelConfig) -> "VllmBackend":
    """Start the engine (half a minute for a small model on CPU) and return the backend."""
    is_cpu = config.num_gpus == 0
    # Before vLLM is imported: it reads its environment then.
    os.environ |= engine_env(
        is_cpu=is_cpu,
        num_cpus=config.num_cpus,
        owner_pid=os.getpid(),
        root=str(Path(__file__).resolve().parents[2]),
        env=os.environ,
    )
    from transformers import AutoTokenizer
    from vllm import AsyncEngineArgs
    from vllm.config import StructuredOutputsConfig
    from vllm.v1.engine.async_llm import AsyncLLM

    started = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            **served_engine_args(config, is_cpu=is_cpu),
            structured_outputs_config=StructuredOutputsConfig(
                backend="xgrammar", disable_any_whitespace=True
            ),
        )
    )
    logger.info("engine of %s ready after %.0f s", config.model, time.monotonic() - started)
    return VllmBackend(config, engine, tokenizer)


class VllmBackend:
    """Completions from an engine in this process."""

    def __init__(self, config: ServedModelConfig, engine: Any, tokenizer: Any) -> None:
        self._config = config
        self._engine = engine
        self._tokenizer = tokenizer
        # Serve lets more calls in than that, so that its router need not ask who has room.
        self._places = asyncio.Semaphore(config.max_ongoing_requests)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the model's reply, or a failure, within ``config.timeout_s`` of its turn."""
        async with self._places:
            return await self._complete_in_time(request)

    async def _complete_in_time(self, request: CompletionRequest) -> Completion:
        started = time.monotonic()
        usage = Usage(calls=1)
        try:
            async with asyncio.timeout(self._config.timeout_s):
                return await self._complete(request, started)
        except TimeoutError:
            detail = f"no reply from the engine in {self._config.timeout_s:g} s"
            reply = failed(self._config, "timeout", detail, usage)
        except Exception as error:  # whatever the engine raises must not become a lost request
            detail = f"{type(error).__name__}: {error}"[:300]
            reply = failed(self._config, "unavailable", detail, usage)
        logger.warning("%s: %s", reply.failure, reply.detail)
        return reply

    async def check_health(self) -> None:
        """Raise when the engine cannot answer any more."""
        await self._engine.check_health()

    async def close(self) -> None:
        """End the engine and every process it started."""
        children = psutil.Process().children(recursive=True)
        await asyncio.to_thread(self._engine.shutdown, _SHUTDOWN_S)
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, _SHUTDOWN_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def _complete(self, request: CompletionRequest, started: float) -> Completion:
        prompt_ids = self._prompt_ids(request.conversation)
        room = self._config.max_model_len - len(prompt_ids)
        if room <= 0:
            detail = (
                f"got a prompt of {len(prompt_ids)} tokens, wanted fewer than max_model_len="
                f"{self._config.max_model_len}: raise it or shorten the responses"
            )
            return failed(self._config, "unavailable", detail, Usage())
        output = await self._output(request, prompt_ids, room)
        (answer,) = output.outputs
        is_cut = answer.finish_reason == "length" and not answer.text.strip()
        return Completion(
            text=answer.text,
            finish_reason=answer.finish_reason or "",
            model=self._config.model,
            usage=Usage(
                calls=1,
                prompt_tokens=len(prompt_ids),
                cached_prompt_tokens=output.num_cached_tokens or 0,
                completion_tokens=len(answer.token_ids),
            ),
            seconds=time.monotonic() - started,
            failure="truncated" if is_cut else None,
            detail="the reply was cut before its first word" if is_cut else "",
        )

    async def _output(self, request: CompletionRequest, prompt_ids: list[int], room: int) -> Any:
        sampling = request.sampling_under(self._config)
        try:
            return await self._generate(prompt_ids, _params(sampling, request.schema, room))
        except ValueError as error:  # the engine checks a request before it runs it
            if request.schema is None:
                raise
            logger.warning("asking without the schema that the engine refuses: %s", error)
            return await self._generate(prompt_ids, _params(sampling, None, room))

    async def _generate(self, prompt_ids: list[int], params: Any) -> Any:
        outputs = self._engine.generate({"prompt_token_ids": prompt_ids}, params, uuid.uuid4().hex)
        (final,) = [output async for output in outputs]  # the final one only
        return final

    def _prompt_ids(self, conversation: list[dict[str, str]]) -> list[int]:
        if not self._tokenizer.chat_template:
            return list(self._tokenizer.encode("\n\n".join(m["content"] for m in conversation)))
        ids = self._tokenizer.apply_chat_template(
            conversation,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        return [int(i) for i in ids]


def _params(sampling: Sampling, schema: dict[str, Any] | None, room: int) -> Any:
    """Return the engine's parameters; ``room`` is what the context has left, in tokens."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or 0,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        max_tokens=min(room, sampling.max_tokens),
        stop=list(sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
        structured_outputs=StructuredOutputsParams(json=schema) if schema else None,
    )
