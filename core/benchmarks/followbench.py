"""FollowBench: does an answer follow 1 to 5 constraints that were added one at a time?

Files, rules, judge's reply and numbers are the authors' (github.com/YJiangcm/FollowBench, Jiang et
al., ACL 2024); the judge's prompt is in our words. A group is one instruction at levels 0 to 5.
Level 0 has no constraint: it is context for the judge and no task. Rows are joined by type, group
and level. Where a rule can decide, no judge is asked. A reply that cannot be read is asked for
again; what is still unread counts as 0, is counted, and the authors' number is given beside it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.benchmarks.followbench_rules import named_entities, passes_rule, rule_of
from core.benchmarks.followbench_scores import LEVELS, TYPES, Main, followbench_scores
from core.errors import ConfigError
from core.model_calls import Sampling, user_call
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill

CALL_KEY = "constraints"
_JUDGE_SAMPLING = Sampling(max_tokens=1024)
_NOT_SATISFIED = ("NO", "PARTIAL", "MAYBE", "UNKNOWN", "N/A")
_FIELDS = {
    "example_id": int, "category": str, "source": str, "level": int, "instruction": str,
    "target": str,
}  # fmt: skip
_NOTES = {"situation": " (facts about a setting or background that the answer has to fit)"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Satisfied:
    """What a judge found of the constraints of one answer."""

    hard: int
    """1 when all are satisfied, else 0."""
    soft: float
    """The share of them that is satisfied, 0 to 1."""


def read_reply(text: str, level: int) -> Satisfied | None:
    """Read a judge's reply on ``level`` constraints; None when it cannot be read.

    As ``paring_discriminative_generation`` in ``code/gpt4_based_evaluation.py``, with the list read
    as a literal instead of evaluated. Only the last line counts. At level 1 it has to contain YES
    (else NO); above, it has to hold a list of ``level`` elements.
    """
    last = text.strip("`").strip().split("\n")[-1]
    if level == 1:
        if "YES" in last:
            return Satisfied(hard=1, soft=1.0)
        return Satisfied(hard=0, soft=0.0) if "NO" in last else None
    found = _literal_list(last)
    if found is None or len(found) != level:
        return None
    if not all(isinstance(v, str) and (v == "YES" or v in _NOT_SATISFIED) for v in found):
        return None
    num_satisfied = sum(v == "YES" for v in found)
    return Satisfied(hard=int(num_satisfied == level), soft=num_satisfied / level)


def _literal_list(line: str) -> Sequence[object] | None:
    found = re.search(r"\[.*\]", line)
    if found is None:
        return None
    try:
        value: object = ast.literal_eval(found.group())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return cast("list[object]", value) if isinstance(value, list) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowBench:
    """The benchmark with its options."""

    template: str
    """The judge's prompt for 2 to 5 constraints: ``prompts/bench_followbench.txt``."""
    one_template: str
    """The judge's prompt for one constraint: ``prompts/bench_followbench_one.txt``."""
    main: Main = "hsr"
    """Which number is the headline."""
    types: tuple[str, ...] = TYPES
    """The constraint types whose files are wanted."""
    attempts: int = 5
    """How often a judge is asked for one answer until its reply can be read."""

    @property
    def name(self) -> str:
        """See ``Benchmark``."""
        return "followbench"

    @property
    def answer_sampling(self) -> Sampling:
        """Greedy, 2048 tokens (``code/model_inference_vllm.py``)."""
        return Sampling(temperature=0.0, max_tokens=2048)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """See ``Benchmark``; ``files`` are the authors' ``{type}_constraints.json``."""
        by_name = {name.rsplit("/", 1)[-1]: rows for name, rows in files.items()}
        wanted = {t: f"{t}_constraints.json" for t in self.types}
        absent = sorted(name for name in wanted.values() if name not in by_name)
        if absent:
            raise ConfigError(
                f"FollowBench: got files {sorted(by_name)}, wanted {absent} too: take them from "
                "data/ of github.com/YJiangcm/FollowBench"
            )
        tasks: list[Task] = []
        dropped: dict[str, str] = {}
        for constraint_type, name in wanted.items():
            loaded = _load_type(constraint_type, name, by_name[name])
            tasks += loaded.tasks
            dropped |= loaded.dropped
        if not tasks:
            raise ConfigError(
                f"FollowBench: got no row that can be asked in {sorted(wanted.values())}, wanted "
                f"rows of levels 1 to 5; the first dropped one: {next(iter(dropped.items()), None)}"
            )
        return Loaded(tasks=tuple(tasks), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """See ``Benchmark``; one call at most, and none where a rule decides."""
        if task.row["rule"] is not None:
            return []
        is_readable = _judged(task, replies) is not None
        if not to_ask_again(replies, CALL_KEY, is_readable, self.attempts):
            return []
        sampling = replace(_JUDGE_SAMPLING, seed=len(replies.get(CALL_KEY, ())))
        call = user_call(self._prompt(task, answer), sampling=sampling)
        return [JudgeCall(key=CALL_KEY, call=call)]

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """See ``Benchmark``; ``hard`` and ``soft`` are None where the judge failed."""
        row = task.row
        if row["rule"] is not None:
            passed = passes_rule(row["rule"], answer, row["target"], row["level"])
            satisfied = Satisfied(hard=int(passed), soft=float(passed))
        else:
            satisfied = _judged(task, replies)
        return {
            "id": task.id,
            **{key: row[key] for key in ("type", "example_id", "level", "category", "source")},
            "judged_by": "judge" if row["rule"] is None else "rule",
            "hard": None if satisfied is None else satisfied.hard,
            "soft": None if satisfied is None else satisfied.soft,
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """See ``Benchmark`` and ``followbench_scores``."""
        return followbench_scores(outcomes, self.main)

    def _prompt(self, task: Task, answer: str) -> str:
        level: int = task.row["level"]
        first, *later = task.row["instructions"]
        steps = [fenced(text, f"instruction_plus_{i}") for i, text in enumerate(later, start=1)]
        constraint_type = task.row["type"]
        values = {
            "kind": "" if constraint_type == "mixed" else f"{constraint_type} ",
            "note": _NOTES.get(constraint_type, ""),
            "initial": fenced(first, "initial_instruction"),
            "steps": "\n\n".join(steps),
            "answer": fenced(answer, "answer"),
        }
        if level == 1:
            return fill(self.one_template, values)
        return fill(self.template, {**values, "num": str(level)})


def _judged(task: Task, replies: Replies) -> Satisfied | None:
    """What the last reply says; None when there is none that can be read."""
    made = replies.get(CALL_KEY, ())
    return read_reply(made[-1], task.row["level"]) if made else None


def _load_type(constraint_type: str, name: str, rows: Sequence[Row]) -> Loaded:
    """Return the tasks of one file; a level that is judged needs the instructions below it."""
    dropped: dict[str, str] = {}
    groups: dict[int, dict[int, Row]] = defaultdict(dict)
    places: dict[tuple[int, int], str] = {}
    for number, row in enumerate(rows, start=1):
        place = f"{name} row {number}"
        problem = _problem(row)
        if problem is None and row["level"] in groups[row["example_id"]]:
            problem = f"example_id {row['example_id']} has level {row['level']} already"
        if problem is not None:
            dropped[place] = problem
            continue
        groups[row["example_id"]][row["level"]] = row
        places[row["example_id"], row["level"]] = place
    tasks: list[Task] = []
    for group, by_level in groups.items():
        for level in (n for n in LEVELS if n in by_level):
            task = _task(constraint_type, by_level, level)
            if isinstance(task, str):
                dropped[places[group, level]] = task
            else:
                tasks.append(task)
    return Loaded(tasks=tuple(tasks), dropped=dropped)


def _task(constraint_type: str, by_level: Mapping[int, Row], level: int) -> Task | str:
    """The task of one level of a group, or why there is none."""
    row = by_level[level]
    rule = rule_of(constraint_type, row)
    instructions: list[str] = []
    if rule == "CONLL2003":
        try:
            named_entities(row["target"])
        except ValueError as error:
            return str(error)
    if rule is None:
        absent = [n for n in range(level) if n not in by_level]
        if absent:
            return f"got no row of level {absent} of its group, which the judge has to see"
        instructions = [by_level[n]["instruction"] for n in range(level + 1)]
    kept = {key: row[key] for key in ("example_id", "level", "category", "source", "target")}
    return Task(
        id=f"{constraint_type}-{row['example_id']}-{level}",
        messages=(Message(role="user", content=row["instruction"]),),
        row={"type": constraint_type, **kept, "rule": rule, "instructions": instructions},
    )


def _problem(row: Row) -> str | None:
    """Why a row cannot be used."""
    for key, kind in _FIELDS.items():
        if not isinstance(row.get(key), kind) or isinstance(row.get(key), bool):
            return f"got {key}={row.get(key)!r}, wanted {kind.__name__}"
    if row["level"] not in (0, *LEVELS):
        return f"got level {row['level']}, wanted 0 to 5"
    if row["level"] > 0 and not row["instruction"].strip():
        return "got a blank instruction, wanted one"
    return None
