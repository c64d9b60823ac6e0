"""DeepSpeed's config, made from the learner's.

Parameters stay fp32 (bf16 is an autocast inside the model), micro-batches are counted by the
learner and not by DeepSpeed, and the optimizer is torch's AdamW: DeepSpeed's own CPU Adam would
have to be compiled. ZeRO stages 2 and 3 clip inside DeepSpeed and skip a step with a non-finite
gradient; at stage 0 the learner does both, since DeepSpeed reports no norm there.
"""

from typing import Any, Literal

from core.config import LearnerConfig


def deepspeed_config(learner: LearnerConfig) -> dict[str, Any]:
    """What ``deepspeed.initialize`` takes as ``config``."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": learner.max_grad_norm if learner.zero_stage > 0 else 0.0,
        "zero_optimization": _zero(learner.zero_stage),
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31 - 1,
        "wall_clock_breakdown": False,
    }


def trainer_deepspeed_config(stage: Literal[2, 3]) -> dict[str, Any]:
    """What a Hugging Face trainer takes as ``deepspeed``; it fills "auto" from its arguments."""
    zero = _zero(stage)
    if stage == 3:  # the policy at the end is written from whole weights
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31 - 1,
        "wall_clock_breakdown": False,
    }


def learning_rate(step: int, learner: LearnerConfig) -> float:
    """Rate of training step ``step`` (from 1): linear warm-up, then constant."""
    if learner.warmup_steps == 0:
        return learner.lr
    return learner.lr * min(1.0, step / learner.warmup_steps)


def _zero(stage: int) -> dict[str, Any]:
    if stage == 0:
        return {"stage": 0}
    config: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": False,
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 50_000_000,
    }
    if stage < 3:
        return config | {"allgather_bucket_size": 50_000_000}
    # The head runs in chunks, again in the backward pass: tracing its order ahead does not hold.
    return config | {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}
