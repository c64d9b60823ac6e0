"""InfoBench: an instruction's requirements as yes-or-no questions about the answer.

Rows, protocol and numbers are the authors' (``evaluation.py`` of github.com/qinyiwei/InfoBench, Qin
et al., ACL Findings 2024); the judge's rules are in our words. One conversation a row: the first
message shows the text and asks the first question, each later one is a bare question after all
earlier answers. A reply that is neither yes nor no is asked for again; when it stays so, the row
stops there, as with the authors. Rates are percentages of questions. The authors count the question
that stopped a row as not met and leave the ones behind it out; two other counts stand beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill

Prompt = Literal["plain", "rlcf"]
Main = Literal["official", "strict", "answered"]
"""The decomposed requirements following ratio (DRFR) by three counts: ``official`` is the authors';
``strict`` counts every question without an answer as not met; ``answered`` is over answered ones
only."""

_JUDGE_SAMPLING = Sampling(max_tokens=1024)
_SUBSETS = {"easy_set": "easy", "hard_set": "hard"}


def read_answer(text: str) -> bool | None:
    """Read a judge's reply as the authors do; None when it is neither yes nor no.

    What begins with yes or no (in any case, so "None" and "Not sure" are no) is that; else the one
    of YES and NO that stands in it in capitals, when the other does not.
    """
    lowered = text.lower()
    if lowered.startswith(("yes", "no")):
        return lowered.startswith("yes")
    has_yes, has_no = "YES" in text, "NO" in text
    return has_yes if has_yes != has_no else None


@dataclass(frozen=True, kw_only=True, slots=True)
class InfoBench:
    """The benchmark with its options."""

    template: str
    """The judge's first message: ``prompts/bench_infobench.txt``."""
    prompt: Prompt = "plain"
    """How an input follows its instruction: on a line of its own, or with RLCF's colon after it."""
    main: Main = "official"
    """Which count is the headline."""
    attempts: int = 3
    """How often one question is asked; the authors stop at the first reply that is unreadable."""

    @property
    def name(self) -> str:
        """See ``Benchmark``."""
        return "infobench"

    @property
    def answer_sampling(self) -> Sampling:
        """Greedy, as RLCF; 1024 tokens are the default of the authors' ``generation.py``."""
        return Sampling(temperature=0.0, max_tokens=1024)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """See ``Benchmark``; the authors' rows are one file, ``InfoBench.json``."""
        tasks: dict[str, Task] = {}
        dropped: dict[str, str] = {}
        for name, rows in files.items():
            for number, row in enumerate(rows, start=1):
                problem = _problem(row)
                if problem is None and row["id"] in tasks:
                    problem = f"id {row['id']!r} is there already"
                if problem is not None:
                    dropped[f"{name} row {number}"] = problem
                    continue
                tasks[row["id"]] = _task(row, self.prompt)
        if not tasks:
            raise ConfigError(
                f"InfoBench: got no row that can be asked in {sorted(files)}, wanted "
                "InfoBench.json of the data set kqsong/InFoBench; the first dropped row: "
                f"{next(iter(dropped.items()), None)}"
            )
        return Loaded(tasks=tuple(tasks.values()), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """See ``Benchmark``; the next question, which shows the answers to all earlier ones."""
        questions: list[str] = task.row["questions"]
        messages = [Message(role="user", content=self._first_message(task, answer))]
        for number, question in enumerate(questions, start=1):
            if number > 1:
                messages.append(Message(role="user", content=question))
            made = replies.get(_key(number), ())
            if not made or read_answer(made[-1]) is None:
                if not to_ask_again(replies, _key(number), False, self.attempts):
                    return []
                sampling = replace(_JUDGE_SAMPLING, seed=len(made))
                call = ModelCall(messages=tuple(messages), sampling=sampling)
                return [JudgeCall(key=_key(number), call=call)]
            messages.append(Message(role="assistant", content=made[-1]))
        return []

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """See ``Benchmark``; ``eval`` is the authors' list: an answer for each question that was
        asked, with None for the one that stopped the row."""
        answers: list[bool | None] = []
        for number in range(1, len(task.row["questions"]) + 1):
            made = replies.get(_key(number), ())
            if not made:
                break
            answers.append(read_answer(made[-1]))
            if answers[-1] is None:
                break
        return {
            "id": task.id,
            "subset": task.row["subset"],
            "eval": answers,
            "num_questions": len(task.row["questions"]),
            "labels": task.row["labels"],
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """See ``Benchmark``; ``missing`` counts questions without an answer."""
        subsets = {s: [r for r in outcomes if r["subset"] == s] for s in _SUBSETS.values()}
        overall = _ratios(_questions(outcomes))
        return {
            "main": self._main_score(outcomes),
            "missing": overall["n_missing"],
            "rows": len(outcomes),
            "overall": overall,
            **{subset: _ratios(_questions(rows)) for subset, rows in subsets.items()},
            "labels": _by_label(outcomes),
        }

    def _first_message(self, task: Task, answer: str) -> str:
        parts = [fenced(answer, "generated_text")]
        if task.row["input"]:
            parts.insert(0, fenced(task.row["input"], "input"))
        values = {"material": "\n\n".join(parts), "question": task.row["questions"][0]}
        return fill(self.template, values)

    def _main_score(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        from core.statistics import bootstrap_interval

        counted = [
            (q.row, v) for q in _questions(outcomes) if (v := q.counts(self.main)) is not None
        ]
        score: dict[str, Any] = {"name": f"drfr_{self.main}", "value": None}
        score |= {"low": None, "high": None, "n": len({row for row, _ in counted}), "unit": "row"}
        if counted:
            values = [100.0 * value for _, value in counted]
            interval = bootstrap_interval(values, clusters=[row for row, _ in counted])
            score |= {
                "value": sum(values) / len(values),
                "low": interval.low,
                "high": interval.high,
            }
        return score


@dataclass(frozen=True, slots=True)
class _Question:
    """One question of one row, as it was judged."""

    row: str
    labels: tuple[str, ...]
    is_asked: bool
    is_met: bool | None

    def counts(self, count: Main) -> int | None:
        """1 for met, 0 for not met, None where this count leaves the question out."""
        if self.is_met is not None:
            return int(self.is_met)
        return 0 if count == "strict" or (count == "official" and self.is_asked) else None


def _questions(outcomes: Sequence[Row]) -> list[_Question]:
    questions: list[_Question] = []
    for row in outcomes:
        answers: list[bool | None] = row["eval"]
        for i in range(row["num_questions"]):
            is_asked = i < len(answers)
            questions.append(
                _Question(
                    row=row["id"],
                    labels=tuple(row["labels"][i]) if row["labels"] else (),
                    is_asked=is_asked,
                    is_met=answers[i] if is_asked else None,
                )
            )
    return questions


def _ratios(questions: Sequence[_Question]) -> dict[str, Any]:
    """The three counts in percent, micro over questions."""
    ratios: dict[str, Any] = {}
    for count in ("official", "strict", "answered"):
        values = [v for q in questions if (v := q.counts(count)) is not None]
        ratios[count] = 100.0 * sum(values) / len(values) if values else None
    n_missing = sum(q.is_met is None for q in questions)
    return {**ratios, "n_questions": len(questions), "n_missing": n_missing}


def _by_label(outcomes: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The ratios of each constraint type of the paper; a question may have several."""
    by_label: dict[str, list[_Question]] = {}
    for question in _questions(outcomes):
        for label in question.labels:
            by_label.setdefault(label, []).append(question)
    return {label: _ratios(questions) for label, questions in sorted(by_label.items())}


def _key(number: int) -> str:
    return f"question {number}"


def _task(row: Row, prompt: Prompt) -> Task:
    text = row["instruction"]
    if row["input"]:
        text = f"{text}\n{row['input']}" + (":" if prompt == "rlcf" else "")
    return Task(
        id=row["id"],
        messages=(Message(role="user", content=text),),
        row={
            "input": row["input"],
            "questions": row["decomposed_questions"],
            "labels": row.get("question_label") or [],
            "subset": _SUBSETS[row["subset"].lower()],
        },
    )


def _problem(row: Row) -> str | None:
    """Why a row cannot be used."""
    for key in ("id", "input", "instruction", "subset"):
        if not isinstance(row.get(key), str):
            return f"got {key}={row.get(key)!r}, wanted a text"
    if not row["id"] or not row["instruction"].strip():
        return "got a blank id or instruction, wanted both"
    if row["subset"].lower() not in _SUBSETS:
        return f"got subset {row['subset']!r}, wanted Easy_set or Hard_set"
    questions = row.get("decomposed_questions")
    if not _is_list_of(str, questions) or not questions:
        return f"got decomposed_questions={questions!r}, wanted a list of texts"
    labels = row.get("question_label")
    if labels is None:
        return None
    if not _is_list_of(list, labels) or not all(_is_list_of(str, own) for own in labels):
        return f"got question_label={labels!r}, wanted a list of lists of texts"
    if len(labels) != len(questions):
        return f"got {len(labels)} question_label for {len(questions)} questions, wanted as many"
    return None


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, kind) for v in cast("list[object]", value))
