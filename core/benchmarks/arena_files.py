"""Arena-Hard's files: questions, the baselines' answers, and published judgments.

A row is known by its columns, whatever its file is called: a question has ``uid``, ``category`` and
``prompt``; an answer has ``uid`` and ``messages`` (the last one's content is text or ``{"answer":
text}``); a row with ``metadata`` and no messages tells the lengths of an answer whose text is not
there. The answering model is the row's ``model``, else the baseline that the file's name contains.
Nothing is dropped without a reason. Source: github lmarena/arena-hard-auto, utils/judge_utils.py
for the baselines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from core.benchmarks.arena_labels import battle_scores
from core.benchmarks.arena_style import AUTHORS_COUNTER, is_metadata
from core.rows import Row

Version = Literal["v2.0", "v0.1"]

BASELINES: dict[str, dict[str, str]] = {
    "v2.0": {"hard_prompt": "o3-mini-2025-01-31", "creative_writing": "gemini-2.0-flash-001"},
    "v0.1": {"arena-hard-v0.1": "gpt-4-0314"},
}
"""By version and category, the model that every answer is compared with."""

SUBCATEGORIES: dict[str, tuple[str, ...]] = {"hard_prompt": ("coding", "math")}
"""By category, the names that can be asked for and scored by themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineAnswer:
    """What is known of a baseline's answer to one question."""

    text: str | None = None
    metadata: Row | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArenaRows:
    """What the files hold."""

    questions: dict[str, Row] = field(default_factory=dict[str, Row])
    """By uid."""
    answers: dict[tuple[str, str], BaselineAnswer] = field(
        default_factory=dict[tuple[str, str], BaselineAnswer]
    )
    """By baseline and uid."""
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    """By file and row number or by file and model, the reason."""


def group_names(version: Version) -> tuple[str, ...]:
    """Return the categories and subcategories of a version that can be asked for."""
    return tuple(n for c in BASELINES[version] for n in (c, *SUBCATEGORIES.get(c, ())))


def read_files(files: Mapping[str, Sequence[Row]], version: Version) -> ArenaRows:
    """Sort the rows of all files into questions and answers of the version's baselines."""
    read = ArenaRows()
    for name, rows in files.items():
        for number, row in enumerate(rows, start=1):
            place = f"{name}:{number}"
            if not isinstance(row.get("uid"), str):
                read.dropped[place] = "no `uid`"
            elif isinstance(row.get("prompt"), str):
                _add_question(read, place, row, version)
            elif isinstance(row.get("messages"), list) or "metadata" in row:
                _add_answer(read, name, row, version)
            else:
                read.dropped[place] = "neither a question nor an answer"
    return read


def answer_text(row: Row) -> str | None:
    """Return the text of an answer's row; None when it has none."""
    messages: Any = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    last: Any = cast("list[Any]", messages)[-1]
    content: Any = cast("Row", last).get("content") if isinstance(last, dict) else None
    if isinstance(content, dict):
        content = cast("Row", content).get("answer")
    return content if isinstance(content, str) else None


def judged_outcomes(judgments: Sequence[Row], answers: Sequence[Row]) -> dict[str, list[Row]]:
    """Return published judgments (rows of ``model_judgment/JUDGE/MODEL.jsonl``) as outcomes.

    By model, so that ``style_controlled`` can fit them together with one's own. ``answers`` are
    rows of ``model_answer`` with ``metadata``, for the models and their baselines; an outcome whose
    answers have none there has no ``style``.
    """
    metadata = {
        (row["model"], row["uid"]): row["metadata"]
        for row in answers
        if is_metadata(row.get("metadata"))
    }
    outcomes: dict[str, list[Row]] = {}
    for row in judgments:
        labels = [None if game is None else game["score"] for game in row["games"]]
        scores = battle_scores(labels[0], labels[1])
        model = metadata.get((row["model"], row["uid"]))
        baseline = metadata.get((row["baseline"], row["uid"]))
        style = {"counter": AUTHORS_COUNTER, "model": model, "baseline": baseline}
        outcomes.setdefault(row["model"], []).append(
            {
                "id": row["uid"],
                "category": row["category"],
                "baseline": row["baseline"],
                "scores": None if scores is None else list(scores),
                "style": None if model is None or baseline is None else style,
            }
        )
    return outcomes


def _add_question(read: ArenaRows, place: str, row: Row, version: Version) -> None:
    category: Any = row.get("category")
    if category not in BASELINES[version]:
        read.dropped[place] = f"category {category!r} is not one of Arena-Hard {version}"
    elif not row["prompt"].strip():
        read.dropped[place] = "a blank prompt"
    elif row["uid"] in read.questions:
        read.dropped[place] = "the uid of an earlier question"
    else:
        read.questions[row["uid"]] = row


def _add_answer(read: ArenaRows, name: str, row: Row, version: Version) -> None:
    wanted = BASELINES[version].values()
    model: Any = row.get("model")
    if not isinstance(model, str):
        model = next((m for m in wanted if m in name), None)
    model = model if model is None else model.rpartition("/")[2]
    if model not in wanted:
        read.dropped[f"{name} ({model})"] = "answers of a model that is no baseline"
        return
    metadata: Any = row.get("metadata")
    before = read.answers.get((model, row["uid"]), BaselineAnswer())
    text = answer_text(row)
    read.answers[model, row["uid"]] = BaselineAnswer(
        text=before.text if text is None else text,
        metadata=metadata if is_metadata(metadata) else before.metadata,
    )
