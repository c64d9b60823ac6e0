"""BiGGen Bench (prometheus-eval/prometheus-eval, BiGGen-Bench): one score of 1 to 5 an instance.

Of the 765 instances Prometheus judges leave out the 18 in which the model under test judges itself
(``llm_judge`` in the id): 747, as in RARE's appendix E.2. Models without a chat template also leave
out the multilingual ones: 695 of all. The judge sees ``input`` but not the system prompt, the
reference answer and the instance's rubric, and ends with ``[RESULT] n``. ``overall`` is the mean of
the means by capability. A reply without a score is asked for again; the authors' report fails on
one that stays without, here the instance is left out and counted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.benchmarks.means import grouped, grouped_means, latest, macro_headline
from core.errors import ConfigError
from core.grading.reply_text import without_reasoning
from core.model_calls import Sampling, user_call
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill

SystemPrompt = Literal["role", "user"]

_JUDGES_ITSELF = "llm_judge"
_LEVELS = range(1, 6)
_TEXTS = ("id", "capability", "task", "input", "reference_answer")
_RUBRIC_TEXTS = ("criteria", *(f"score{n}_description" for n in _LEVELS))
_JUDGE = Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.03, max_tokens=1024)
_KEY = "score"

_RESULT = re.compile(
    r"(?:\[RESULT\]:?|\[SCORE\]|Score:?|Result:?|score\s+of)"
    r"[\s(\[]*"
    r"([0-9]{1,9})"
    r"(?:[)\]\s]?|\s*/\s*5|\s*out\s*of\s*5)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BiGGen:
    """The benchmark; ``template`` and ``system`` are prompts/bench_biggen*.txt."""

    template: str
    system: str
    with_judge_tasks: bool = False
    """All 765: instances in which the model under test judges are judged like the others."""
    is_base_model: bool = False
    """The model under test knows no chat template, so the multilingual instances are left out."""
    system_prompt: SystemPrompt = "role"
    """``user``: before the input, two newlines between, for templates without a system role."""
    attempts: int = 11
    """The authors retry ten times."""

    @property
    def name(self) -> str:
        """Its name."""
        return "biggen"

    @property
    def answer_sampling(self) -> Sampling:
        """As the authors' inference scripts."""
        return Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.03, max_tokens=2048)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return one task an instance, by its ``id``; ConfigError when there is none."""
        rows: dict[str, Row] = {}
        dropped: dict[str, str] = {}
        for where, row in _instances(files):
            problem = _problem(row) or self._left_out(row)
            key = row.get("id")
            if not problem and key in rows:
                problem = f"id {key} stands there before"
            if problem:
                dropped[key if isinstance(key, str) and key not in rows else where] = problem
            else:
                rows[row["id"]] = row
        if not rows:
            raise ConfigError(
                f"got no BiGGen Bench instance in {sorted(files)}, wanted the 765 rows with id, "
                "capability, task, system_prompt, input, reference_answer and score_rubric"
            )
        return Loaded(tasks=tuple(self._task(row) for row in rows.values()), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the one call until a reply of it has a score."""
        if not to_ask_again(replies, _KEY, _last(replies) is not None, self.attempts):
            return []
        row = task.row
        rubric = row["score_rubric"]
        values = {
            "instruction": fenced(row["input"], "instruction"),
            "response": fenced(answer, "response"),
            "reference": fenced(row["reference_answer"], "reference"),
            "rubric": fenced(_rubric_text(rubric), "rubric"),
        }
        call = user_call(fill(self.template, values), system=self.system, sampling=_JUDGE)
        return [JudgeCall(key=_KEY, call=call)]

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return the score and the feedback; None where no reply had a score."""
        made = replies.get(_KEY, ())
        return {
            "id": task.id,
            "capability": task.row["capability"],
            "task": task.row["task"],
            "score": _last(replies),
            "feedback": made[-1] if made else "",
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return the overall score, the means by capability and by task, on the scale 1..5."""
        rows = latest(outcomes)
        scored = [row for row in rows if row["score"] is not None]
        values = [float(row["score"]) for row in scored]
        capabilities = [row["capability"] for row in scored]
        tasks = [f"{row['capability']}/{row['task']}" for row in scored]
        return {
            "main": macro_headline("overall", values, capabilities),
            "capabilities": grouped_means(values, capabilities),
            "counts": {name: len(own) for name, own in grouped(values, capabilities).items()},
            "tasks": grouped_means(values, tasks),
            "missing": len(rows) - len(scored),
        }

    def _left_out(self, row: Row) -> str:
        if _JUDGES_ITSELF in row["id"] and not self.with_judge_tasks:
            return "the model under test judges: left out by Prometheus judges"
        if self.is_base_model and row["capability"] == "multilingual":
            return "multilingual: left out for models without a chat template"
        return ""

    def _task(self, row: Row) -> Task:
        system, text = row.get("system_prompt") or "", row["input"]
        if self.system_prompt == "user" and system:
            messages = [Message(role="user", content=f"{system}\n\n{text}")]
        else:
            head = [Message(role="system", content=system)] if system else []
            messages = [*head, Message(role="user", content=text)]
        kept = {key: row[key] for key in (*_TEXTS, "score_rubric")}
        return Task(id=row["id"], messages=tuple(messages), row=kept)


def read_result(reply: str) -> int | None:
    """Return the score 1..5 with which a reply ends, in one of the forms that the authors read.

    A marker (``[RESULT]``, ``Score:`` and the like), the number, perhaps brackets, ``/5`` or ``out
    of 5``, and then nothing more.
    """
    text = (without_reasoning(reply, ()) or "").strip()
    match = _RESULT.search(text)
    if match is None or int(match.group(1)) not in _LEVELS:
        return None
    return int(match.group(1))


def _last(replies: Replies) -> int | None:
    made = replies.get(_KEY, ())
    return read_result(made[-1]) if made else None


def _rubric_text(rubric: Row) -> str:
    levels = [f"Score {n}: {rubric[f'score{n}_description']}" for n in _LEVELS]
    return "\n".join([f"[{rubric['criteria']}]", *levels])


def _instances(files: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, Row]]:
    """Yield file, number and row; the authors' response files are one object of rows by id."""
    for file, rows in sorted(files.items()):
        for number, row in enumerate(rows, start=1):
            if "id" not in row and row and all(isinstance(v, dict) for v in row.values()):
                for key, value in row.items():
                    yield f"{file}:{key}", cast(Row, value)
            else:
                yield f"{file}:{number}", row


def _problem(row: Row) -> str:
    missing = [key for key in _TEXTS if not isinstance(row.get(key), str) or not row[key].strip()]
    if missing:
        return f"no text for {missing}"
    if not isinstance(row.get("system_prompt") or "", str):
        return "system_prompt is no text"
    rubric = row.get("score_rubric")
    if not isinstance(rubric, dict):
        return "score_rubric is no object"
    texts = cast(Row, rubric)
    absent = [key for key in _RUBRIC_TEXTS if not isinstance(texts.get(key), str)]
    return f"score_rubric has no text for {absent}" if absent else ""
