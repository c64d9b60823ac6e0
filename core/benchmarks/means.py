"""Means of judged tasks and the headline number with its interval, as benchmarks report them.

A mean of nothing is None, never 0. The headline holds ``name``, ``value``, ``low`` and ``high``
(95 % percentile bootstrap over tasks) and ``n`` (tasks that count). Where groups weigh equally
whatever their size, tasks are resampled within their group, so that no replicate loses one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import WriterReplyError
from core.evolution.strict_object import json_object


def mean(values: Sequence[float]) -> float | None:
    """Return the plain mean; None of nothing."""
    return sum(values) / len(values) if values else None


def grouped(values: Sequence[float], groups: Sequence[str]) -> dict[str, list[float]]:
    """Return the values by group, groups in the order in which they come first."""
    found: dict[str, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        found.setdefault(group, []).append(value)
    return found


def grouped_means(values: Sequence[float], groups: Sequence[str]) -> dict[str, float]:
    """Return the mean of each group."""
    return {group: sum(own) / len(own) for group, own in grouped(values, groups).items()}


def macro_mean(values: Sequence[float], groups: Sequence[str]) -> float | None:
    """Return the mean of the groups' means; None of nothing."""
    return mean(list(grouped_means(values, groups).values()))


def headline(name: str, tasks: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the mean over all values of all tasks; a task is resampled with all its values."""
    from core.statistics import bootstrap_interval

    values = [value for own in tasks for value in own]
    if not values:
        return _headline(name, None, None, None, 0)
    labels = [number for number, own in enumerate(tasks) for _ in own]
    interval = bootstrap_interval(values, clusters=labels)
    return _headline(name, mean(values), interval.low, interval.high, len(tasks))


def macro_headline(name: str, values: Sequence[float], groups: Sequence[str]) -> dict[str, Any]:
    """Return the mean of the groups' means, one value a task, resampled within groups.

    A value is scaled by N / (K n) (N tasks, K groups, n of them in its own): the plain mean of
    the scaled values is the mean of the K means, also in every replicate.
    """
    from core.statistics import bootstrap_interval

    own = grouped(values, groups)
    if not own:
        return _headline(name, None, None, None, 0)
    scaled = [
        value * len(values) / (len(own) * len(own[group]))
        for value, group in zip(values, groups, strict=True)
    ]
    interval = bootstrap_interval(scaled, strata=groups)
    return _headline(name, macro_mean(values, groups), interval.low, interval.high, len(values))


def _headline(
    name: str, value: float | None, low: float | None, high: float | None, n: int
) -> dict[str, Any]:
    return {"name": name, "value": value, "low": low, "high": high, "n": n}


def latest(outcomes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one outcome a task, the last one: a record that was made again replaces the first."""
    return list({outcome["id"]: outcome for outcome in outcomes}.values())


def reply_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a judge's reply, perhaps in a fence or after reasoning, or None."""
    try:
        return json_object(text, "stop")
    except WriterReplyError:
        return None
