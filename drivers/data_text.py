"""How ``ratchet data`` writes what it found on a terminal.

Prompts and criteria are others' texts: ``shown`` keeps control characters off the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence

from core.formats.base import Format
from core.formats.fitness import Fitness
from core.formats.survey import Criteria, Reason, Spread, Survey
from core.rubric import Rubric
from drivers.data_files import LoadedQueries
from drivers.rubrics_text import criterion_text, shown, table

_TEXT = 120
"""Characters of an example."""
_PLACES = 12
"""Places of left out rows that are named beside the examples."""


def check_text(
    loaded: LoadedQueries, found: Survey, methods: Iterable[Fitness], notes: Sequence[str]
) -> list[str]:
    """Return the lines of ``ratchet data check``."""
    return [
        *_head(loaded, found),
        *_dropped(found.dropped),
        "",
        *_prompts(found),
        *_criteria(found.criteria),
        *_beside(found),
        "",
        "methods",
        *(f"  {line}" for line in _methods(methods)),
        *_notes(notes),
    ]


def _head(loaded: LoadedQueries, found: Survey, *, has_rubrics: bool = True) -> list[str]:
    several = len(loaded.formats) > 1
    lines = [shown(loaded.path)]
    for name, count in loaded.formats.items():
        amount = f"{count} rows, " if several else ""
        lines.append(f"  format      {name} ({amount}{shown(loaded.why[name])})")
    lines += [_counting(loaded)] if has_rubrics else []
    num_dropped = sum(reason.count for reason in found.dropped)
    lines.append(
        f"  rows        {loaded.num_rows}: {found.num_queries} queries, {num_dropped} left out"
    )
    if num_dropped:
        lines.append(
            "              (a run stops at these rows; `ratchet data convert` leaves them out)"
        )
    return lines


def _counting(loaded: LoadedQueries) -> str:
    if loaded.normaliser is None:
        return "  normaliser  none: the formats count differently, so a run refuses the file"
    settings = " ".join(f"reward.{k}={v}" for k, v in (loaded.reward or {}).items())
    return f"  normaliser  {loaded.normaliser} (as its source counts: {settings})"


def _dropped(reasons: Sequence[Reason]) -> list[str]:
    lines: list[str] = []
    for one in reasons:
        lines.append(f"  left out    {one.count}: {one.reason}")
        lines += [f"                {shown(example, _TEXT)}" for example in one.examples]
        others = one.places[len(one.examples) :]
        if others:
            named = ", ".join(others[:_PLACES])
            more = f" and {len(others) - _PLACES} more (--json has all)"
            lines.append(f"                {shown(named)}{more if len(others) > _PLACES else ''}")
    return lines


def _prompts(found: Survey) -> list[str]:
    prompts = found.prompts
    return [
        "prompts",
        f"  characters  {_spread(prompts.chars)}",
        f"  languages   {_counts(prompts.languages)} (roughly)",
        f"  turns       {prompts.with_system} with a system message, {prompts.multi_turn} with "
        "several user turns",
        f"  repeated    {prompts.repeated}",
    ]


def _criteria(criteria: Criteria) -> list[str]:
    weights = f"{criteria.lowest_weight:g} to {criteria.highest_weight:g}"
    lines = [
        "criteria",
        f"  number      {criteria.total}; a query {_spread(criteria.per_query)}",
        f"  kinds       {_counts(criteria.kinds)}; {criteria.with_rule} decided by code",
        f"  scales      {_counts({f'0..{top}': n for top, n in criteria.maxima.items()})}; "
        f"{criteria.with_levels} with a text for each level",
        f"  weights     {weights}: {_counts(criteria.weights)}",
        f"  signs       {criteria.penalties} negative (penalties), {criteria.zero_weights} zero",
        f"  rubrics     {criteria.distinct_rubrics} different, {criteria.equal_rubrics} of equal "
        f"weights, {criteria.with_caps} with caps",
    ]
    for one in criteria.shared:
        lines.append(f"  shared      by {one.count} queries: {shown(one.text, _TEXT)}")
    return lines


def _beside(found: Survey) -> list[str]:
    tasks = f"{_counts(found.tasks)}; {found.without_task} queries without"
    lines = [
        "beside",
        f"  anchors     {found.anchors} of {found.num_queries}: {_counts(found.anchor_models)}",
    ]
    if found.anchor_chars is not None:
        lines.append(f"              characters {_spread(found.anchor_chars)}")
    return [*lines, f"  tasks       {tasks}", f"  gold        {found.with_gold} queries"]


def _methods(methods: Iterable[Fitness]) -> list[str]:
    rows = [(m.method, "yes" if m.is_served else "no", shown(m.why)) for m in methods]
    return table(("method", "served", "why"), rows)


def _notes(notes: Sequence[str]) -> list[str]:
    return ["", *(f"look at: {shown(note)}" for note in notes)] if notes else []


def _spread(spread: Spread) -> str:
    return (
        f"{spread.lowest:g} to {spread.highest:g}, median {spread.median:g}, mean {spread.mean:g}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{shown(name, 40)} {count}" for name, count in counts.items()) or "none"


def prompts_text(loaded: LoadedQueries, found: Survey) -> list[str]:
    """Return the lines on a file of prompts that have no rubric yet."""
    return [
        *_head(loaded, found, has_rubrics=False),
        *_dropped(found.dropped),
        "",
        *_prompts(found),
        *_beside(found),
        "",
        "no row has a rubric: write them (`ratchet rubrics build`), or give those of their tasks "
        "(data.task_rubrics)",
    ]


def rubric_text(path: str, rubric: Rubric) -> list[str]:
    """Return the lines of a rubric file: it holds no queries, but what a task shares."""
    return [
        shown(path),
        f"  a rubric of {len(rubric.criteria)} criteria, {rubric.total_max} points in all and "
        f"{len(rubric.caps)} caps, no queries: give it as data.task_rubrics.TASK",
        *(f"  {shown(criterion_text(c), _TEXT)}" for c in rubric.criteria),
    ]


def formats_text(formats: Mapping[str, Format]) -> list[str]:
    """Return the lines of ``ratchet data formats``."""
    rows = [(name, known.normaliser, known.source) for name, known in formats.items()]
    return table(("format", "normaliser", "what it is"), rows)
