"""HealthBench (openai/simple-evals, healthbench_eval.py): signed points for what a reply does.

One grader call a rubric item, which says whether the item is met; for an item with negative points
"met" means that the bad thing happened. An example's score is the sum of the points of met items
over the sum of the positive points, and may be below 0; only the mean over examples is clipped to
0..1. Scores by tag: of an item's tag (axes) on the items that have it, where one of them has
positive points; of an example's tag (themes) the whole score. The subsets ``hard`` and
``consensus`` are files of their own. An example counts when all its items are graded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.benchmarks.means import headline, latest, mean, reply_object
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill

Subset = Literal["full", "hard", "consensus"]

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_REPLICATES = 1000
_SEED = 0
_SAMPLING = Sampling(temperature=0.5, max_tokens=2048)
"""simple-evals' sampler, for answers and for the grader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthBench:
    """The benchmark; ``template`` is prompts/bench_healthbench.txt."""

    template: str
    subset: Subset = "full"
    attempts: int = 8
    """The authors ask until they can read the reply; here it ends."""

    @property
    def name(self) -> str:
        """Its name."""
        return "healthbench"

    @property
    def answer_sampling(self) -> Sampling:
        """As simple-evals' sampler."""
        return _SAMPLING

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return one task an example of the subset's files; ConfigError when there is none."""
        own = {file: rows for file, rows in files.items() if _subset_of(file) == self.subset}
        tasks: dict[str, Task] = {}
        dropped: dict[str, str] = {}
        for file, rows in sorted(own.items()):
            for number, row in enumerate(rows, start=1):
                problem = _problem(row)
                if not problem and row["prompt_id"] in tasks:
                    problem = f"prompt_id {row['prompt_id']} stands there before"
                if problem:
                    dropped[f"{file}:{number}"] = problem
                else:
                    tasks[row["prompt_id"]] = _task(row)
        if not tasks:
            raise ConfigError(
                f"got no HealthBench example of the subset {self.subset!r} in {sorted(files)}, "
                "wanted rows with prompt_id, prompt, rubrics and example_tags in a file whose name "
                "has 'hard' or 'consensus' in it for these subsets, and neither for 'full'"
            )
        return Loaded(tasks=tuple(tasks.values()), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the call of each rubric item that is not graded yet."""
        calls: list[JudgeCall] = []
        for number, item in enumerate(task.row["rubrics"], start=1):
            key = _key(number)
            is_readable = _last(replies, key) is not None
            if to_ask_again(replies, key, is_readable, self.attempts):
                calls.append(JudgeCall(key=key, call=self._call(task, answer, item)))
        return calls

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return which items are met (None: no reply said so) and the example's score."""
        items: list[Row] = []
        for number, item in enumerate(task.row["rubrics"], start=1):
            is_met, explanation = _last(replies, _key(number)) or (None, "")
            kept = {"points": item["points"], "tags": item["tags"]}
            items.append({**kept, "met": is_met, "explanation": explanation})
        is_graded = all(item["met"] is not None for item in items)
        return {
            "id": task.id,
            "example_tags": task.row["example_tags"],
            "score": points_share(items) if is_graded else None,
            "items": items,
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return the clipped mean with our interval and the authors' bootstrap deviation, by tag
        too."""
        rows = latest(outcomes)
        graded = [row for row in rows if row["score"] is not None]
        values = [row["score"] for row in graded]
        main = headline("overall_score", [[value] for value in values])
        clipped = {key: _clipped(main[key]) for key in ("value", "low", "high")}
        tags = {tag: clipped_stats(own) for tag, own in sorted(_by_tag(graded).items())}
        return {
            "main": {**main, **clipped},
            "overall": clipped_stats(values),
            "axes": _of_kind(tags, "axis:"),
            "themes": _of_kind(tags, "theme:"),
            "other_tags": {t: s for t, s in tags.items() if not t.startswith(("axis:", "theme:"))},
            "subset": self.subset,
            "missing": len(rows) - len(graded),
            "missing_items": sum(item["met"] is None for row in rows for item in row["items"]),
        }

    def _call(self, task: Task, answer: str, item: Row) -> ModelCall:
        turns = "\n\n".join(f"{m.role}: {m.content}" for m in task.messages)
        values = {
            "conversation": fenced(turns, "conversation"),
            "response": fenced(f"assistant: {answer}", "response"),
            "item": fenced(f"[{item['points']}] {item['criterion']}", "item"),
        }
        return user_call(fill(self.template, values), sampling=_SAMPLING)


def points_share(items: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the points of met items over all positive points; None without positive points.

    ``items`` have ``points`` and ``met``; simple-evals, ``calculate_score``.
    """
    possible = sum(item["points"] for item in items if item["points"] > 0)
    if possible == 0:
        return None
    return sum(item["points"] for item in items if item["met"]) / possible


def clipped_stats(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean clipped to 0..1, the deviation of 1,000 bootstrapped clipped means, and n.

    simple-evals, ``_compute_clipped_stats``; theirs draws without a seed, this one has one.
    """
    import numpy as np

    value = _clipped(mean(values))
    if value is None:
        return {"value": None, "bootstrap_std": None, "n": 0}
    generator = np.random.default_rng(_SEED)
    numbers = np.asarray(values, dtype=float)
    means = [
        float(numbers[generator.integers(0, len(numbers), len(numbers))].mean())
        for _ in range(_REPLICATES)
    ]
    deviation = float(np.std(np.clip(means, 0.0, 1.0)))
    return {"value": value, "bootstrap_std": deviation, "n": len(numbers)}


def read_met(reply: str) -> tuple[bool, str] | None:
    """Return whether the item is met, and why, of a reply whose ``criteria_met`` is a boolean."""
    value = reply_object(reply)
    if value is None or not isinstance(value.get("criteria_met"), bool):
        return None
    return value["criteria_met"], str(value.get("explanation") or "")


def _last(replies: Replies, key: str) -> tuple[bool, str] | None:
    made = replies.get(key, ())
    return read_met(made[-1]) if made else None


def _key(number: int) -> str:
    return f"item {number}"


def _clipped(value: float | None) -> float | None:
    return None if value is None else min(max(value, 0.0), 1.0)


def _by_tag(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the examples' scores by tag, of items and of examples."""
    found: dict[str, list[float]] = {}
    for row in rows:
        whole: float = row["score"]
        own = dict.fromkeys(cast(list[str], row["example_tags"]), whole)
        for tag in {tag for item in row["items"] for tag in item["tags"]}:
            share = points_share([item for item in row["items"] if tag in item["tags"]])
            if share is not None:
                own[tag] = share
        for tag, score in own.items():
            found.setdefault(tag, []).append(score)
    return found


def _of_kind(tags: Mapping[str, Row], prefix: str) -> dict[str, Row]:
    return {t.removeprefix(prefix): s for t, s in tags.items() if t.startswith(prefix)}


# ------------------------------------------------------------------ rows
def _subset_of(file: str) -> Subset:
    name = file.rsplit("/", 1)[-1].lower()
    if "consensus" in name:
        return "consensus"
    return "hard" if "hard" in name else "full"


def _task(row: Row) -> Task:
    rubrics = [
        {"criterion": r["criterion"], "points": r["points"], "tags": list(dict.fromkeys(r["tags"]))}
        for r in row["rubrics"]
    ]
    messages = [Message(role=m["role"], content=m["content"]) for m in row["prompt"]]
    own = {"rubrics": rubrics, "example_tags": list(dict.fromkeys(row.get("example_tags") or []))}
    return Task(id=row["prompt_id"], messages=tuple(messages), row=own)


def _problem(row: Row) -> str:
    if not isinstance(row.get("prompt_id"), str) or not row["prompt_id"]:
        return "no prompt_id"
    prompt, rubrics = row.get("prompt"), row.get("rubrics")
    if not isinstance(prompt, list) or not prompt:
        return "prompt is no list of messages"
    if not all(_is_message(m) for m in cast(list[Any], prompt)):
        return "a message of the prompt has no role or no text"
    if not isinstance(rubrics, list) or not rubrics:
        return "rubrics is no list of items"
    if not all(_is_item(item) for item in cast(list[Any], rubrics)):
        return "a rubric item has no criterion, points that are no number, or no tags"
    if not _is_tags(row.get("example_tags") or []):
        return "example_tags are no texts"
    if all(item["points"] <= 0 for item in cast(list[Row], rubrics)):
        return "no rubric item has positive points"
    return ""


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    message = cast(Row, value)
    return message.get("role") in _ROLES and isinstance(message.get("content"), str)


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    item = cast(Row, value)
    points = item.get("points")
    if isinstance(points, bool) or not isinstance(points, int | float) or not isfinite(points):
        return False
    return isinstance(item.get("criterion"), str) and _is_tags(item.get("tags"))


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(t, str) for t in cast(list[Any], value))
