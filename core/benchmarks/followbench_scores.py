"""FollowBench's numbers from the outcomes of its tasks: HSR, SSR and CSL.

Rates are percentages; CSL is a number of levels, 0 to 5. Per constraint type and level they are the
authors' (``code/gpt4_based_evaluation.py`` and ``code/rule_based_evaluation.py`` of
github.com/YJiangcm/FollowBench), rule-judged groups counted like the others. An answer that the
judge failed on counts as 0 here and is counted in ``missing``; the authors' code adds -1 to its
sums, and those numbers stand under ``official`` where they differ. Levels and groups without an
outcome are left out of every mean, and such groups are counted.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from core.rows import Row

LEVELS = (1, 2, 3, 4, 5)
PAPER_TYPES = ("content", "situation", "style", "format")
"""The types over which RLCF and CARE average."""
TYPES = (*PAPER_TYPES, "mixed", "example")

Main = Literal[
    "hsr", "ssr", "csl",
    "hsr_all_types", "ssr_all_types", "csl_all_types",
    "hsr_weighted", "ssr_weighted",
]  # fmt: skip
"""``hsr``, ``ssr``, ``csl``: plain means over the levels and the four types of the papers;
``_all_types``: over all types; ``_weighted``: level L counts L/15, over the types of which the
authors' ``aggregator.py`` finds a file (all but ``example``)."""

_OURS, _OFFICIAL = 0.0, -1.0
"""What an answer counts that the judge failed on."""


def hsr_by_type(outcomes: Sequence[Row]) -> dict[str, float | None]:
    """Return the HSR of each constraint type that has outcomes, as a plain mean over its levels.

    In percent, judge failures as 0 (CARE's table 2 shows this of the four types of the papers).
    """
    return {t: _mean(level_rates(rows, "hard")) for t, rows in _by_type(outcomes).items()}


def level_rates(
    outcomes: Sequence[Row], satisfied: Literal["hard", "soft"], failed: float = _OURS
) -> list[float | None]:
    """Return the satisfaction rate of each level, 1 to 5, in percent.

    ``outcomes`` are of one constraint type; ``failed`` is what an answer counts that the judge
    failed on. None for a level without outcomes.
    """
    values: dict[int, list[float]] = defaultdict(list)
    for row in outcomes:
        values[row["level"]].append(_counted(row, satisfied, failed))
    return [100.0 * sum(values[n]) / len(values[n]) if values[n] else None for n in LEVELS]


def consistent_levels(outcomes: Sequence[Row]) -> dict[int, int]:
    """Return by group the number of levels, from 1 on, that are passed before the first failure.

    ``outcomes`` are of one constraint type; groups without an outcome for each level are left out.
    """
    groups: dict[int, dict[int, bool]] = defaultdict(dict)
    for row in outcomes:
        groups[row["example_id"]][row["level"]] = row["hard"] == 1
    return {
        group: next((n - 1 for n in LEVELS if not passed[n]), len(LEVELS))
        for group, passed in groups.items()
        if len(passed) == len(LEVELS)
    }


def followbench_scores(outcomes: Sequence[Row], main: Main = "hsr") -> dict[str, Any]:
    """Return all scores as a JSON object.

    ``main`` has a percentile bootstrap interval over groups, drawn within each type.
    """
    by_type = _by_type(outcomes)
    missing = sum(row["hard"] is None for row in outcomes)
    scores: dict[str, Any] = {
        "main": _main_score(by_type, main),
        "missing": missing,
        "tasks": len(outcomes),
        "types": {t: _type_scores(rows) for t, rows in by_type.items()},
        "averages": _averages(by_type, _OURS),
    }
    if missing:
        scores["official"] = {
            "types": {
                t: _rates(t, rows, _OFFICIAL)
                for t, rows in by_type.items()
                if any(row["hard"] is None for row in rows)
            },
            "averages": _averages(by_type, _OFFICIAL),
        }
    return scores


def official_tables(outcomes: Mapping[str, Sequence[Row]]) -> dict[str, list[list[str | float]]]:
    """Return the rows of the authors' csv files by file name, from outcomes by model.

    The first row is the header. Rates are written as theirs (``83.33%``, judge failures as -1), CSL
    is rounded to one decimal; a cell is empty where a model has no outcome.
    """
    header: list[str | float] = ["model_name", *(f"level {n}" for n in LEVELS)]
    tables: dict[str, list[list[str | float]]] = {}
    for model, rows in outcomes.items():
        for constraint_type, own in _by_type(rows).items():
            for metric, rates in _rates(constraint_type, own, _OFFICIAL).items():
                table = tables.setdefault(_file_name(constraint_type, metric), [header])
                table.append([model, *("" if r is None else f"{r:.2f}%" for r in rates)])
            csl = _mean(list(consistent_levels(own).values()))
            table = tables.setdefault(f"{constraint_type}_csl.csv", [["model_name", "CSL"]])
            table.append([model, "" if csl is None else round(csl, 1)])
    return tables


def _file_name(constraint_type: str, metric: str) -> str:
    if constraint_type == "example":
        return "example_rule_based.csv"
    return f"{constraint_type}_{metric}.csv"


def _by_type(outcomes: Sequence[Row]) -> dict[str, list[Row]]:
    """The outcomes of each type that has any, in the order of ``TYPES``."""
    found: dict[str, list[Row]] = {t: [] for t in TYPES}
    for row in outcomes:
        found[row["type"]].append(row)
    return {t: rows for t, rows in found.items() if rows}


def _counted(row: Row, satisfied: Literal["hard", "soft"], failed: float) -> float:
    value = row[satisfied]
    return failed if value is None else float(value)


def _rates(
    constraint_type: str, rows: Sequence[Row], failed: float
) -> dict[str, list[float | None]]:
    """HSR and SSR by level; the type ``example`` has no SSR, as with the authors."""
    rates = {"hsr": level_rates(rows, "hard", failed)}
    if constraint_type != "example":
        rates["ssr"] = level_rates(rows, "soft", failed)
    return rates


def _type_scores(rows: Sequence[Row]) -> dict[str, Any]:
    groups = {row["example_id"] for row in rows}
    whole = consistent_levels(rows)
    return {
        "groups": len(groups),
        "incomplete_groups": len(groups) - len(whole),
        "missing": sum(row["hard"] is None for row in rows),
        **_rates(rows[0]["type"], rows, _OURS),
        "csl": _mean(list(whole.values())),
    }


def _averages(by_type: Mapping[str, Sequence[Row]], failed: float) -> dict[str, Any]:
    """The means over types: of the papers, of all, and the authors' weighted one."""
    of_papers = {t: rows for t, rows in by_type.items() if t in PAPER_TYPES}
    without_example = {t: rows for t, rows in by_type.items() if t != "example"}
    weighted = {
        metric: _mean([_weighted(rates[metric]) for rates in _all_rates(without_example, failed)])
        for metric in ("hsr", "ssr")
    }
    return {
        "paper_types": _plain(of_papers, failed),
        "all_types": _plain(by_type, failed),
        "weighted": {"types": list(without_example), **weighted},
    }


def _plain(by_type: Mapping[str, Sequence[Row]], failed: float) -> dict[str, Any]:
    """Plain means over levels and types, and by level over types."""
    rates = _all_rates(by_type, failed)
    result: dict[str, Any] = {"types": list(by_type)}
    for metric in ("hsr", "ssr"):
        levels = [r[metric] for r in rates if metric in r]
        result[metric] = _mean([_mean(own) for own in levels])
        result[f"{metric}_by_level"] = [_mean([own[n - 1] for own in levels]) for n in LEVELS]
    csl = [_mean(list(consistent_levels(rows).values())) for rows in by_type.values()]
    return {**result, "csl": _mean(csl)}


def _all_rates(
    by_type: Mapping[str, Sequence[Row]], failed: float
) -> list[dict[str, list[float | None]]]:
    return [_rates(t, rows, failed) for t, rows in by_type.items()]


def _weighted(rates: Sequence[float | None]) -> float | None:
    """The authors' aggregate of five levels (``aggregator.py``); None when one is not known."""
    known = [r for r in rates if r is not None]
    if len(known) < len(LEVELS):
        return None
    return sum(n * r for n, r in zip(LEVELS, known, strict=True)) / sum(LEVELS)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _main_score(by_type: Mapping[str, Sequence[Row]], main: Main) -> dict[str, Any]:
    from core.statistics import bootstrap_interval

    metric, _, average = main.partition("_")
    units = [
        (t, value)
        for t, rows in _types_of_main(by_type, metric, average).items()
        for value in _group_shares(rows, metric, average == "weighted")
    ]
    score: dict[str, Any] = {"name": main, "value": None, "low": None, "high": None}
    num_types = len({t for t, _ in units})
    if units:
        # A type's shares add up to its rate, so this scale makes their plain mean the main number,
        # also in each bootstrap replicate, which draws as many groups of a type as there are.
        values = [value * len(units) / num_types for _, value in units]
        interval = bootstrap_interval(values, strata=[t for t, _ in units])
        score |= {
            "value": sum(values) / len(values),
            "low": interval.low,
            "high": interval.high,
        }
    return {**score, "n": len(units), "unit": "group", "types": sorted({t for t, _ in units})}


def _types_of_main(
    by_type: Mapping[str, Sequence[Row]], metric: str, average: str
) -> dict[str, Sequence[Row]]:
    """The types that the main number is a mean of; a weighted one needs all levels of a type."""
    wanted = PAPER_TYPES if average == "" else TYPES
    is_without_example = average == "weighted" or metric == "ssr"
    chosen = {
        t: rows
        for t, rows in by_type.items()
        if t in wanted and not (t == "example" and is_without_example)
    }
    if average != "weighted":
        return chosen
    return {t: rows for t, rows in chosen.items() if len({r["level"] for r in rows}) == len(LEVELS)}


def _group_shares(rows: Sequence[Row], metric: str, is_weighted: bool) -> list[float]:
    """By group of one type, what it adds to the type's number."""
    if metric == "csl":
        levels = consistent_levels(rows)
        return [value / len(levels) for value in levels.values()]
    satisfied: Literal["hard", "soft"] = "hard" if metric == "hsr" else "soft"
    num_groups = Counter(row["level"] for row in rows)
    shares: dict[int, float] = defaultdict(float)
    for row in rows:
        level = row["level"]
        weight = level / sum(LEVELS) if is_weighted else 1 / len(num_groups)
        rate = 100.0 * _counted(row, satisfied, _OURS) / num_groups[level]
        shares[row["example_id"]] += weight * rate
    return list(shares.values())
