"""The names of all metrics, and the ones that are arithmetic over a step's scored groups.

``METRICS`` is the one table of names, each with its meaning; verl's, TRL's and open-instruct's
names where they have one. ``step_metrics`` fills those that follow from the groups and from the
step's edits; the learner, the judge client and the loop add theirs (``actor/*``, ``judge/*``,
``timing_s/*``). A metric without any data is left out, never written as 0 or NaN.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from core.advantage import is_flat
from core.evolution.rare import saturated_ids
from core.records import FailureKind, GradedGroup, RubricEdit, ScoredGroup, ScoredRollout
from core.reward import gold_score
from core.rubric import Rubric
from core.staleness import policy_age


def _spread(name: str, meaning: str, stats: str = "mean max min") -> dict[str, str]:
    return {f"{name}/{stat}": f"{meaning}, {stat}" for stat in stats.split()}


def _served(prefix: str, what: str) -> dict[str, str]:
    """Names of a client's running totals since the driver started."""
    meanings = {
        "calls": f"{what} calls",
        "retries": f"repeated {what} calls",
        "queue_depth": f"{what} calls waiting or running",
        "num_replicas": f"replicas of the {what} that run",
        "prompt_tokens": f"tokens sent to the {what}",
        "cached_prompt_tokens": f"of these, tokens that the {what}'s prefix cache held",
        "completion_tokens": f"tokens the {what} wrote",
        "cost_usd": f"cost of {what} calls in US dollars",
    }
    return {
        **{f"{prefix}/{name}": meaning for name, meaning in meanings.items()},
        **_spread(f"{prefix}/latency_s", f"seconds a {what} call", "p50 p95 p99"),
    }


METRICS: Mapping[str, str] = {
    **_spread("critic/score", "reward before the veto, graded rollouts", "mean max min std"),
    **_spread("critic/rewards", "reward, graded rollouts", "mean max min std"),
    **_spread("critic/advantages", "advantage, rollouts that train", "mean max min std"),
    "frac_reward_zero_std": "share of unmasked groups whose rewards are all equal",
    "val/reward/mean": "reward on held-out queries under their initial rubric",
    "val/gold/mean": "gold score on held-out queries",
    "gold/mean": "mean score on gold criteria, which are never rewarded",
    **_spread("response_length", "tokens a response"),
    "response_length/clip_ratio": "share of responses cut at the token limit",
    **_spread("prompt_length", "tokens a prompt"),
    **_spread("training/off_policy/trajectory_staleness", "policy age of a rollout"),
    "evolving_rubrics/num_active_rubrics": "criteria a query, mean",
    "evolving_rubrics/num_resist": "[Resist] criteria a query, mean",
    "evolving_rubrics/saturated_ratio": "share of [llm] criteria with full score everywhere",
    "evolving_rubrics/replaced": "saturated criteria replaced",
    "evolving_rubrics/veto_rate": "share of graded rollouts that a [Resist] criterion vetoed",
    "evolving_rubrics/hack_detected_rate": "share of contrasts whose writer reported a hack",
    "evolving_rubrics/branch_adaptive": "accepted edits of the adaptive branch",
    "evolving_rubrics/branch_chase": "accepted edits of the chase branch",
    "evolving_rubrics/num_new_rubrics": "accepted criteria that replace none",
    "evolving_rubrics/num_overrides": "accepted rewrites and replacements",
    "evolving_rubrics/refused": "edits refused",
    "evolving_rubrics/failed": "edits that came to nothing: no reply, tries used up, too late",
    "evolving_rubrics/noop": "contrasts that left the rubric unchanged",
    "evolving_rubrics/deadline_missed": "edits that came after their deadline",
    "evolving_rubrics/commit_conflicts": "edits made for a version that was no longer current",
    "evolving_rubrics/restored": "criteria that a writer left out and that were put back",
    "evolving_rubrics/retired": "criteria that left with no successor: over a cap, flat, outdated",
    "evolving_rubrics/refused_by_gate": "edits refused by a gate before the commit",
    "evolving_rubrics/refused_by_gate/redundant": "of these: near duplicates and contraries",
    "evolving_rubrics/refused_by_gate/anchor": "of these: the anchor fails the new [Resist]",
    "evolving_rubrics/refused_by_gate/discriminates": "of these: tells no rollouts apart",
    "evolving_rubrics/refused_by_gate/task": "of these: revisions of a shared rubric (RARE, A.2.2)",
    "evolving_rubrics/not_triggered": "groups that no trigger called for a contrast of",
    "evolving_rubrics/skipped": "groups that had nothing to contrast",
    "evolving_rubrics/rescored_calls": "joint rescoring calls",
    "evolving_rubrics/writer_calls": "calls of the rubric writer",
    "judge/invalid_samples": "rollouts without a reward, since a criterion has no score",
    "judge/unrankable_valid_samples": "graded rollouts masked with their group (fewer than two)",
    "judge/verdicts": "verdicts given, the cached ones included",
    "judge/failed_rate": "share of verdicts without a score",
    **{f"judge/failed/{kind}": f"verdicts failed as {kind}" for kind in get_args(FailureKind)},
    **_spread("judge/latency_s", "seconds a judge call", "mean max"),
    "judge/cached": "verdicts taken from the cache",
    **_served("judge", "judge"),
    "judge/parse_failure_rate": "share of verdicts that could not be read from the reply",
    "judge/gold_gap": "training reward minus the reference judge's, mean of the rollouts it scored",
    "judge/reference_scored": "rollouts that the reference judge scored beside the training",
    "judge/reference_failed": "rollouts that the reference judge could not score",
    "judge/reference_skipped": "rollouts left out, since the reference judge is behind",
    **_served("reference_judge", "reference judge"),
    "reference_judge/parse_failure_rate": "share of its verdicts that could not be read",
    **_served("writer", "rubric writer"),
    "budget/usd_spent": "US dollars spent on judge and writer in all parts of the run",
    "budget/tokens_spent": "tokens spent on judge and writer in all parts of the run",
    "actor/pg_loss": "policy gradient loss",
    "actor/kl_loss": "KL term to the reference model",
    "actor/ppo_kl": "mean old minus new log-prob",
    "actor/pg_clipfrac": "share of tokens clipped above or below",
    "actor/pg_clipfrac_lower": "share of tokens clipped by the dual clip",
    "actor/entropy": "mean entropy a token",
    "actor/grad_norm": "gradient norm before clipping",
    "actor/lr": "learning rate",
    "actor/empty_batches": "optimizer steps left out, since no token could train",
    "rollout_corr/rollout_is_mean": "mean importance weight after truncation",
    "rollout_corr/rollout_is_max": "largest importance weight after truncation",
    "rollout_corr/rollout_is_eff_sample_size": "effective sample size of the importance weights",
    "rollout_corr/kl": "mean rollout minus learner log-prob",
    "rollout_corr/k3_kl": "low-variance KL of rollout to learner policy",
    **{
        f"training/rollout_probs_diff_{stat}": f"|rollout - learner| probability a token, {stat}"
        for stat in ("mean", "max", "std")
    },
    **{
        f"timing_s/{part}": f"seconds of {meaning}"
        for part, meaning in {
            "step": "the whole step",
            "gen": "generating the step's rollouts",
            "reward": "judge calls, summed",
            "update_actor": "the policy update",
            "update_weights": "the weight sync",
            "testing": "the held-out evaluation",
            "trainer_idle": "the learner waiting for groups",
            "evolve_total": "writing and rescoring, summed over groups",
            "evolve_exposed": "evolution that nothing else overlapped",
        }.items()
    },
    "perf/throughput": "tokens trained for each second of the step",
    "perf/total_num_tokens": "tokens of prompt plus response in the step",
    # Offline training (SFT, DPO): TRL's names.
    "loss": "loss of an offline step, on the responses' tokens",
    "val/loss": "the same loss on the rows that are held out, at an epoch's end",
    "epoch": "passes over the rows of offline training",
    "mean_token_accuracy": "share of response tokens that the policy thinks most likely",
    "val/mean_token_accuracy": "the same on the rows that are held out",
    "rewards/chosen": "DPO: beta times log-ratio to the reference of chosen responses",
    "rewards/rejected": "DPO: the same of rejected responses",
    "rewards/accuracies": "DPO: share of pairs whose chosen response has the higher one",
    "rewards/margins": "DPO: chosen minus rejected, mean",
    "val/rewards/accuracies": "DPO: that share on the pairs that are held out",
    "val/rewards/margins": "DPO: that margin on the pairs that are held out",
    "logps/chosen": "DPO: log-prob of a chosen response, mean",
    "logps/rejected": "DPO: log-prob of a rejected response, mean",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """What happened to rubrics in one step, beside the groups themselves."""

    edits: tuple[RubricEdit, ...] = ()
    """All edits recorded in the step, accepted or not."""
    num_contrasts: int = 0
    """Contrasts whose writer replied; 0 leaves the hack rate out."""
    num_saturated: int = 0
    """Saturated criteria before any replacement, from ``saturation_counts``."""
    num_saturable: int = 0
    """Criteria that could have been; 0 counts both on the scored groups instead."""
    num_restored: int = 0
    num_deadline_missed: int = 0
    num_commit_conflicts: int = 0
    num_refused_by_gate: int = 0


def step_metrics(
    groups: Sequence[ScoredGroup], learner_version: int, counts: StepCounts | None = None
) -> dict[str, float]:
    """Return the metrics of one step's groups; ``learner_version`` is the one before the update."""
    counts = counts or StepCounts()
    return {
        **_reward_metrics(groups),
        **_rollout_metrics(groups, learner_version),
        **_rubric_metrics(groups, counts),
        **_edit_metrics(counts),
    }


def saturation_counts(group: GradedGroup) -> tuple[int, int]:
    """Return how many criteria of a group are saturated, and how many could be ([llm] ones)."""
    return len(saturated_ids(group.rubric, group.rollouts)), _num_saturable(group.rubric)


def _num_saturable(rubric: Rubric) -> int:
    return sum(not c.is_resist and not c.is_penalty for c in rubric.criteria)


def stats(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return ``name/mean|max|min``; nothing for no values."""
    numbers = list(values)
    if not numbers:
        return {}
    return {
        f"{name}/mean": sum(numbers) / len(numbers),
        f"{name}/max": float(max(numbers)),
        f"{name}/min": float(min(numbers)),
    }


def _stats_and_std(name: str, values: Iterable[float]) -> dict[str, float]:
    """``stats`` plus the population deviation over all rollouts of the step."""
    numbers = list(values)
    result = stats(name, numbers)
    if numbers:
        mean = result[f"{name}/mean"]
        result[f"{name}/std"] = (sum((v - mean) ** 2 for v in numbers) / len(numbers)) ** 0.5
    return result


def _share(name: str, part: int, whole: int) -> dict[str, float]:
    return {name: part / whole} if whole else {}


def _graded(group: ScoredGroup) -> list[ScoredRollout]:
    return [r for r in group.rollouts if r.reward is not None]


def _reward_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    graded = [r for g in groups for r in _graded(g)]
    used = [g for g in groups if not g.is_masked]
    flat = sum(is_flat([r.reward for r in _graded(g) if r.reward is not None]) for g in used)
    gold = [
        score
        for g in groups
        for r in g.rollouts
        if (score := gold_score(g.query.gold, r.graded.gold)) is not None
    ]
    num_rollouts = sum(len(g.rollouts) for g in groups)
    return {
        **_stats_and_std(
            "critic/score", [r.before_veto for r in graded if r.before_veto is not None]
        ),
        **_stats_and_std("critic/rewards", [r.reward for r in graded if r.reward is not None]),
        **_stats_and_std("critic/advantages", [r.advantage for g in used for r in _graded(g)]),
        **_share("frac_reward_zero_std", flat, len(used)),
        **({"gold/mean": sum(gold) / len(gold)} if gold else {}),
        "judge/invalid_samples": float(num_rollouts - len(graded)),
        "judge/unrankable_valid_samples": float(
            sum(len(_graded(g)) for g in groups if g.is_masked)
        ),
    }


def _rollout_metrics(groups: Sequence[ScoredGroup], learner_version: int) -> dict[str, float]:
    rollouts = [r.graded.rollout for g in groups for r in g.rollouts]
    cut = sum(r.is_cut for r in rollouts)
    return {
        **stats("response_length", [len(r.token_ids) for r in rollouts]),
        **_share("response_length/clip_ratio", cut, len(rollouts)),
        **stats("prompt_length", [len(r.prompt_token_ids) for r in rollouts]),
        **stats(
            "training/off_policy/trajectory_staleness",
            [policy_age(learner_version, r) for r in rollouts],
        ),
    }


def _rubric_metrics(groups: Sequence[ScoredGroup], counts: StepCounts) -> dict[str, float]:
    graded = [r for g in groups for r in _graded(g)]
    saturated, saturable = counts.num_saturated, counts.num_saturable
    if not saturable:
        saturable = sum(_num_saturable(g.rubric) for g in groups)
        saturated = sum(
            len(saturated_ids(g.rubric, [r.graded for r in g.rollouts])) for g in groups
        )
    num_criteria = sum(len(g.rubric.criteria) for g in groups)
    num_resist = sum(c.is_resist for g in groups for c in g.rubric.criteria)
    prefix = "evolving_rubrics"
    return {
        **_share(f"{prefix}/num_active_rubrics", num_criteria, len(groups)),
        **_share(f"{prefix}/num_resist", num_resist, len(groups)),
        **_share(f"{prefix}/saturated_ratio", saturated, saturable),
        **_share(f"{prefix}/veto_rate", sum(r.is_vetoed for r in graded), len(graded)),
    }


def _edit_metrics(counts: StepCounts) -> dict[str, float]:
    accepted = [e for e in counts.edits if e.status == "accepted"]
    written = [e for e in accepted if e.new is not None]
    hacks = sum(e.branch == "adaptive" and e.new is not None for e in counts.edits)
    numbers = {
        "replaced": sum(e.branch == "replacement" for e in written),
        "branch_adaptive": sum(e.branch == "adaptive" for e in written),
        "branch_chase": sum(e.branch == "chase" for e in written),
        "num_new_rubrics": sum(e.old is None for e in written),
        "num_overrides": sum(e.old is not None for e in written),
        "retired": len(accepted) - len(written),
        "refused": sum(e.status == "refused" for e in counts.edits),
        "failed": sum(e.status == "failed" for e in counts.edits),
        "noop": sum(e.status == "noop" for e in counts.edits),
        "restored": counts.num_restored,
        "deadline_missed": counts.num_deadline_missed,
        "commit_conflicts": counts.num_commit_conflicts,
        "refused_by_gate": counts.num_refused_by_gate,
    }
    return {
        **{f"evolving_rubrics/{name}": float(n) for name, n in numbers.items()},
        **_share(
            "evolving_rubrics/hack_detected_rate",
            min(hacks, counts.num_contrasts),
            counts.num_contrasts,
        ),
    }
