"""Small records for the tests of rewards, advantages and evolution."""

from collections.abc import Mapping, Sequence

from core.query import Anchor, Message, Query
from core.records import Completion, Draw, GradedGroup, GradedRollout, Rollout, Verdict
from core.rubric import Criterion, CriterionKind, Rubric


def llm(criterion_id: str, text: str = "", *, max: int = 1, weight: float = 1.0) -> Criterion:
    """An [llm] criterion."""
    return Criterion(id=criterion_id, text=text or f"Check {criterion_id}", max=max, weight=weight)


def resist(criterion_id: str, text: str = "", *, weight: float = 1.0) -> Criterion:
    """A [Resist] criterion."""
    kind: CriterionKind = "resist"
    return Criterion(
        id=criterion_id, text=text or f"Limit {criterion_id}", kind=kind, weight=weight
    )


def verdict(criterion_id: str, score: float | None, max: int = 1) -> Verdict:
    """A scored verdict, or a failed one for None."""
    failure = "missing" if score is None else None
    return Verdict(criterion_id=criterion_id, score=score, max=max, failure=failure)


def rollout(
    index: int = 0,
    response: str = "An answer.",
    *,
    first: int = 0,
    last: int | None = None,
    num_tokens: int = 3,
    is_cut: bool = False,
) -> Rollout:
    """A rollout of query ``q1``."""
    return Rollout(
        query_id="q1",
        visit=0,
        index=index,
        response=response,
        finish_reason="length" if is_cut else "stop",
        prompt_token_ids=(1, 2),
        token_ids=(5,) * num_tokens,
        rollout_logprobs=(-0.5,) * num_tokens,
        policy_version_first=first,
        policy_version_last=first if last is None else last,
    )


def query(
    rubric: Rubric, *, anchor: str | None = "A reference.", gold: Sequence[Criterion] = ()
) -> Query:
    """Query ``q1``."""
    return Query(
        id="q1",
        messages=(Message(role="user", content="Write about apples."),),
        rubric=rubric,
        anchor=Anchor(response=anchor) if anchor is not None else None,
        gold=tuple(gold),
    )


def graded_group(
    rubric: Rubric,
    scores: Sequence[Mapping[str, float | None]],
    *,
    responses: Sequence[str] | None = None,
    anchor: str | None = "A reference.",
    gold: Sequence[Criterion] = (),
) -> GradedGroup:
    """One group; ``scores`` has a mapping of criterion id to score for each rollout."""
    texts = responses or [f"Answer {i}." for i in range(len(scores))]
    return GradedGroup(
        draw=Draw(query_id="q1", step=1, position=0, visit=0),
        query=query(rubric, anchor=anchor, gold=gold),
        rubric=rubric,
        rollouts=tuple(
            GradedRollout(
                rollout=rollout(i, text),
                verdicts={c: verdict(c, s, rubric.criterion(c).max) for c, s in row.items()},
            )
            for i, (text, row) in enumerate(zip(texts, scores, strict=True))
        ),
        judge="test-judge",
    )


def completion(text: str, finish_reason: str = "stop") -> Completion:
    """A writer's reply."""
    return Completion(text=text, finish_reason=finish_reason, model="test-writer")
