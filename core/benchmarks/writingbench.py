"""WritingBench (X-PLUG/WritingBench): each query's own criteria, one judge call each, 1 to 10.

Rows are those of ``benchmark_all.jsonl`` and of the requirement files ``{r}_subset.jsonl`` and
``{r}_subset_C.jsonl`` (r: style, format, length); the latter name the criteria about r. A query of
which only the latter are there is judged by those and counted as partial. A query counts when all
its criteria are judged. The authors' ``micro`` mean (all scores alike) and RARE's ``domain_macro``
(within response, then the six domains, then domains equally; appendix E.1) are both reported.

The authors key scores by criterion name, so that of two criteria with one name the second is never
asked; here each is a criterion of its own, and ``official`` holds their numbers where they differ.
Their reader runs ``eval`` on replies that are no JSON; here such a reply is asked for again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.benchmarks.means import (
    grouped_means,
    headline,
    latest,
    macro_headline,
    mean,
    reply_object,
)
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill, json_text

Main = Literal["micro", "domain_macro"]

REQUIREMENTS = ("style", "format", "length")
_SUBSET = re.compile(r"(style|format|length)_subset(_C)?(?![A-Za-z0-9_])")
_CRITERION_KEYS = ("name", "criteria_description", "1-2", "3-4", "5-6", "7-8", "9-10")
_END_OF_REASONING = "</think>\n\n"
_JUDGE = Sampling(temperature=1.0, top_p=0.95, max_tokens=2048)


@dataclass(frozen=True, kw_only=True, slots=True)
class WritingBench:
    """The benchmark; ``template`` and ``system`` are prompts/bench_writingbench*.txt."""

    template: str
    system: str
    main: Main = "micro"
    attempts: int = 15
    """The authors' five tries, three times over."""

    @property
    def name(self) -> str:
        """Its name."""
        return "writingbench"

    @property
    def answer_sampling(self) -> Sampling:
        """As the authors' generation script."""
        return Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=16000)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return one task an ``index``; ConfigError when there is none."""
        reader = _Reader()
        for name in sorted(files, key=_reading_order):
            reader.read(name, files[name])
        if not reader.rows:
            raise ConfigError(
                f"got no WritingBench row in {sorted(files)}, wanted benchmark_all.jsonl, and the "
                "requirement files for the scores by requirement"
            )
        return Loaded(tasks=tuple(reader.tasks()), dropped=reader.dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the call of each criterion that has no valid reply yet."""
        calls: list[JudgeCall] = []
        for number, criterion in enumerate(task.row["checklist"], start=1):
            key = _key(number)
            is_readable = _last(replies, key) is not None
            if to_ask_again(replies, key, is_readable, self.attempts):
                calls.append(JudgeCall(key=key, call=self._call(task, answer, criterion)))
        return calls

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return the score of each criterion, None where no reply was valid."""
        scores: list[Row] = []
        for number, criterion in enumerate(task.row["checklist"], start=1):
            score, reason = _last(replies, _key(number)) or (None, "")
            scores.append({"name": criterion["name"], "score": score, "reason": reason})
        kept = ("index", "domain1", "domain2", "is_partial", "subsets")
        return {"id": task.id, **{key: task.row[key] for key in kept}, "scores": scores}

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return means on the scale 1..10; ``leaderboard`` is ten times that, as published."""
        rows = latest(outcomes)
        queries = [q for row in rows if (q := _Query.of(row)) is not None]
        ours, official = _figures(queries), _figures([q.by_name() for q in queries])
        if self.main == "micro":
            main = headline("micro", [q.scores for q in queries])
        else:
            domains = [q.domain1 for q in queries]
            main = macro_headline("domain_macro", [q.mean for q in queries], domains)
        unread = [s for row in rows for s in row["scores"] if s["score"] is None]
        return {
            "main": main,
            **ours,
            "leaderboard": {k: _times_ten(ours[k]) for k in ("micro", "domain_macro")},
            **({} if official == ours else {"official": official}),
            "missing": len(rows) - len(queries),
            "missing_criteria": len(unread),
            "partial": sum(row["is_partial"] for row in rows),
        }

    def _call(self, task: Task, answer: str, criterion: Row) -> ModelCall:
        values = {
            "criterion": fenced(json_text(criterion, indent=1), "criterion"),
            "query": fenced(task.row["query"], "query"),
            "response": fenced(judged_part(answer), "response"),
        }
        return user_call(fill(self.template, values), system=self.system, sampling=_JUDGE)


def judged_part(answer: str) -> str:
    """Return what comes after the first end of reasoning, as the authors cut; else all of it."""
    _, mark, rest = answer.partition(_END_OF_REASONING)
    return rest if mark else answer


def read_score(reply: str) -> tuple[int, str] | None:
    """Return score and reason of a valid reply: a whole number of 1..10 and a text."""
    value = reply_object(reply)
    if value is None or not isinstance(value.get("reason"), str):
        return None
    score = value.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or score not in range(1, 11):
        return None
    return int(score), value["reason"]


def _last(replies: Replies, key: str) -> tuple[int, str] | None:
    made = replies.get(key, ())
    return read_score(made[-1]) if made else None


def _key(number: int) -> str:
    return f"criterion {number}"


# ------------------------------------------------------------------ rows
def _subset_of(file: str) -> tuple[str, bool] | None:
    """Return the requirement of a file and whether it names criteria; None of the whole set."""
    match = _SUBSET.match(file.rsplit("/", 1)[-1])
    return None if match is None else (match.group(1), match.group(2) is not None)


def _reading_order(file: str) -> tuple[int, str]:
    """Whole checklists come first, so that a file of some criteria never stands in for one."""
    subset = _subset_of(file)
    return (0 if subset is None else 1 + subset[1], file)


@dataclass(slots=True)
class _Reader:
    """Rows by index, and which requirement files name them."""

    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    _partial: set[int] = field(default_factory=set[int])
    _subsets: dict[int, dict[str, list[int]]] = field(
        default_factory=dict[int, dict[str, list[int]]]
    )

    def read(self, file: str, rows: Sequence[Row]) -> None:
        subset = _subset_of(file)
        seen: set[int] = set()
        for number, row in enumerate(rows, start=1):
            where = f"{file}:{number}"
            problem = _problem(row)
            if not problem and (row["index"] in seen or (subset is None and self._has(row))):
                problem = f"index {row['index']} stands there before: the first row is kept"
            if problem:
                self.dropped[where] = problem
                continue
            seen.add(row["index"])
            self._add(row, subset, where)

    def tasks(self) -> Iterator[Task]:
        for index in sorted(self.rows):
            row = self.rows[index]
            own = {
                "index": index,
                **{key: row.get(key) or "" for key in ("domain1", "domain2")},
                "query": row["query"],
                "checklist": [{k: c[k] for k in _CRITERION_KEYS} for c in row["checklist"]],
                "is_partial": index in self._partial,
                "subsets": self._subsets.get(index, {}),
            }
            message = Message(role="user", content=row["query"])
            yield Task(id=str(index), messages=(message,), row=own)

    def _has(self, row: Row) -> bool:
        return row["index"] in self.rows

    def _add(self, row: Row, subset: tuple[str, bool] | None, where: str) -> None:
        index: int = row["index"]
        names_criteria = subset is not None and subset[1]
        if index not in self.rows:
            self.rows[index] = row
        elif names_criteria and index in self._partial:
            self.rows[index] = _joined(self.rows[index], row)
        if names_criteria and self.rows[index] is row:
            self._partial.add(index)
        if subset is None:
            return
        positions = self._subsets.setdefault(index, {}).setdefault(subset[0], [])
        if names_criteria:
            for criterion in row["checklist"]:
                self._point(positions, criterion, index, where)

    def _point(self, positions: list[int], criterion: Row, index: int, where: str) -> None:
        position = _position(self.rows[index]["checklist"], criterion, positions)
        if position is None:
            name = criterion["name"]
            self.dropped[f"{where} {name}"] = f"no criterion of index {index} has this name"
        else:
            positions.append(position)


def _joined(row: Row, other: Row) -> Row:
    """Return a partial row with the criteria of another requirement's file added."""
    new = [c for c in other["checklist"] if c not in row["checklist"]]
    return {**row, "checklist": [*row["checklist"], *new]}


def _position(checklist: Sequence[Row], criterion: Row, taken: Sequence[int]) -> int | None:
    """Return where a criterion stands: the same one where it is there, else one of its name."""
    free = [i for i in range(len(checklist)) if i not in taken]
    same = [i for i in free if checklist[i] == criterion]
    named = [i for i in free if checklist[i]["name"] == criterion["name"]]
    return (same or named or [None])[0]


def _problem(row: Row) -> str:
    index, query, checklist = row.get("index"), row.get("query"), row.get("checklist")
    if isinstance(index, bool) or not isinstance(index, int):
        return f"index is {index!r:.40}, wanted a whole number"
    if not isinstance(query, str) or not query.strip():
        return "query is no text"
    if not isinstance(checklist, list) or not checklist:
        return "checklist is no list of criteria"
    for criterion in cast(list[Any], checklist):
        if not isinstance(criterion, dict):
            return "a criterion is no object"
        texts = cast(Row, criterion)
        missing = [key for key in _CRITERION_KEYS if not isinstance(texts.get(key), str)]
        if missing:
            return f"a criterion has no text for {missing}"
    return ""


# ------------------------------------------------------------------ scores
@dataclass(frozen=True, kw_only=True, slots=True)
class _Query:
    """One response's scores, all of them there."""

    names: Sequence[str]
    scores: Sequence[float]
    domain1: str
    domain2: str
    subsets: Mapping[str, Sequence[int]]
    """By requirement, the places of its criteria."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_Query | None":
        scores = [s["score"] for s in row["scores"]]
        if None in scores:
            return None
        return cls(
            names=[s["name"] for s in row["scores"]],
            scores=scores,
            domain1=row["domain1"],
            domain2=row["domain2"],
            subsets=row["subsets"],
        )

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)

    def by_name(self) -> "_Query":
        """Return it as the authors' record has it: one score a name, that of the first."""
        names = list(dict.fromkeys(self.names))
        subsets = {
            requirement: [names.index(self.names[place]) for place in places]
            for requirement, places in self.subsets.items()
        }
        return _Query(
            names=names,
            scores=[self.scores[self.names.index(name)] for name in names],
            domain1=self.domain1,
            domain2=self.domain2,
            subsets=subsets,
        )


def _figures(queries: Sequence[_Query]) -> dict[str, Any]:
    means = [q.mean for q in queries]
    by_domain1 = grouped_means(means, [q.domain1 for q in queries])
    figures: dict[str, Any] = {
        "micro": mean([score for q in queries for score in q.scores]),
        "domain_macro": mean(list(by_domain1.values())),
        "domain1": by_domain1,
        "domain2": grouped_means(means, [q.domain2 for q in queries]),
    }
    for requirement in REQUIREMENTS:
        inside = [q for q in queries if requirement in q.subsets]
        about = [q.scores[place] for q in inside for place in q.subsets[requirement]]
        figures[f"{requirement}_R"] = mean([q.mean for q in inside])
        figures[f"{requirement}_C"] = mean(about)
    return figures


def _times_ten(value: float | None) -> float | None:
    return None if value is None else 10.0 * value
