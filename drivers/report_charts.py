"""The picture of a run: reward and gold by step, and the life of one rubric's criteria.

Drawn without a display; matplotlib is imported when something is drawn. Texts in the picture come
from writers and data files: they are never read as markup (no math mode), and characters that
cannot be drawn are replaced.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.rubric_log import RubricVersion
from core.rows import puts_in_veto
from core.rubric import Criterion
from drivers.report_data import ReportData, rubric_name
from drivers.summary import StepNumbers

COLORS = {"reward": "#1f6fb4", "gold": "#d08a00", "llm": "#8fb7d8", "resist": "#c0392b"}
MAX_LABEL_CHARS = 70
MAX_LIVES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CriterionLife:
    """One text of one criterion, from the step that put it in to the step that took it out."""

    criterion: Criterion
    first_step: int
    last_step: int


def criterion_lives(history: Sequence[RubricVersion], last_step: int) -> list[CriterionLife]:
    """Return every text that ever stood in a rubric with its time, oldest first."""
    lives: list[CriterionLife] = []
    open_lives: dict[tuple[str, str, str], tuple[Criterion, int]] = {}
    for version in history:
        now = {(c.id, c.kind, c.text): c for c in version.rubric.criteria}
        for key in [k for k in open_lives if k not in now]:
            criterion, first = open_lives.pop(key)
            lives.append(
                CriterionLife(criterion=criterion, first_step=first, last_step=version.step)
            )
        for key, criterion in now.items():
            open_lives.setdefault(key, (criterion, version.step))
    lives += [
        CriterionLife(criterion=criterion, first_step=first, last_step=max(last_step, first))
        for criterion, first in open_lives.values()
    ]
    return sorted(lives, key=lambda life: (life.first_step, life.last_step))


def shown_lives(lives: Sequence[CriterionLife]) -> list[CriterionLife]:
    """Return at most ``MAX_LIVES``: [Resist] criteria, the initial ones, then the longest-lived."""
    first = min((life.first_step for life in lives), default=0)
    ranked = sorted(
        lives,
        key=lambda life: (
            not life.criterion.is_resist,
            life.first_step != first,
            life.first_step - life.last_step,
        ),
    )
    kept = {id(life) for life in ranked[:MAX_LIVES]}
    return [life for life in lives if id(life) in kept]


def draw(data: ReportData, *, image_format: str) -> bytes:
    """Return the picture as ``svg`` or ``png``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    last_step = data.steps[-1].step if data.steps else 0
    all_lives = criterion_lives(data.history, last_step)
    lives = shown_lives(all_lives)
    height = 3.4 + (0.9 + 0.32 * len(lives) if lives else 0.0)
    figure = Figure(figsize=(9.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    if lives:
        ratios = [3.4, 0.9 + 0.32 * len(lives)]
        curves, history = figure.subplots(2, 1, height_ratios=ratios)
        what = rubric_name(data.history[0].query_id)
        if len(lives) < len(all_lives):
            what += f" ({len(lives)} of its {len(all_lives)} criteria)"
        _draw_lives(history, lives, what, last_step)
    else:
        curves = figure.subplots()
    _draw_curves(curves, data)
    out = io.BytesIO()
    figure.savefig(out, format=image_format, dpi=150)
    return out.getvalue()


def _draw_curves(axes: Any, data: ReportData) -> None:
    for name in ("reward", "gold"):
        label = "reward (trained on)" if name == "reward" else "gold (never trained on)"
        points = _points(data.steps, name)
        if points:
            axes.plot(*zip(*points, strict=True), color=COLORS[name], label=label, linewidth=1.8)
        held_out = _points(data.evals, name)
        if held_out:
            axes.plot(
                *zip(*held_out, strict=True),
                "o",
                color=COLORS[name],
                markerfacecolor="white",
                label=f"{name}, held out",
            )
    for number, step in enumerate(sorted({e["step"] for e in data.events if puts_in_veto(e)})):
        label = "[Resist] criterion put in" if number == 0 else None
        axes.axvline(step, color=COLORS["resist"], alpha=0.35, linewidth=1.0, label=label)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("step")
    axes.set_title(_plain(f"{data.config.name}: {data.config.evolution.method}"), parse_math=False)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8, loc="best")


def _draw_lives(axes: Any, lives: Sequence[CriterionLife], what: str, last_step: int) -> None:
    for place, life in enumerate(lives):
        width = max(life.last_step - life.first_step, 0.4)
        color = COLORS[life.criterion.kind]
        axes.barh(place, width, left=life.first_step, color=color, height=0.8, alpha=0.5)
        text = _plain(life.criterion.tagged)
        if len(text) > MAX_LABEL_CHARS:
            text = text[: MAX_LABEL_CHARS - 1] + "…"
        axes.text(0.1, place, text, va="center", fontsize=7.5, parse_math=False)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, max(last_step, 1))
    axes.set_xlabel("step")
    title = _plain(f"the rubric of {what}: when each criterion was in force")
    axes.set_title(title, fontsize=9, parse_math=False)


def _points(steps: Sequence[StepNumbers], name: str) -> list[tuple[int, float]]:
    return [(s.step, v) for s in steps if (v := getattr(s, name)) is not None]


def _plain(text: str) -> str:
    """One line of characters that a font may have."""
    return "".join(c if c.isprintable() else " " for c in text)
