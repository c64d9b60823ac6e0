"""Training tokens a second and peak memory of our learner against TRL's ``GRPOTrainer``.

Both train the same 135M model on the same completions, with bf16 autocast over float32 weights, no
KL term, AdamW, one optimizer step a batch and the same threads. Every arm is a process of its own
(``learner_arms.py``) and they take turns: ours, TRL with micro-batches of 4, 8 and 16, then ours
and the fastest TRL again. Ours runs with activation checkpointing, these without; last comes TRL
at its leanest, with it, for memory at equal settings. Tokens are prompt plus response without
padding; a rate is that of an arm's fastest step. Memory is the arm's highest resident size while it
trains.
``--device cuda`` measures our learner alone on a GPU (``learner_gpu.py``) and needs only torch and
transformers.
"""

from collections.abc import Sequence
from typing import Any

from drivers.bench.part import Options, Part, Row


def measure(options: Options) -> dict[str, Any]:
    """Measure on CPU against TRL, or on a GPU alone."""
    if options.device == "cuda":
        from drivers.bench.learner_gpu import measure_device

        return measure_device("cuda", is_short=options.is_short)
    from drivers.bench.learner_against_trl import measure_against_trl

    return measure_against_trl(options)


def rows(result: dict[str, Any]) -> Sequence[Row]:
    """The table."""
    if "shapes" in result:
        return _gpu_rows(result)
    return [
        Row(name="ours", value=result["train_tokens_per_s"], unit="tokens/s"),
        Row(name="TRL", value=result["trl_train_tokens_per_s"], unit="tokens/s"),
        Row(
            name="tokens a second over TRL's",
            value=result["train_tokens_per_s_ratio"],
            at_least=1.5,
        ),
        Row(name="peak memory over TRL's", value=result["peak_memory_ratio"], at_most=0.6),
        Row(
            name="peak memory over TRL's, both with checkpointing",
            value=result["peak_memory_ratio_both_checkpointing"],
        ),
        Row(
            name="gradient error, float32",
            value=result["gradient_error"]["float32"] * 1e6,
            unit="millionths",
            at_most=result["gradient_error"]["float32_tolerance"] * 1e6,
        ),
        Row(
            name="gradient error over plain's, bf16",
            value=result["gradient_error"]["bf16"] / result["gradient_error"]["plain_bf16"],
            at_most=result["gradient_error"]["bf16_factor"],
        ),
    ]


def _gpu_rows(result: dict[str, Any]) -> Sequence[Row]:
    found: list[Row] = []
    for shape in result["shapes"]:
        for name, figures in shape["modes"].items():
            title = f"{shape['name']}, {name}"
            found.append(Row(name=title, value=figures["tokens_per_s"], unit="tokens/s"))
            found.append(Row(name=f"{title}: memory", value=figures["peak_gb"], unit="GB"))
            found.append(Row(name=f"{title}: share of matmul peak", value=figures["peak_share"]))
    return found


PART = Part(name="learner", measure=measure, rows=rows)
