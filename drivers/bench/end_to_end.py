"""Rollouts per second of whole steps, ours against TRL's GRPOTrainer on the same work.

A step is: generate, grade by rules, update, bring the new weights to the engine. Both sides run on
the same cores one after another, in processes of their own, on policy, with the same model,
queries, lengths and optimizer steps (``end_to_end_work.py``); warm-up steps are left out. TRL
stands with its better one of two micro-batch sizes.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drivers.bench.end_to_end_sides import Side, run_ours, run_trl
from drivers.bench.end_to_end_work import Work
from drivers.bench.part import Options, Part, Row
from drivers.packaged_model import resolve_model

log = logging.getLogger("ratchet")

TRL_MICRO_BATCHES = (4, 8)
"""Sequences of one forward pass; 16 takes half as long again, here and in ``learner``."""

_PHASES = ("timing_s/gen", "timing_s/update_actor", "timing_s/update_weights", "timing_s/reward")


def measure(options: Options) -> dict[str, Any]:
    """Return the figures of both sides and their ratio."""
    work = Work(
        model=resolve_model("packaged:smollm2-135m-instruct"),
        num_threads=len(os.sched_getaffinity(0)),
        seed=options.seed,
    )
    if options.is_short:
        work = replace(work, measured_steps=1, group_size=4, max_new_tokens=32)
    ours = run_ours(work)
    sizes = TRL_MICRO_BATCHES[1:] if options.is_short else TRL_MICRO_BATCHES
    rivals = {
        size: run_trl(replace(work, measured_steps=1, trl_micro_batch=size)) for size in sizes
    }
    found = result(ours, rivals, work)
    log.info(
        "a step: ours %.1f s, TRL %s s",
        ours.step_s,
        ", ".join(f"{side.step_s:.1f}" for side in rivals.values()),
    )
    return found


def result(ours: Side, rivals: Mapping[int, Side], work: Work) -> dict[str, Any]:
    """Return what stands in the result file; ``rivals`` are TRL's sides by micro-batch."""
    size, trl = max(rivals.items(), key=lambda item: item[1].rollouts_per_s)
    return {
        "rollouts_per_s": ours.rollouts_per_s,
        "trl_rollouts_per_s": trl.rollouts_per_s,
        "rollouts_per_s_ratio": ours.rollouts_per_s / trl.rollouts_per_s,
        "tokens_per_s_ratio": ours.tokens_per_s / trl.tokens_per_s,
        "ours": _figures(ours),
        "trl": _figures(trl),
        "trl_micro_batch": size,
        "trl_step_s": {str(each): side.step_s for each, side in rivals.items()},
        "work": {k: v for k, v in work.as_json().items() if k not in ("model", "trl_micro_batch")},
    }


def _figures(side: Side) -> dict[str, float]:
    """Return a side's step and its phases in seconds."""
    phases = {name: side.mean(name) for name in _PHASES if all(name in s for s in side.steps)}
    return {
        "step_s": side.step_s,
        "tokens_per_rollout": side.tokens_per_rollout,
        **phases,
    }


def rows(result: dict[str, Any]) -> Sequence[Row]:
    """Return the table's rows."""
    ours, trl = result["ours"], result["trl"]
    return [
        Row(name="rollouts a second, ours", value=result["rollouts_per_s"], unit="1/s"),
        Row(name="rollouts a second, TRL", value=result["trl_rollouts_per_s"], unit="1/s"),
        Row(name="ours over TRL", value=result["rollouts_per_s_ratio"], at_least=2.5),
        Row(name="ours over TRL, in tokens", value=result["tokens_per_s_ratio"]),
        Row(name="a step, ours", value=ours["step_s"], unit="s"),
        Row(name="a step, TRL", value=trl["step_s"], unit="s"),
        Row(name="update, ours", value=ours["timing_s/update_actor"], unit="s"),
        Row(name="generation, ours", value=ours["timing_s/gen"], unit="s"),
        Row(name="generation, TRL", value=trl["timing_s/gen"], unit="s"),
    ]


PART = Part(name="end_to_end", measure=measure, rows=rows)
