"""What two steps of every recipe do, worked out by hand.

Two queries, both drawn in both steps. Rollouts say "alpha", "alpha beta", "alpha beta gamma delta",
"alpha" (and "alpha" again in groups of five); the rubric is c1 "mentions alpha", c2 "mentions
beta". So the initial rewards are 1/2, 1, 1, 1/2, and c1 is saturated.
"""

from dataclasses import dataclass

from tests.ray import scripted_writers as writers
from tests.ray.scripted_world import Script, no_script

GROUP_SIZE, STEPS, NUM_QUERIES = 4, 2, 2
ROLLOUTS = GROUP_SIZE * NUM_QUERIES

Rewards = tuple[float, ...]
INITIAL: Rewards = (1 / 2, 1, 1, 1 / 2)
"""The share of alpha and beta."""
REPLACED: Rewards = (0, 1 / 2, 1, 0)
"""The share of gamma and beta."""
VETOED: Rewards = (2 / 3, 1, 0, 2 / 3)
"""Alpha, beta and no delta; rollout 2 says delta."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A recipe, and what two steps of it do; rewards are the same for both queries."""

    recipe: str
    script: Script = no_script
    first: Rewards = INITIAL
    second: Rewards = INITIAL
    judge: int = 2 * ROLLOUTS
    """Judge calls, one a rollout unless it asks a criterion at a time."""
    rescore: int = 0
    writer: int = 0
    version: int = 0
    """Of each query's rubric at the end."""
    accepted: tuple[tuple[str, int], ...] = ()
    """Accepted edits by branch."""
    overrides: tuple[str, ...] = ()


PER_STEP = NUM_QUERIES
"""B: one call a group."""
CARE_CALLS = STEPS * PER_STEP

ROWS = (
    # Verbatim template (CARE's faithful recipes).
    Row(recipe="rubric_rl"),
    Row(recipe="rubric_rl_universal", first=(3 / 4, 1, 1, 3 / 4), second=(3 / 4, 1, 1, 3 / 4)),
    *(
        Row(
            recipe=recipe,
            script=writers.adaptive,
            second=VETOED,
            writer=CARE_CALLS,
            version=1,
            accepted=(("adaptive", 2),),
        )
        for recipe in ("care", "care_300", "care_adaptive", "care_adaptive_no_anchor")
    ),
    *(
        # Without the veto rollout 2 still has alpha and beta: 2 of 3.
        Row(
            recipe=recipe,
            script=writers.adaptive,
            second=(2 / 3, 1, 2 / 3, 2 / 3),
            writer=CARE_CALLS,
            version=1,
            accepted=(("adaptive", 2),),
        )
        for recipe in ("care_no_veto", "care_adaptive_no_veto")
    ),
    Row(
        recipe="care_chase",
        script=writers.chase,
        second=(1 / 3, 2 / 3, 1, 1 / 3),
        writer=CARE_CALLS,
        version=1,
        accepted=(("chase", 2),),
    ),
    # The changed criterion is rescored once, and the group is rewarded by it at once.
    Row(
        recipe="care",
        script=writers.adaptive,
        first=VETOED,
        second=VETOED,
        rescore=PER_STEP,
        writer=CARE_CALLS,
        version=1,
        accepted=(("adaptive", 2),),
        overrides=("evolution.apply=same_step",),
    ),
    # Twice the rollouts: twice the judge calls, and still one writer call a group.
    Row(
        recipe="care",
        script=writers.adaptive,
        first=INITIAL * 2,
        second=VETOED * 2,
        judge=2 * 2 * ROLLOUTS,
        writer=CARE_CALLS,
        version=1,
        accepted=(("adaptive", 2),),
        overrides=("sampling.group_size=8",),
    ),
    # A pair each for two control rollouts, and the merge: three calls a group. Criteria are local:
    # the second step begins with c1 and c2 again, so it makes a version too. All count the same.
    Row(
        recipe="care_online",
        script=writers.pair_or_merge,
        first=(1 / 3, 2 / 3, 1, 1 / 3),
        second=(1 / 3, 2 / 3, 1, 1 / 3),
        writer=3 * STEPS * PER_STEP,
        version=2,
        accepted=(("pool", 6),),
    ),
    # By short ids. One replacement a query in the first step; then nothing is saturated.
    *(
        Row(
            recipe=recipe,
            script=writers.replacement,
            first=REPLACED,
            second=REPLACED,
            rescore=PER_STEP,
            writer=PER_STEP,
            version=1,
            accepted=(("replacement", 2),),
        )
        for recipe in (
            "rare_negative",
            "rare_positive",
            "rare_mixed",
            "chasing_tail_rare",
            "writingbench_rare",
        )
    ),
    # Twice the rollouts: still one writer and one rescoring call an event.
    Row(
        recipe="rare_negative",
        script=writers.replacement,
        first=REPLACED * 2,
        second=REPLACED * 2,
        judge=2 * 2 * ROLLOUTS,
        rescore=PER_STEP,
        writer=PER_STEP,
        version=1,
        accepted=(("replacement", 2),),
        overrides=("sampling.group_size=8",),
    ),
    Row(recipe="sample_static"),
    Row(recipe="task_static"),
    # RLER as RARE has it: gamma and by (0..2 each) beside alpha and beta, all in one call; `by`
    # tells nobody apart and is gone at the second visit.
    Row(
        recipe="rare_rler",
        script=writers.positive_pool,
        first=(3 / 6, 4 / 6, 6 / 6, 3 / 6),
        second=(1 / 4, 2 / 4, 4 / 4, 1 / 4),
        writer=STEPS * PER_STEP,
        version=2,
        accepted=(("pool", 6),),
    ),
    # One shared rubric: five calls of the meta judge (two samples, two calls each, one merge).
    Row(
        recipe="rare_mpo",
        script=writers.meta,
        second=(0, 0, 1, 0),
        writer=5,
        version=1,
        accepted=(("task", 3),),
        overrides=("evolution.mpo.revisions=1", "evolution.mpo.num_samples=2"),
    ),
    # Weights 1, 1 and 2 for gamma, over the positive weights.
    Row(
        recipe="online_rubrics",
        script=writers.pair_or_merge,
        first=(1 / 4, 2 / 4, 4 / 4, 1 / 4),
        second=(1 / 4, 2 / 4, 4 / 4, 1 / 4),
        writer=3 * STEPS * PER_STEP,
        version=2,
        accepted=(("pool", 6),),
    ),
    # The replacement rewards at once; then rollout 2 (reward 1, near the ceiling) is contrasted.
    # The anchor passes the new veto (a judge call a query), which tells rollouts apart (a
    # rescoring). In step 2 the best reward is 2/3: no sign of hacking, no call.
    Row(
        recipe="ratchet",
        script=writers.replacement_then_contrast,
        first=REPLACED,
        second=(1 / 3, 2 / 3, 0, 1 / 3),
        judge=2 * ROLLOUTS + NUM_QUERIES,
        rescore=2 * PER_STEP,
        writer=2 * PER_STEP,
        version=2,
        accepted=(("adaptive", 2), ("replacement", 2)),
    ),
    # One call a criterion: 4 of them in the first step, 3 in the second. Over the positive weights,
    # 3: alpha, beta and gamma count 1, `by` counts -1 and is pruned, since all answers say it.
    Row(
        recipe="rler",
        script=writers.pool,
        first=(0, 1 / 3, 2 / 3, 0),
        second=(1 / 3, 2 / 3, 1, 1 / 3),
        judge=4 * ROLLOUTS + 3 * ROLLOUTS,
        writer=STEPS * PER_STEP,
        version=2,
        accepted=(("pool", 6),),
    ),
    Row(
        recipe="mpo",
        script=writers.meta,
        second=(0, 0, 1, 0),
        judge=2 * ROLLOUTS + 1 * ROLLOUTS,
        writer=5,
        version=1,
        accepted=(("task", 3),),
        overrides=("evolution.mpo.every_steps=1", "evolution.mpo.num_samples=2"),
    ),
)
TASK_ROW = Row(
    recipe="rare_task",
    script=writers.task_revision,
    judge=2 * NUM_QUERIES * 5 + 2,
    writer=1,
    version=1,
    accepted=(("task", 1),),
    overrides=(
        "sampling.group_size=5",
        "evolution.task.revisions=1",
        "evolution.task.evidence_steps=1",
        "evolution.task.min_groups=2",
        "evolution.task.max_groups=2",
    ),
)
"""Groups of five, whose median is 1/2: each representative is worth 1/2, and under "mentions q1"
instead of "mentions alpha" q1's is still worth 1/2 and q2's 0, so the mean moves by 1/4 <= 0.35 and
there are two different rewards: accepted."""
