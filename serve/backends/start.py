"""Starts the backend that a config names, inside a replica.

vLLM and the OpenAI client are imported only where they are used.
"""

from pydantic import SecretStr

from core.config_served import ServedModelConfig
from serve.backends.base import CompletionBackend


async def start_backend(
    config: ServedModelConfig, api_key: SecretStr, *, pool: str
) -> CompletionBackend | None:
    """Return the model behind ``config``, ready to answer; None for the embedded rules.

    ``pool`` names the calls that share ``config.max_concurrency``.
    """
    if config.backend == "rules":
        return None
    if config.backend == "vllm":
        from serve.backends.vllm import start_vllm_backend

        return await start_vllm_backend(config)
    from serve.backends.openai import OpenAIBackend
    from serve.limits import CallSlots, RemoteLimiter

    slots = CallSlots(RemoteLimiter(config), pool, config.max_concurrency)
    return OpenAIBackend(config, api_key, slots)
