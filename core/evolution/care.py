"""CARE: contrast the group's top rollout with the anchor and mend the rubric (CARE section 3.4).

``contrast_request`` picks the top rollout and splits the rubric by what it satisfied;
``read_contrast`` reads the writer's reply into the next rubric and the edits that led there. Which
change an edit is, and what is put back, is decided in ``care_edits``. Pure: no calls, no clock.

The reply is trusted with nothing: [Resist] criteria stay as they are, what was left out without a
rewrite is put back and counted, a set that the response itself brought along is refused, and a
reply that cannot be used leaves the rubric unchanged.
"""

from collections.abc import Sequence

from core.config import RewardConfig
from core.config_evolution import CareConfig
from core.evolution.care_edits import EditRules, edited_rubric, main_branch
from core.evolution.final_set import mentions_set, read_final_set
from core.evolution.origin import stands_in
from core.evolution.quotes import quotes_in
from core.evolution.similarity import normal_text
from core.grading.visible import visible_response
from core.records import (
    Completion,
    EditStatus,
    Evidence,
    Evolution,
    GradedGroup,
    GradedRollout,
    RubricEdit,
)
from core.reward import rollout_reward
from core.rubric import Criterion, Rubric
from core.writer_requests import ContrastRequest


def top_rollout(group: GradedGroup, reward: RewardConfig) -> GradedRollout | None:
    """Return the graded rollout of highest reward; None when no rollout is graded.

    Ties go to the higher mean before the veto, then to the lowest index.
    """
    best: GradedRollout | None = None
    best_key = (0.0, 0.0)
    for rollout in sorted(group.rollouts, key=lambda r: r.rollout.index):
        result = rollout_reward(group.rubric, rollout.verdicts, reward)
        if result.value is None or result.before_veto is None:
            continue
        key = (round(result.value, 12), round(result.before_veto, 12))
        if best is None or key > best_key:
            best, best_key = rollout, key
    return best


def contrast_request(
    group: GradedGroup, care: CareConfig, reward: RewardConfig
) -> ContrastRequest | None:
    """Return what the writer is asked; None when there is nothing to contrast.

    That is: no graded rollout, no anchor although the method uses one, or adaptive only and no
    satisfied [llm] criterion (what is not satisfied cannot be hacked). Satisfied means full score.
    """
    top = top_rollout(group, reward)
    anchor = group.query.anchor if care.anchor else None
    if top is None or (care.anchor and anchor is None):
        return None
    satisfied = tuple(c for c in group.rubric.criteria if top.verdicts[c.id].is_full)
    unsatisfied = tuple(c for c in group.rubric.criteria if not top.verdicts[c.id].is_full)
    if not care.chase and all(c.is_resist for c in satisfied):
        return None
    return ContrastRequest(
        query_id=group.query.id,
        prompt=group.query.prompt_text,
        satisfied=satisfied,
        unsatisfied=unsatisfied,
        response=visible_response(top.rollout.response),
        anchor=anchor,
        is_adaptive=care.adaptive,
        is_chase=care.chase,
    )


def read_contrast(
    reply: Completion,
    request: ContrastRequest,
    group: GradedGroup,
    care: CareConfig,
    reward: RewardConfig,
    *,
    rubric: Rubric | None = None,
    method: str = "care",
) -> Evolution:
    """Return the rubric after the writer's reply, with one edit for each thing it asked for.

    ``rubric`` is the one to edit when it is no longer the group's own; never raises on a reply.
    """
    current = rubric or group.rubric
    if reply.failure is not None:
        reason = f"the writer gave no reply: {reply.failure}"
        return _unchanged(current, request, method, "failed", reason)
    shown = request.satisfied + request.unsatisfied
    final_set = read_final_set(
        reply.text,
        [c.tagged for c in shown],
        max_items=max(care.max_criteria, len(shown)),
        max_chars=max([care.max_chars, *(len(c.tagged) for c in shown)]),
        finish_reason=reply.finish_reason,
    )
    top = top_rollout(group, reward)
    evidence = Evidence(
        rollouts=(top.rollout.index,) if top is not None else (),
        quotes=quotes_in(final_set.analysis, request.response),
        analysis=final_set.analysis,
    )
    if not final_set.is_accepted:
        return _unchanged(current, request, method, "refused", final_set.reason, evidence)
    if _is_forged(final_set.items, shown, request.response):
        reason = "the set stands in the response: text of a policy is no edit"
        return _unchanged(current, request, method, "refused", reason, evidence)
    rules = EditRules(
        is_adaptive=request.is_adaptive,
        is_chase=request.is_chase,
        max_new=care.max_new,
        max_criteria=care.max_criteria,
        max_chars=care.max_chars,
        reserved_ids=frozenset(c.id for c in (*group.query.gold, *group.query.rubric.criteria)),
    )
    return edited_rubric(current, request, final_set.items, rules, evidence, method)


def _is_forged(items: Sequence[str], shown: Sequence[Criterion], response: str) -> bool:
    """Whether a response that writes sets of its own holds a text that is new in the reply's set.

    A writer that quotes such a response and gives no set itself would else adopt the policy's.
    """
    if not mentions_set(response):
        return False
    known = {normal_text(c.tagged) for c in shown}
    new = (item for item in items if normal_text(item) not in known)
    return any(stands_in(item.partition("] ")[2], response) for item in new)


def _unchanged(
    rubric: Rubric,
    request: ContrastRequest,
    method: str,
    status: EditStatus,
    reason: str,
    evidence: Evidence | None = None,
) -> Evolution:
    edit = RubricEdit(
        method=method,
        branch=main_branch(request),
        status=status,
        reason=reason,
        evidence=evidence or Evidence(),
    )
    return Evolution(rubric=rubric, edits=(edit,))
