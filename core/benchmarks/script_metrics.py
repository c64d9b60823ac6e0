"""RARE's twelve fixed script metrics: an audit of each script by one judge call, 0 to 100.

The judge gets the query and the script, nothing else, and answers with an audit that
``script_audit`` checks whole; a reply that breaks a rule is asked again, with the reply and a note
of the broken rules in the conversation, ten times. A script scores its points over 24, a category
its points over 6, both times 100 (paper, equation 4; rounded to two places as the released
validator does). Means are within a video type and then over the types equally (section 4.1.3).

Metric names, check ids, thresholds and rules are the authors'. The wording of the 36 check
questions and of the levels 0, 1 and 2 is this project's own (the paper's tables of them are not at
hand; their released judge, whose meaning it follows, asks in Chinese): scores are comparable among
models judged here, not with the published ones.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.benchmarks.means import grouped_means, latest, macro_headline, macro_mean, mean
from core.benchmarks.script_audit import ScriptAudit, read_audit
from core.benchmarks.script_evidence import Broken
from core.benchmarks.script_rubric import ALL_METRICS, MAX_SCORE, METRICS
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill, json_text

VIDEO_TYPES = {
    "2d_animation": "2d_animation",
    "2d": "2d_animation",
    "3d_stopmotion": "3d_stopmotion",
    "3d": "3d_stopmotion",
    "live_action": "live_action",
    "live": "live_action",
}
"""Names of RARE's three video types in its files, and the one that scores use."""
_ONE_TYPE = "all"

_KEY = "audit"
_JUDGE = Sampling(temperature=0.0, max_tokens=32_768)
_MAX_TOLD = 40
"""Broken rules that a note names; the rest is counted."""
_MAX_SHOWN = 4000
"""Characters shown of a reply that is no JSON: more of it helps nobody."""
_SCENE = re.compile(r"^#{2,4}\s*S\d+", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptMetrics:
    """The benchmark; the fields are prompts/bench_script_metrics*.txt and bench_script_repair."""

    template: str
    system: str
    repair: str
    attempts: int = 11
    """The first try and ten retries."""

    @property
    def name(self) -> str:
        """Its name."""
        return "script_metrics"

    @property
    def answer_sampling(self) -> Sampling:
        """One script a query (paper, appendix A.3)."""
        return Sampling(temperature=1.0, top_p=1.0, max_tokens=8192)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return one task a query; ConfigError when there is none.

        A row is one of RARE's (``prompt`` messages, ``query_id``, ``extra_info``), or has ``query``
        and ``id`` or ``query_id``. The video type is ``domain``, the head of ``stem``, or a folder
        of the file's name.
        """
        tasks: dict[str, Task] = {}
        dropped: dict[str, str] = {}
        for file, rows in sorted(files.items()):
            for number, row in enumerate(rows, start=1):
                task = _task(row, file)
                if isinstance(task, str):
                    dropped[f"{file}:{number}"] = task
                elif task.id in tasks:
                    dropped[f"{file}:{number}"] = f"id {task.id} stands there before"
                else:
                    tasks[task.id] = task
        if not tasks:
            raise ConfigError(
                f"got no script query in {sorted(files)}, wanted rows with prompt or query, and "
                "query_id or id"
            )
        return Loaded(tasks=tuple(tasks.values()), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the call for the audit until one breaks no rule; none for an empty script."""
        if not answer.strip():
            return []
        audit = _last_audit(replies, answer)
        is_usable = audit is not None and not audit.broken
        if not to_ask_again(replies, _KEY, is_usable, self.attempts):
            return []
        if audit is None:
            call = ModelCall(messages=self._first(task, answer), sampling=_JUDGE)
        else:
            call = self._again(task, answer, replies[_KEY][-1], audit)
        return [JudgeCall(key=_KEY, call=call)]

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return each metric's score, or which rules the last audit breaks."""
        audit = _last_audit(replies, answer) if answer.strip() else None
        scores = dict(audit.scores) if audit is not None else {}
        broken = [f"{b.rule}: {b.where}" for b in audit.broken] if audit is not None else []
        return {
            "id": task.id,
            "type": task.row["type"],
            "scores": scores or None,
            "categories": category_scores(scores) if scores else None,
            "overall": overall_score(scores) if scores else None,
            "status": audit.status if audit is not None else "",
            "is_empty": not answer.strip(),
            "broken": broken,
            "attempts": len(replies.get(_KEY, ())),
            "format": {"characters": len(answer), "scenes": len(_SCENE.findall(answer))},
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return overall, category and metric means, by video type and over types equally.

        An empty script cannot be quoted, so it has no audit: it is missing, and
        ``empty_scripts_as_zero`` is the overall score with each of them at 0.
        """
        rows = latest(outcomes)
        judged = [row for row in rows if row["scores"] is not None]
        types = [row["type"] for row in judged]
        overall = [row["overall"] for row in judged]
        with_empty = [row for row in rows if row["scores"] is not None or row["is_empty"]]
        return {
            "main": macro_headline("overall", overall, types),
            "types": grouped_means(overall, types),
            "query_mean": mean(overall),
            "categories": {
                name: _by_type([row["categories"][name] for row in judged], types)
                for name in METRICS
            },
            "metrics": {
                name: _by_type([100 * row["scores"][name] / MAX_SCORE for row in judged], types)
                for name in ALL_METRICS
            },
            "incomplete": sum(row["status"] == "incomplete" for row in judged),
            "missing": len(rows) - len(judged),
            "empty_scripts": sum(row["is_empty"] for row in rows),
            "empty_scripts_as_zero": macro_mean(
                [row["overall"] or 0.0 for row in with_empty], [row["type"] for row in with_empty]
            ),
        }

    def _first(self, task: Task, answer: str, note: str = "") -> tuple[Message, ...]:
        values = {"query": fenced(task.row["query"], "query"), "script": fenced(answer, "script")}
        text = fill(self.template, values)
        return (
            Message(role="system", content=self.system),
            Message(role="user", content=f"{text}\n\n{note}" if note else text),
        )

    def _again(self, task: Task, answer: str, reply: str, audit: ScriptAudit) -> ModelCall:
        """Return the call after a reply that breaks rules: the task, the reply, the note."""
        note = fill(self.repair, {"errors": fenced(_told(audit.broken), "errors")})
        if not reply.strip():  # an empty turn is refused by some endpoints
            return ModelCall(messages=self._first(task, answer, note), sampling=_JUDGE)
        earlier = (
            json_text(audit.value, indent=1)
            if audit.value is not None
            else fenced(reply[:_MAX_SHOWN], "reply")
        )
        messages = (
            *self._first(task, answer),
            Message(role="assistant", content=earlier),
            Message(role="user", content=note),
        )
        return ModelCall(messages=messages, sampling=_JUDGE)


def overall_score(scores: Mapping[str, int]) -> float:
    """Return the points of all twelve metrics as a share of 24, on the scale 0..100."""
    return round(sum(scores.values()) / (MAX_SCORE * len(ALL_METRICS)) * 100, 2)


def category_scores(scores: Mapping[str, int]) -> dict[str, float]:
    """Return each category's points as a share of 6, on the scale 0..100."""
    return {
        category: round(sum(scores[name] for name in names) / (MAX_SCORE * len(names)) * 100, 2)
        for category, names in METRICS.items()
    }


def _last_audit(replies: Replies, answer: str) -> ScriptAudit | None:
    made = replies.get(_KEY, ())
    return read_audit(made[-1], answer) if made else None


def _told(broken: Sequence[Broken]) -> str:
    lines = [f"- {b.rule} at {b.where}: {b.text}" for b in broken[:_MAX_TOLD]]
    if len(broken) > _MAX_TOLD:
        lines.append(f"- and {len(broken) - _MAX_TOLD} more of these kinds")
    return "\n".join(lines)


def _by_type(values: Sequence[float], types: Sequence[str]) -> dict[str, Any]:
    return {"mean": macro_mean(values, types), "types": grouped_means(values, types)}


# ------------------------------------------------------------------ rows
def _task(row: Row, file: str) -> Task | str:
    """Return a row's task, or why it has none."""
    found = row.get("extra_info")
    extra = cast(Row, found) if isinstance(found, dict) else {}
    messages = _messages(row.get("prompt"))
    query = extra.get("query") or row.get("query") or row.get("prompt")
    if not isinstance(query, str) and messages:
        query = next((m.content for m in reversed(messages) if m.role == "user"), None)
    if not isinstance(query, str) or not query.strip():
        return "no query and no prompt with a user's text"
    key = row.get("query_id", row.get("id"))
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        return "no query_id and no id"
    return Task(
        id=str(key),
        messages=messages or (Message(role="user", content=query),),
        row={"query": query, "type": _video_type(row, extra, file)},
    )


def _messages(prompt: Any) -> tuple[Message, ...]:
    if not isinstance(prompt, list):
        return ()
    turns = [cast(Row, turn) for turn in cast(list[Any], prompt) if isinstance(turn, dict)]
    if not all(isinstance(t.get("content"), str) and isinstance(t.get("role"), str) for t in turns):
        return ()
    return tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns)


def _video_type(row: Row, extra: Row, file: str) -> str:
    """Return the video type; a domain of one's own stays, files without any are one type."""
    stem = extra.get("stem")
    head = stem.partition("_video_")[0] if isinstance(stem, str) else ""
    for name in (row.get("domain"), head, *file.split("/")[:-1]):
        if isinstance(name, str) and name in VIDEO_TYPES:
            return VIDEO_TYPES[name]
    domain = row.get("domain")
    return domain if isinstance(domain, str) and domain else _ONE_TYPE
