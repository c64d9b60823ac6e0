"""vLLM engine arguments and environment as plain data, for the policy and for served models.

Everything is a pure function of config: actors and Serve replicas build their engines from the
same place without importing each other. The names of vLLM plug-in classes are given as text, since
vLLM imports them in its own processes (the repository root must be on their PYTHONPATH, which
``engine_env`` sees to).
"""

from collections.abc import Mapping
from typing import Any

from core.config import PolicyConfig, RolloutConfig
from core.config_served import ServedModelConfig

OWNER_ENV = "RATCHET_ENGINE_OWNER"
"""Process id whose end must end the engine's processes (``actors/engine_guard.py`` reads it)."""

WEIGHT_EXTENSION = "actors.weight_transfer.WeightTransferExtension"
GUARD_EXTENSION = "actors.engine_guard.EngineGuard"
WEIGHT_BACKEND = "ratchet"
"""Name of our transfer engine: safetensors files on the host (shm and object_store)."""
CPU_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The model runs in the engine's own process. By default it has a process of its own on CPU, and
the engine spins on a whole core while it waits for it: half of a machine of two. vLLM refuses the
short name ``uni`` there because it could not set the threads; ``engine_env`` has set them."""


def policy_engine_args(
    policy: PolicyConfig,
    rollout: RolloutConfig,
    *,
    is_cpu: bool,
    model_folder: str,
) -> dict[str, Any]:
    """Arguments of a rollout worker's engine.

    ``processed_logprobs`` are those of the distribution sampled from, after the temperature; the
    sampling itself is never truncated (no top-p, no top-k), so the learner can compute the same.
    """
    args: dict[str, Any] = {
        "model": model_folder,
        "dtype": "bfloat16",
        "max_model_len": policy.max_model_len,
        "max_num_seqs": rollout.max_num_seqs,
        "trust_remote_code": policy.trust_remote_code,
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "weight_transfer_config": {"backend": WEIGHT_BACKEND},
        "worker_extension_cls": WEIGHT_EXTENSION,
    }
    args |= _prefill(policy.max_model_len) if is_cpu else {}
    return args | _common(is_cpu, rollout.tensor_parallel_size, rollout.gpu_memory_utilization)


def served_engine_args(config: ServedModelConfig, *, is_cpu: bool) -> dict[str, Any]:
    """Arguments of a judge's or writer's engine (backend ``vllm``)."""
    args: dict[str, Any] = {
        "model": config.model,
        "dtype": "bfloat16",
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_ongoing_requests,
        "enable_prefix_caching": True,
        "worker_extension_cls": GUARD_EXTENSION,
    }
    args |= _prefill(config.max_model_len) if is_cpu else {}
    return args | _common(is_cpu, config.tensor_parallel_size, 0.9)


def _prefill(max_model_len: int) -> dict[str, Any]:
    """Prompts are never prefilled in parts on CPU.

    vLLM 0.32 rewinds a seeded request's random generator after a partial prefill, which CPU
    generators cannot do: the whole engine dies.
    """
    return {
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(2048, max_model_len),
    }


def _common(is_cpu: bool, tensor_parallel_size: int, gpu_memory: float) -> dict[str, Any]:
    args: dict[str, Any] = {
        "enforce_eager": is_cpu,
        "disable_log_stats": True,
        "enable_log_requests": False,
        "use_tqdm_on_load": False,
    }
    if is_cpu:
        args["distributed_executor_backend"] = CPU_EXECUTOR
    if not is_cpu:
        args["tensor_parallel_size"] = tensor_parallel_size
        args["gpu_memory_utilization"] = gpu_memory
    return args


def cpu_engine_env(num_threads: int, *, kv_cache_gib: int = 1) -> dict[str, str]:
    """Environment of an engine on CPU.

    ``nobind`` because vLLM's automatic binding reserves a core and gives two engines of one
    machine the same ones; the number of threads is then what OMP_NUM_THREADS says. Threads that
    wait spin 20,000 rounds (well under a millisecond), so that the next of a token's hundreds of
    operators finds them awake, and then sleep: engine and learner share few cores, and spinning
    takes theirs. The count is libgomp's, which torch's CPU build uses.
    """
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(max(1, num_threads)),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "20000",
    }


def engine_env(
    *,
    is_cpu: bool,
    num_cpus: float,
    owner_pid: int,
    root: str,
    env: Mapping[str, str],
) -> dict[str, str]:
    """Environment to set in the process that starts an engine, before it imports vLLM.

    ``root`` is the folder that holds ``core`` and ``actors``; ``env`` the environment as it is.
    """
    paths = [root, *env.get("PYTHONPATH", "").split(":")]
    return {
        "PYTHONPATH": ":".join(dict.fromkeys(p for p in paths if p)),
        OWNER_ENV: str(owner_pid),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": env.get("VLLM_LOGGING_LEVEL", "ERROR"),
    } | (cpu_engine_env(int(num_cpus)) if is_cpu else {})
