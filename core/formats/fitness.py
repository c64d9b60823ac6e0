"""What a set of queries can be trained by, and what a person should look at before.

Pure: the queries' survey in, sentences out. A method that needs an anchor or a shared rubric a task
says how many queries have one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.formats.survey import Survey
from core.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitness:
    """Whether a method can be run on the queries."""

    method: str
    is_served: bool
    why: str


def fitness(queries: Sequence[Query], found: Survey) -> tuple[Fitness, ...]:
    """Return what each method (and each scope) of ``evolution`` would make of the queries."""
    anchored = _by_anchor(found)
    shared = _by_task(queries, found)
    targets = sum(
        any(not c.is_resist and not c.is_penalty for c in q.rubric.criteria) for q in queries
    )
    replaced = _Answer(targets > 0, f"{targets} queries have a criterion that can be replaced")
    any_rubric = _Answer(True, "every query has a rubric")
    answers = {
        "static": any_rubric,
        "static (scope=task)": shared,
        "care": anchored,
        "rare": replaced,
        "rare (scope=task)": shared,
        "rler": any_rubric,
        "online_rubrics": any_rubric,
        "mpo": shared,
        "ratchet": anchored,
    }
    return tuple(
        Fitness(method=name, is_served=answer.is_served, why=answer.why)
        for name, answer in answers.items()
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    is_served: bool
    why: str


def _by_anchor(found: Survey) -> _Answer:
    have, total = found.anchors, found.num_queries
    if have == total:
        return _Answer(True, "every query has an anchor")
    if have:
        return _Answer(
            True,
            f"{have} of {total} queries have an anchor: with data.missing_anchor=skip, or all with "
            "evolution.care.anchor=false",
        )
    return _Answer(False, "no query has an anchor: build them, or set evolution.care.anchor=false")


def _by_task(queries: Sequence[Query], found: Survey) -> _Answer:
    if found.without_task == found.num_queries:
        return _Answer(False, "no query names a task: give data.task_rubrics with the one task")
    if found.without_task:
        return _Answer(
            False,
            f"{found.without_task} of {found.num_queries} queries name no task, wanted one each",
        )
    rubrics: dict[str, set[str]] = {}
    for query in queries:
        rubrics.setdefault(str(query.task), set()).add(query.rubric.digest())
    several = sorted(task for task, digests in rubrics.items() if len(digests) > 1)
    if several:
        return _Answer(
            False,
            f"the queries of {several[0]!r:.40} carry several rubrics: give data.task_rubrics",
        )
    return _Answer(True, f"{len(rubrics)} tasks with one rubric each")


def warnings(found: Survey) -> tuple[str, ...]:
    """Return what to look at before training, most weighty first; nothing for a plain file."""
    return tuple(
        text
        for text in (
            _sign_traps(found),
            _pitfalls(found),
            _universal(found),
            _anchors(found),
            _alike(found),
            _repeats(found),
        )
        if text
    )


def _sign_traps(found: Survey) -> str:
    traps = found.criteria.sign_traps
    if not traps:
        return ""
    return (
        f"sign trap: {found.criteria.num_sign_traps} criteria have a negative weight and a text "
        f"that says what is wanted (first: {traps[0][:80]!r}): a response that meets it loses "
        "points; turn the weight or the text"
    )


def _pitfalls(found: Survey) -> str:
    turned = found.counted.get("pitfalls_turned", 0)
    kept = found.counted.get("pitfalls_as_penalty", 0)
    if not turned + kept:
        return ""
    return (
        f"pitfalls: {turned} say what is wanted and count with the size of their weight; {kept} "
        "say the mistake (or an omission) and stay penalties"
    )


def _universal(found: Survey) -> str:
    if found.num_queries < 2 or not found.criteria.shared:
        return ""
    first = found.criteria.shared[0]
    lines = " of several lines" if "\n" in first.text else ""
    return (
        f"universal item: {first.count} of {found.num_queries} queries have the criterion{lines} "
        f"{first.text[:60]!r}: evolution.universal=true would add another like it"
    )


def _anchors(found: Survey) -> str:
    missing = found.num_queries - found.anchors
    if not missing:
        return ""
    return (
        f"anchors: {missing} of {found.num_queries} queries have none (care, ratchet, sft_anchor)"
    )


def _alike(found: Survey) -> str:
    criteria = found.criteria
    if found.num_queries > 1 and criteria.distinct_rubrics == 1:
        return "rubrics: all queries carry the same rubric, as methods with a rubric a task want it"
    if criteria.equal_rubrics == found.num_queries and criteria.highest_weight != 1:
        return (
            "weights: within every rubric all criteria weigh alike, so reward.weights=checklist "
            "changes nothing"
        )
    return ""


def _repeats(found: Survey) -> str:
    repeated = found.prompts.repeated
    if not repeated:
        return ""
    return f"prompts: {repeated} queries repeat the prompt of an earlier one under another rubric"
