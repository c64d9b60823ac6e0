"""Small runs for the analyses, written out so that a reader can follow the arithmetic.

A group is given by its columns: for each criterion id the scores of its rollouts.
"""

from collections.abc import Mapping, Sequence

from core.analysis.evidence import Group, Pair, ReplacementEvent, RunEvidence
from core.rubric import Criterion, Rubric

Columns = Mapping[str, Sequence[float | None]]


def criterion(
    criterion_id: str, text: str = "", top: int = 1, *, is_resist: bool = False
) -> Criterion:
    kind = "resist" if is_resist else "llm"
    return Criterion(id=criterion_id, text=text or criterion_id, max=top, kind=kind)


def group(
    criteria: Sequence[Criterion],
    columns: Columns,
    *,
    query_id: str = "q1",
    visit: int = 0,
    step: int = 1,
    run: str = "r",
) -> Group:
    (size,) = {len(column) for column in columns.values()}
    return Group(
        run=run,
        step=step,
        query_id=query_id,
        visit=visit,
        rubric_id=query_id,
        rubric=Rubric(version=visit, criteria=tuple(criteria)),
        scores=tuple({i: column[g] for i, column in columns.items()} for g in range(size)),
        type="films",
        cluster=query_id,
    )


def event(
    pairs: Sequence[tuple[Criterion, str]],
    columns: Columns,
    *,
    others: Sequence[Criterion] = (),
    query_id: str = "q1",
    visit: int = 0,
    step: int = 1,
) -> ReplacementEvent:
    """An event with new criteria and their directions; each replaced one of the same id."""
    new = [n for n, _ in pairs]
    found = group([*new, *others], columns, query_id=query_id, visit=visit, step=step)
    return ReplacementEvent(
        group=found,
        pairs=tuple(
            Pair(old=n.model_copy(update={"text": f"old {n.id}"}), new=n, polarity=direction)
            for n, direction in pairs
        ),
    )


def run_of(
    events: Sequence[ReplacementEvent] = (),
    groups: Sequence[Group] = (),
    *,
    initial: Mapping[str, Rubric] | None = None,
    metrics: Sequence[Mapping[str, object]] = (),
    name: str = "r",
    method: str = "rare",
    polarity: str = "negative",
    budget: int = 3,
) -> RunEvidence:
    """A run with these events; their groups come before ``groups``."""
    both = sorted([*(e.group for e in events), *groups], key=lambda g: g.step)
    return RunEvidence(
        name=name,
        method=method,
        groups=tuple(both),
        events=tuple(events),
        initial=initial or {},
        metrics=tuple(dict(row) for row in metrics),
        polarity=polarity,
        budget=budget,
    )
