"""How many judge and writer calls a run makes at most, before anything is spent.

Without repeated tries, and before any verdict is taken from the cache. Sources of the numbers: CARE
section 3.4 (one writer call a group), RARE appendix A.2.3 (one writer and one rescoring call an
event; a task-level revision and its representatives), RLER (one writer call a group), Online
Rubrics (a call a pair and one that merges), MPO (two calls a sample and one that merges).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.config import RunConfig
from core.config_evolution import (
    CareEvolution,
    GatesConfig,
    MpoEvolution,
    OnlineRubricsEvolution,
    RareEvolution,
    RatchetEvolution,
    RlerEvolution,
)
from core.config_served import GradingConfig
from core.evolution.mpo import mpo_steps
from core.evolution.rare_task import revision_steps
from core.query import Query
from drivers.run_data import RunData


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """What a method adds to the grading of the rollouts."""

    judge: int = 0
    writer: int = 0


def estimated_calls(config: RunConfig, data: RunData | None, *, done: int = 0) -> dict[str, int]:
    """Return upper estimates of the calls after step ``done``, by who answers them.

    Gold criteria are judged in calls of their own; without data they are taken to be there. With
    ``judge.per_criterion`` the initial rubric with most criteria counts for all.
    """
    steps = config.loop.steps - done
    num_rollouts = steps * config.loop.groups_per_step * config.sampling.group_size
    held_out = _num_held_out_rollouts(config, data, done)
    added = _method_calls(config, len(data.rubrics) if data and data.rubrics else 1)
    calls = {
        "judge": num_rollouts * _calls_each(config, config.judge, data and data.train)
        + added.judge
        + held_out * _calls_each(config, config.judge, data and data.eval),
        "writer": added.writer,
    }
    reference = config.reference_judge
    if reference is not None:
        each = _calls_each(config, reference, data and data.train, scores_gold=False)
        calls["reference judge"] = math.ceil(num_rollouts * reference.frac) * each
    return calls


def _calls_each(
    config: RunConfig,
    judge: GradingConfig,
    queries: Sequence[Query] | None,
    *,
    scores_gold: bool = True,
) -> int:
    """Calls of one rollout: for its rubric, and for gold criteria where there are any."""
    if not judge.per_criterion:
        has_gold = queries is None or any(q.gold for q in queries)
        return 1 + int(has_gold and scores_gold)
    if not queries:
        return 1
    num_gold = max(len(q.gold) for q in queries) if scores_gold else 0
    method = config.evolution
    added = method.rler.max_active + method.rler.max_new if isinstance(method, RlerEvolution) else 0
    return max(len(q.rubric.criteria) for q in queries) + num_gold + added


def _num_held_out_rollouts(config: RunConfig, data: RunData | None, done: int) -> int:
    every = config.loop.eval_every
    if data is None or not data.eval or not every:
        return 0
    num_passes = -(-config.loop.steps // every) - done // every
    return num_passes * len(data.eval) * config.sampling.eval_group_size


# ------------------------------------------------------------------ methods
def _method_calls(config: RunConfig, num_rubrics: int) -> _Calls:
    """What the method adds; ``num_rubrics`` counts the shared ones of a task-level method."""
    method, groups = config.evolution, config.loop.steps * config.loop.groups_per_step
    if isinstance(method, CareEvolution):
        rescoring = int(method.apply == "same_step")
        return _Calls(judge=groups * (rescoring + _gate_calls(method.gates)), writer=groups)
    if isinstance(method, RatchetEvolution):
        return _Calls(judge=groups * (1 + _gate_calls(method.gates)), writer=2 * groups)
    if isinstance(method, RareEvolution):
        if method.scope == "query":
            return _Calls(judge=groups, writer=groups)
        due = revision_steps(config.loop.steps, method.task.revisions)
        events = len(due) * num_rubrics
        return _Calls(judge=events * method.task.max_groups, writer=events)
    if isinstance(method, RlerEvolution):
        return _Calls(writer=groups)
    if isinstance(method, OnlineRubricsEvolution):
        pairs = min(config.sampling.group_size, method.online.control_group_size)
        return _Calls(writer=groups * (pairs + 1))
    if isinstance(method, MpoEvolution):
        mpo = method.mpo
        events = len(mpo_steps(mpo, config.loop.steps)) * num_rubrics
        return _Calls(writer=events * (2 * mpo.num_samples + 1))
    return _Calls()


def _gate_calls(gates: GatesConfig) -> int:
    """Judge calls of one edit: on its anchor, and on the group."""
    return int(gates.anchor_passes) + int(gates.discriminates)
