"""The table of ``ratchet rubrics health``, most conspicuous criteria first."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.rows import Row
from core.rubric import TAGS
from drivers.rubrics_text import shown, table

_MAX_ROWS = 40
_MAX_TEXT = 90
_HEADS = ("visits", "discr", "corr", "full", "all full", "all zero", "veto", "fail", "age")

_LEGEND = (
    "first what deserves a look, then the least telling. "
    "discr: deviation of the scores in a group; corr: with the reward of the rest of the rubric; "
    "full: full scores; all full, all zero: groups; veto: scores that veto; fail: verdicts that "
    "failed; age: steps/visits"
)


def health_text(result: Mapping[str, Any], *, is_whole: bool) -> list[str]:
    """Return the lines of the table and of what models said."""
    rubrics: Mapping[str, Row] = result["rubrics"]
    rows = [(i, c) for i, rubric in rubrics.items() for c in rubric["criteria"]]
    rows.sort(key=lambda row: _rank(row[1]))
    cut = rows if is_whole else rows[:_MAX_ROWS]
    has_judge = any(c["disagreement"] for _, c in rows)
    heads = (*_HEADS, *(("judge",) if has_judge else ()), "rubric", "criterion")
    lines = [f"{len(rows)} criteria of {len(rubrics)} rubrics over {result['steps']} steps"]
    lines += table(heads, [_cells(i, c, has_judge) for i, c in cut])
    if len(cut) < len(rows):
        lines.append(f"and {len(rows) - len(cut)} criteria more (--all, --rubric ID or --json)")
    lines.append(_LEGEND + ("; judge: scores that differ when asked again" if has_judge else ""))
    return lines + _signs(rows) + _labels(rubrics)


def _rank(row: Row) -> tuple[int, float]:
    """Those with signs first, then the least telling."""
    value = row["discrimination"]
    return -len(row["signs"]), float("inf") if value is None else value


def _cells(rubric_id: str, row: Row, has_judge: bool) -> tuple[str, ...]:
    criterion = row["criterion"]
    numbers = (
        str(row["visits"]),
        _number(row["discrimination"]),
        _number(row["rest_correlation"], is_signed=True),
        *(_percent(row[k]) for k in ("full_rate", "all_full_rate", "all_zero_rate")),
        *(_percent(row[k]) for k in ("veto_rate", "failure_rate")),
        f"{row['age_steps']}/{row['age_visits']}",
    )
    judge = (_percent((row["disagreement"] or {}).get("rate")),) if has_judge else ()
    text = f"{shown(criterion['id'], 24)} {TAGS[criterion['kind']]} "
    text += shown(criterion["text"], _MAX_TEXT)
    return (*numbers, *judge, shown(rubric_id, 40), text)


def _number(value: float | None, *, is_signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f}" if is_signed else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


_MEANINGS = {
    "never_scored": "never scored",
    "always_full": "full in nearly every group",
    "always_zero": "0 in nearly every group",
    "flat": "never tells two rollouts of a group apart",
    "against_the_rest": "goes against the rest of its rubric",
    "fails": "its verdicts often fail",
}


def _signs(rows: Sequence[tuple[str, Row]]) -> list[str]:
    """How many criteria deserve a look, and why."""
    counts = {name: sum(name in row["signs"] for _, row in rows) for name in _MEANINGS}
    return [f"{n} of {len(rows)}: {_MEANINGS[name]}" for name, n in counts.items() if n]


def _labels(rubrics: Mapping[str, Row]) -> list[str]:
    """What a model said about criteria, and what is not known."""
    lines: list[str] = []
    num_clean = num_failed = 0
    for rubric_id, rubric in rubrics.items():
        named = [(c["criterion"]["id"], c["label"]) for c in rubric["criteria"]]
        for name, label in [*named, ("the rubric", rubric["missing_criteria"])]:
            if label is None:
                continue
            where = f"{shown(rubric_id)}, {shown(name)}"
            if label["failure"] is not None:
                num_failed += 1
                lines.append(
                    f"  {where}: not labelled ({label['failure']}: {shown(label['reason'], 160)})"
                )
            elif label["modes"]:
                modes = ", ".join(label["modes"])
                lines.append(f"  {where}: {modes} ({shown(label['reason'], 160)})")
            else:
                num_clean += 1
    if not lines and not num_clean:
        return []
    return [f"labels: {num_clean} without a fault, {num_failed} not labelled", *lines]
