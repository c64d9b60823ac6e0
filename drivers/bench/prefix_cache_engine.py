"""The judge's prompts through a real vLLM engine, and through the block arithmetic beside it.

The engine has the arguments that a replica of the judge gives it, save for the size of a cache
block: on CPU vLLM takes 128 tokens, on GPU 16; 32 is the smallest that CPU attention can do. One
token is generated: what is measured is which prompt tokens the engine did not have to compute.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.config_served import JudgeConfig
from core.engine_args import engine_env, served_engine_args
from drivers.bench.prefix_cache_blocks import BlockCache, Tokens
from drivers.bench.prefix_cache_work import (
    LAYOUTS,
    Group,
    Layout,
    apart_prompts,
    joint_prompts,
    scoring_prompts,
    single_prompts,
)
from serve.backends.base import CompletionRequest
from serve.backends.vllm import VllmBackend

ENGINE_BLOCK = 32
GPU_BLOCK = 16
_LIMIT_S = 240.0

log = logging.getLogger("ratchet")
Prompts = Callable[[Group], Sequence[str]]


def phases(layout: Layout) -> list[tuple[str, Prompts]]:
    """Return what one layout is asked, in order: scoring, then ways to rescore right after it."""
    asked: list[tuple[str, Prompts]] = [("score", lambda g: scoring_prompts(g, layout))]
    if layout == LAYOUTS[0]:
        asked.append(("rescore_joint", joint_prompts))
    asked.append(("rescore_apart", lambda g: apart_prompts(g, layout)))
    return asked


def config_of(folder: str) -> JudgeConfig:
    """Return the judge's config for the small model on CPU."""
    return JudgeConfig(
        backend="vllm",
        model=folder,
        max_tokens=1,
        max_model_len=8192,
        num_cpus=1.0,
        timeout_s=_LIMIT_S,
    )


class Encoder:
    """Prompts as the token ids that the judge's engine is given; light enough for any replica."""

    def __init__(self, folder: str, before: str, after: str) -> None:
        """``before`` and ``after``: what the chat template puts around a prompt."""
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self._before, self._after = before, after

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of one prompt in its chat turn."""
        text = f"{self._before}{prompt}{self._after}"
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def turn_of(folder: str) -> tuple[str, str]:
    """Return what the model's chat template puts before and after a prompt."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    mark = "PROMPT-GOES-HERE"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], add_generation_prompt=True, tokenize=False
    )
    before, _, after = str(text).partition(mark)
    return before, after


def by_arithmetic(
    groups: Sequence[Group], encoder: Encoder, block_size: int = GPU_BLOCK
) -> dict[str, Any]:
    """Return the tokens of every layout and phase, all groups scored before any is rescored."""
    found: dict[str, Any] = {}
    for layout in LAYOUTS:
        cache = BlockCache(block_size)
        found[layout] = {
            name: _admitted(cache, groups, prompts, encoder).as_json()
            for name, prompts in phases(layout)
        }
        alone = BlockCache(block_size)
        singles = _admitted(alone, groups, lambda g, at=layout: single_prompts(g, at), encoder)
        found[layout]["score_per_criterion"] = singles.as_json()
    return found


def _admitted(
    cache: BlockCache, groups: Sequence[Group], prompts: Prompts, encoder: Encoder
) -> Tokens:
    tokens = (cache.admit(encoder.encode(p)) for group in groups for p in prompts(group))
    return sum(tokens, start=Tokens())


def by_capacity(groups: Sequence[Group], encoder: Encoder) -> dict[str, float]:
    """Return the share of scoring by how many of the groups in flight the cache can hold.

    The responses of all groups come in turn: the order in which a cache helps least.
    """
    encoded = [[encoder.encode(p) for p in scoring_prompts(g, LAYOUTS[0])] for g in groups]
    one = BlockCache(GPU_BLOCK)
    whole = sum(tokens.prompt - tokens.cached for ids in encoded for tokens in [one.admit(ids[0])])
    found: dict[str, float] = {}
    for held in (0.25, 0.5, 1.0, 2.0):
        cache = BlockCache(GPU_BLOCK, int(held * whole / GPU_BLOCK))
        turns = (cache.admit(ids[n]) for n in range(len(encoded[0])) for ids in encoded)
        found[f"{held:g}"] = round(sum(turns, start=Tokens()).share, 4)
    return found


async def by_engine(groups: Sequence[Group], folder: str) -> dict[str, Any]:
    """Return the tokens of every layout and phase as a real engine counts them."""
    engine, backend = await asyncio.to_thread(_started, folder)
    try:
        found: dict[str, Any] = {}
        for layout in LAYOUTS:
            await engine.reset_prefix_cache()
            found[layout] = {}
            for name, prompts in phases(layout):
                tokens = await _asked(backend, groups, prompts)
                log.info("prefix_cache: %s, %s: %.3f", layout, name, tokens.share)
                found[layout][name] = tokens.as_json()
        return found
    finally:
        logging.getLogger("vllm").setLevel(logging.CRITICAL)  # it calls its end an error
        await backend.close()


async def _asked(backend: VllmBackend, groups: Sequence[Group], prompts: Prompts) -> Tokens:
    """Ask for all groups at once, as a step does; a call that fails breaks the measurement."""
    requests = [CompletionRequest(prompt=p) for group in groups for p in prompts(group)]
    tokens = Tokens()
    for reply in await asyncio.gather(*map(backend.complete, requests)):
        usage = reply.usage
        if usage.completion_tokens != 1:
            raise RuntimeError(f"got no token from the engine ({reply.detail}), wanted one")
        tokens += Tokens(calls=1, prompt=usage.prompt_tokens, cached=usage.cached_prompt_tokens)
    return tokens


def _started(folder: str) -> tuple[Any, VllmBackend]:
    config = config_of(folder)
    root = str(Path(__file__).resolve().parents[2])
    os.environ |= engine_env(
        is_cpu=True, num_cpus=1, owner_pid=os.getpid(), root=root, env=os.environ
    )
    from transformers import AutoTokenizer
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    args: dict[str, Any] = served_engine_args(config, is_cpu=True)
    args["block_size"] = ENGINE_BLOCK
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
    return engine, VllmBackend(config, engine, AutoTokenizer.from_pretrained(folder))
