"""RARE at sample level: replace what the whole group satisfies (RARE section 3.2, appendix A.2.1).

A criterion is saturated when every rollout of the group is graded and has full score on it.
min(B, saturated) of them, chosen by the writer, are replaced; id, maximum and weight stay, so the
denominator does too. The replacements are rescored on the same rollouts in one call, and the group
is rewarded at once under the new rubric: new scores for the replaced, old ones for the rest. It is
all or nothing: any failure raises and leaves the caller with the old group.

A [Resist] criterion is meant to be satisfied by all; it is never saturated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.config_evolution import RareConfig
from core.errors import WriterReplyError
from core.evolution.quotes import quotes_in
from core.evolution.rare_reply import Replacement, read_updates
from core.grading.visible import visible_response
from core.records import (
    Completion,
    Evidence,
    Evolution,
    GradedGroup,
    GradedRollout,
    RescoreReply,
    RescoreRequest,
    RubricEdit,
    Verdict,
)
from core.rubric import Rubric
from core.writer_requests import ReplacementRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacements:
    """A writer's checked replacements, in the order of the saturated ids."""

    items: tuple[Replacement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """The group under the next rubric version, and the edits that led there."""

    group: GradedGroup
    evolution: Evolution


def saturated_ids(rubric: Rubric, rollouts: Sequence[GradedRollout]) -> tuple[str, ...]:
    """Return the ids with full score on every rollout (equation 1).

    Empty when any rollout has a criterion without a score: nothing certain is known then. [Resist]
    criteria and penalties (negative weights) are never among them.
    """
    ids = rubric.ids
    is_whole = all(
        (verdict := r.verdicts.get(i)) is not None and verdict.score is not None
        for r in rollouts
        for i in ids
    )
    if not rollouts or not is_whole:
        return ()
    return tuple(
        c.id
        for c in rubric.criteria
        if not c.is_resist and not c.is_penalty and all(r.verdicts[c.id].is_full for r in rollouts)
    )


def replacement_request(group: GradedGroup, rare: RareConfig) -> ReplacementRequest | None:
    """Return what the writer is asked; None when nothing is saturated."""
    saturated = saturated_ids(group.rubric, group.rollouts)
    if not saturated:
        return None
    return ReplacementRequest(
        query_id=group.query.id,
        prompt=group.query.prompt_text,
        rubric=group.rubric,
        saturated_ids=saturated,
        num_updates=min(rare.budget, len(saturated)),
        polarity=rare.polarity,
        responses=_responses(group),
        verdicts=tuple(r.verdicts for r in group.rollouts),
    )


def read_replacements(reply: Completion, request: ReplacementRequest) -> Replacements:
    """Return the writer's replacements, all checked.

    Raises WriterReplyError whose text tells the writer what to do better.
    """
    if reply.failure is not None:
        raise WriterReplyError(f"the writer gave no reply: {reply.failure}")
    return Replacements(items=read_updates(reply.text, reply.finish_reason, request))


def rescore_request(group: GradedGroup, replacements: Replacements) -> RescoreRequest:
    """Return the one joint call that grades all replacements on all rollouts."""
    return RescoreRequest(
        query_id=group.query.id,
        prompt=group.query.prompt_text,
        responses=_responses(group),
        criteria=tuple(r.criterion for r in replacements.items),
    )


def apply_replacements(
    group: GradedGroup,
    replacements: Replacements,
    reply: RescoreReply,
    *,
    method: str = "rare",
) -> Replaced:
    """Return the group with mixed scores under the next rubric version (equations 2 and 3).

    Raises WriterReplyError when the rescoring has not a score for each replacement and rollout.
    """
    fresh = _checked_scores(group, replacements, reply)
    new = {r.criterion.id: r.criterion for r in replacements.items}
    rubric = group.rubric.with_criteria(new.get(c.id, c) for c in group.rubric.criteria)
    rollouts = tuple(
        replace(member, verdicts={i: scores.get(i, member.verdicts[i]) for i in rubric.ids})
        for member, scores in zip(group.rollouts, fresh, strict=True)
    )
    edits = tuple(_edit(group, r, method) for r in replacements.items)
    return Replaced(
        group=replace(group, rubric=rubric, rollouts=rollouts),
        evolution=Evolution(rubric=rubric, edits=edits),
    )


def _responses(group: GradedGroup) -> tuple[str, ...]:
    return tuple(visible_response(r.rollout.response) for r in group.rollouts)


def _checked_scores(
    group: GradedGroup, replacements: Replacements, reply: RescoreReply
) -> list[Mapping[str, Verdict]]:
    if len(reply.verdicts) != len(group.rollouts):
        raise WriterReplyError(
            f"got rescored verdicts on {len(reply.verdicts)} rollouts, wanted {len(group.rollouts)}"
        )
    rows: list[Mapping[str, Verdict]] = []
    for member, verdicts in zip(group.rollouts, reply.verdicts, strict=True):
        row = {v.criterion_id: v for v in verdicts}
        for r in replacements.items:
            verdict = row.get(r.criterion.id)
            where = f"replacement {r.criterion.id!r} on rollout {member.rollout.index}"
            if verdict is None or verdict.score is None:
                failure = "missing" if verdict is None else verdict.failure
                raise WriterReplyError(f"no score for {where} ({failure}), wanted one")
            if verdict.max != r.criterion.max:
                raise WriterReplyError(
                    f"got a scale of 0..{verdict.max} for {where}, wanted 0..{r.criterion.max}"
                )
        rows.append({r.criterion.id: row[r.criterion.id] for r in replacements.items})
    return rows


def _edit(group: GradedGroup, replacement: Replacement, method: str) -> RubricEdit:
    """The accepted edit; its quotes stand in the rollouts that the diagnosis names."""
    named = sorted({*replacement.weaker, *replacement.best})
    members = [group.rollouts[position] for position in named] or list(group.rollouts)
    quotes = dict.fromkeys(
        quote
        for member in members
        for quote in quotes_in(replacement.difference, member.rollout.response)
    )
    return RubricEdit(
        method=method,
        branch="replacement",
        status="accepted",
        reason=replacement.polarity,
        old=group.rubric.criterion(replacement.criterion.id),
        new=replacement.criterion,
        evidence=Evidence(
            rollouts=tuple(m.rollout.index for m in members),
            quotes=tuple(quotes),
            analysis=f"{replacement.difference}\n{replacement.learning_direction}",
        ),
    )
