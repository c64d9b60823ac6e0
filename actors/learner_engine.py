"""One rank's DeepSpeed engine: process group, optimizer, ZeRO stage, on GPU or CPU.

DeepSpeed reads its rank from the environment and picks its accelerator on import, so the
environment is set first and ``deepspeed`` is imported inside the functions. On CPU nothing is
compiled: AdamW is torch's and the shared-memory communication op is off.
"""

import os
from datetime import timedelta
from typing import Any

import torch

from actors.policy_model import PolicyModel
from core.config import LearnerConfig
from core.deepspeed_config import deepspeed_config

LOOPBACK = "127.0.0.1"


def join_ranks(
    rank: int, world_size: int, master: tuple[str, int], timeout_s: float, *, on_gpu: bool
) -> None:
    """Join the ranks' process group; every rank must call it."""
    address, port = master
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": "0",
        "LOCAL_SIZE": str(world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
    if not on_gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    if address == LOOPBACK:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import deepspeed

    if not on_gpu:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend="nccl" if on_gpu else "gloo",
        auto_mpi_discovery=False,
        timeout=timedelta(seconds=timeout_s),
        rank=rank,
        world_size=world_size,
    )


def build_engine(policy: PolicyModel, learner: LearnerConfig) -> Any:
    """Hand the policy to DeepSpeed."""
    import deepspeed

    optimizer = torch.optim.AdamW(
        [p for p in policy.parameters() if p.requires_grad],
        lr=learner.lr,
        betas=learner.betas,
        weight_decay=learner.weight_decay,
        fused=True,
    )
    engine, *_ = deepspeed.initialize(
        model=policy, optimizer=optimizer, config=deepspeed_config(learner)
    )
    return engine


def apply_gradients(engine: Any, learner: LearnerConfig) -> float:
    """Clip, do the optimizer step, return the gradient norm before clipping.

    A norm that is not finite is returned without a step: at stage 0 the step is not called, at the
    others DeepSpeed skips it.
    """
    if learner.zero_stage == 0:
        norm = torch.nn.utils.clip_grad_norm_(engine.module.parameters(), learner.max_grad_norm)
        if not torch.isfinite(norm):
            engine.optimizer.zero_grad()
            return float(norm)
        engine.set_gradient_accumulation_boundary(True)
        engine.step()
        return float(norm)
    engine.step()
    if engine.optimizer.overflow:
        return float("inf")
    return float(engine.get_global_grad_norm())


def set_learning_rate(engine: Any, rate: float) -> None:
    """Set the rate of every parameter group, also of the one DeepSpeed wraps."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate
