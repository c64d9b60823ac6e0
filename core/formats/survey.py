"""What a set of queries holds, counted: for a person who is about to train by it.

Pure. Lengths are characters. Nothing here changes a query.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median

from core.formats.languages import language_of
from core.formats.pitfalls import wording
from core.formats.rows import Dropped
from core.query import Query
from core.rubric import Criterion

_EXAMPLES = 3
_MOST_COMMON = 8
_SHARED_FRAC = 0.5
"""Share of the queries from which on a criterion is one of all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Some numbers in four."""

    lowest: float
    median: float
    mean: float
    highest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason for which rows gave no query."""

    reason: str
    count: int
    examples: tuple[str, ...]
    """The first of them: where they stand and what is wrong."""
    places: tuple[str, ...]
    """Where all of them stand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedText:
    """A criterion that many queries have."""

    text: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """The prompts of all queries."""

    chars: Spread
    languages: Mapping[str, int]
    """Queries by language, roughly (``core/formats/languages.py``), most common first."""
    with_system: int
    multi_turn: int
    repeated: int
    """Queries whose prompt stands under an earlier id too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Criteria:
    """The criteria of all queries."""

    total: int
    per_query: Spread
    kinds: Mapping[str, int]
    maxima: Mapping[str, int]
    """Criteria by the top of their scale, lowest first."""
    weights: Mapping[str, int]
    """Criteria by weight, the most common ones."""
    lowest_weight: float
    highest_weight: float
    penalties: int
    zero_weights: int
    with_levels: int
    with_rule: int
    of_several_lines: int
    shared: tuple[SharedText, ...]
    """Those that at least half of the queries have."""
    num_sign_traps: int
    """Those with a negative weight whose text says what is wanted."""
    sign_traps: tuple[str, ...]
    """The first of them."""
    equal_rubrics: int
    """Queries with several criteria that all weigh alike."""
    distinct_rubrics: int
    with_caps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What the queries hold."""

    num_queries: int
    dropped: tuple[Reason, ...]
    prompts: Prompts
    criteria: Criteria
    anchors: int
    anchor_models: Mapping[str, int]
    anchor_chars: Spread | None
    tasks: Mapping[str, int]
    without_task: int
    with_gold: int
    counted: Mapping[str, int]
    """Sums of what a format's reader noted by number in ``meta`` (RaR's pitfalls)."""


def survey(queries: Sequence[Query], dropped: Iterable[Dropped] = ()) -> Survey:
    """Return what ``queries`` (at least one) hold, and why rows were left out."""
    assert queries, "a file without queries is an error before"
    anchors = [q.anchor for q in queries if q.anchor is not None]
    return Survey(
        num_queries=len(queries),
        dropped=_reasons(dropped),
        prompts=_prompts(queries),
        criteria=_criteria(queries),
        anchors=len(anchors),
        anchor_models=_most_common(a.model for a in anchors),
        anchor_chars=_spread([len(a.response) for a in anchors]) if anchors else None,
        tasks=_most_common(q.task for q in queries if q.task is not None),
        without_task=sum(q.task is None for q in queries),
        with_gold=sum(bool(q.gold) for q in queries),
        counted=_counted(queries),
    )


def _reasons(dropped: Iterable[Dropped]) -> tuple[Reason, ...]:
    by_reason: dict[str, list[Dropped]] = {}
    for one in dropped:
        by_reason.setdefault(one.reason, []).append(one)
    return tuple(
        Reason(
            reason=reason,
            count=len(rows),
            examples=tuple(f"{_place(d)}: {d.detail}" for d in rows[:_EXAMPLES]),
            places=tuple(map(_place, rows)),
        )
        for reason, rows in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    )


def _place(dropped: Dropped) -> str:
    where = f"line {dropped.line}" if dropped.line is not None else f"row {dropped.row}"
    return f"{dropped.file}, {where}" if dropped.file else where


def _prompts(queries: Sequence[Query]) -> Prompts:
    texts = [q.prompt_text for q in queries]
    return Prompts(
        chars=_spread([len(t) for t in texts]),
        languages=_most_common(map(language_of, texts)),
        with_system=sum(any(m.role == "system" for m in q.messages) for q in queries),
        multi_turn=sum(sum(m.role == "user" for m in q.messages) > 1 for q in queries),
        repeated=len(texts) - len(set(texts)),
    )


def _criteria(queries: Sequence[Query]) -> Criteria:
    criteria = list(chain.from_iterable(q.rubric.criteria for q in queries))
    weights = [c.weight for c in criteria]
    maxima = Counter(c.max for c in criteria)
    traps = [c.text for c in criteria if _is_sign_trap(c)]
    return Criteria(
        total=len(criteria),
        per_query=_spread([len(q.rubric.criteria) for q in queries]),
        kinds=_most_common(c.kind for c in criteria),
        maxima={str(top): maxima[top] for top in sorted(maxima)[:_MOST_COMMON]},
        weights=_most_common(f"{w:g}" for w in weights),
        lowest_weight=min(weights),
        highest_weight=max(weights),
        penalties=sum(c.is_penalty for c in criteria),
        zero_weights=sum(w == 0 for w in weights),
        with_levels=sum(c.levels is not None for c in criteria),
        with_rule=sum(c.rule is not None for c in criteria),
        of_several_lines=sum("\n" in c.text for c in criteria),
        shared=_shared(queries),
        num_sign_traps=len(traps),
        sign_traps=tuple(traps[:_EXAMPLES]),
        equal_rubrics=sum(_weighs_alike(q.rubric.criteria) for q in queries),
        distinct_rubrics=len({q.rubric.digest() for q in queries}),
        with_caps=sum(bool(q.rubric.caps) for q in queries),
    )


def _is_sign_trap(criterion: Criterion) -> bool:
    return criterion.is_penalty and wording(criterion.text) == "positive"


def _weighs_alike(criteria: Sequence[Criterion]) -> bool:
    return len(criteria) > 1 and len({c.weight for c in criteria}) == 1


def _shared(queries: Sequence[Query]) -> tuple[SharedText, ...]:
    counts = Counter(chain.from_iterable({c.text for c in q.rubric.criteria} for q in queries))
    needed = max(2, _SHARED_FRAC * len(queries))
    common = [(t, n) for t, n in counts.most_common(_MOST_COMMON) if n >= needed]
    return tuple(SharedText(text=text, count=count) for text, count in common)


def _counted(queries: Sequence[Query]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for query in queries:
        for key in ("pitfalls_turned", "pitfalls_as_penalty"):
            value = query.meta.get(key)
            if isinstance(value, int):
                counts[key] += value
    return dict(counts)


def _most_common(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common(_MOST_COMMON))


def _spread(numbers: Sequence[int]) -> Spread:
    return Spread(
        lowest=min(numbers),
        median=median(numbers),
        mean=round(fmean(numbers), 2),
        highest=max(numbers),
    )
