"""Win rate against a fixed opponent: each task's anchor, or the responses of a file.

``one_order`` (CARE section 4.1: random order to lessen position bias): the order of a task is drawn
from its id and the seed, the judge is asked once, and the verdict is told for the policy whichever
place it had. ``both_orders`` (RARE appendix A.3): both orders, and a third pass, in a drawn order,
where they disagree; two matching verdicts decide, and three different ones are a tie, as RARE
counts a case without a majority. A win is 1, a tie 0.5, a loss 0. A task with a pass that cannot be
read is counted as missing and is in no mean.
Files for ``load``: query rows of any format that the project reads (a rubric is not needed), and
optionally rows ``{"id", "response"}`` of the opponent, which then win over anchors.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.benchmarks.arena_labels import Game, preferred_side, read_game
from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.errors import ConfigError
from core.formats.reading import read_rows, with_rubric
from core.formats.rows import Row as FileRow
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Query
from core.rows import Row
from core.rubric import Criterion, Rubric
from core.templates import fenced, fill

Mode = Literal["one_order", "both_orders"]
Verdict = Literal["win", "tie", "loss"]

VALUES: dict[str, float] = {"win": 1.0, "tie": 0.5, "loss": 0.0}

_ONLY, _FORWARD, _BACKWARD, _THIRD = "pass", "policy first", "opponent first", "third pass"
_JUDGE_SAMPLING = Sampling(temperature=0.0, max_tokens=2048)
_NO_RUBRIC = Rubric(criteria=(Criterion(id="unused", text="unused"),))


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwisePrompts:
    """The templates ``bench_pairwise`` and ``bench_arena_again``."""

    user: str
    again: str
    """Stands below the prompt when a reply had no verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairwise:
    """The benchmark; ConfigError for a mode that there is not."""

    prompts: PairwisePrompts
    mode: Mode = "one_order"
    seed: int = 0
    """Of the drawn orders."""
    attempts: int = 3
    judge_sampling: Sampling = _JUDGE_SAMPLING
    max_answer_tokens: int = 4096
    replicates: int = 10_000

    def __post_init__(self) -> None:
        if self.mode not in ("one_order", "both_orders"):
            raise ConfigError(f"got mode {self.mode!r}, wanted one_order or both_orders")
        if self.attempts < 1:
            raise ConfigError(f"got attempts={self.attempts}, wanted at least 1")

    @property
    def name(self) -> str:
        """``pairwise``."""
        return "pairwise"

    @property
    def answer_sampling(self) -> Sampling:
        """Greedy; the papers do not say how these answers are drawn."""
        return Sampling(temperature=0.0, max_tokens=self.max_answer_tokens)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return a task for each query with an opponent's response, in file order."""
        opponents: dict[str, str] = {}
        queries: dict[str, Query] = {}
        dropped: dict[str, str] = {}
        for name, rows in files.items():
            if rows and all(_is_opponent(row) for row in rows):
                opponents |= {str(row["id"]): row["response"] for row in rows}
            else:
                _add_queries(name, rows, queries, dropped)
        if not queries:
            raise ConfigError(
                f"got no query in {', '.join(sorted(files)) or 'no file'}, wanted rows with a "
                "prompt (and an anchor, or a file of the opponent's {id, response})"
            )
        tasks: list[Task] = []
        for query in queries.values():
            opponent, response = _opponent(query, opponents)
            if response is None:
                dropped[query.id] = f"no response of {opponent}"
            else:
                tasks.append(_task(query, opponent, response))
        if not tasks:
            raise ConfigError(
                f"got {len(queries)} queries and no response to compare with, wanted an anchor in "
                "each row or a file of the opponent's {id, response} with the queries' ids"
            )
        return Loaded(tasks=tuple(tasks), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the passes without a verdict that have tries left; the third only on conflict."""
        calls: list[JudgeCall] = []
        for key in self._passes(task, replies):
            made = replies.get(key, ())
            if to_ask_again(replies, key, read_game(made).label is not None, self.attempts):
                calls.append(JudgeCall(key=key, call=self._call(task, answer, key, len(made))))
        return calls

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return the verdict for the policy, and what each pass said."""
        passes = {key: read_game(replies.get(key, ())) for key in self._passes(task, replies)}
        verdicts: list[Verdict | None] = [
            self._verdict(task, key, game) for key, game in passes.items()
        ]
        return {
            "id": task.id,
            "task": task.row["task"],
            "opponent": task.row["opponent"],
            "verdict": _majority(verdicts),
            "passes": [
                {
                    "name": key,
                    "first": "policy" if self._is_policy_first(task, key) else "opponent",
                    "label": game.label,
                    "odd": game.odd,
                    "tries": game.tries,
                    "side": None if game.label is None else preferred_side(game.label),
                    "verdict": verdict,
                }
                for (key, game), verdict in zip(passes.items(), verdicts, strict=True)
            ],
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return the win rate in percent (a tie is half a win) and what stands behind it.

        Where every row has a task, the interval resamples prompts within tasks, as RARE's does
        within video types; else prompts. ``directional_agreement`` is the share of tasks whose
        verdict the other order did not change (RARE appendix A.3).
        """
        counted = [o for o in outcomes if o["verdict"] is not None]
        passes = [p for o in outcomes for p in o["passes"]]
        by_task = sorted({o["task"] for o in counted if o["task"] is not None})
        main = self._rates(counted)
        return {
            "main": {"name": f"win rate against {_opponents(outcomes)} (%)", **main},
            "missing": len(outcomes) - len(counted),
            "unread": {
                "passes": sum(p["verdict"] is None for p in passes),
                "odd_labels": dict(Counter(p["odd"] for p in passes if p["odd"] is not None)),
            },
            "mode": self.mode,
            "preference_score": main["value"],
            "by_task": {
                name: self._rates([o for o in counted if o["task"] == name]) for name in by_task
            },
            "position": _position(passes),
            **({} if self.mode == "one_order" else {"orders": _orders(outcomes)}),
        }

    def _passes(self, task: Task, replies: Replies) -> tuple[str, ...]:
        """Return the keys of the passes that the replies so far call for."""
        if self.mode == "one_order":
            return (_ONLY,)
        two = [
            self._verdict(task, key, read_game(replies.get(key, ())))
            for key in (_FORWARD, _BACKWARD)
        ]
        is_conflict = None not in two and two[0] != two[1]
        return (_FORWARD, _BACKWARD, *((_THIRD,) if is_conflict else ()))

    def _is_policy_first(self, task: Task, key: str) -> bool:
        if key in (_FORWARD, _BACKWARD):
            return key == _FORWARD
        drawn = hashlib.sha256(f"{self.seed}:{key}:{task.id}".encode("utf-8", "replace")).digest()
        return drawn[0] % 2 == 0

    def _verdict(self, task: Task, key: str, game: Game) -> Verdict | None:
        if game.label is None:
            return None
        side = preferred_side(game.label)
        if side == "tie":
            return "tie"
        return "win" if (side == "A") == self._is_policy_first(task, key) else "loss"

    def _call(self, task: Task, answer: str, key: str, num_made: int) -> ModelCall:
        opponent = task.row["response"]
        is_first = self._is_policy_first(task, key)
        first, second = (answer, opponent) if is_first else (opponent, answer)
        text = fill(
            self.prompts.user,
            {
                "prompt": fenced(task.row["prompt"], "task"),
                "answer_a": fenced(first, "response_a"),
                "answer_b": fenced(second, "response_b"),
            },
        )
        seed = self.judge_sampling.seed + num_made
        return user_call(
            f"{text}\n{self.prompts.again}" if num_made else text,
            sampling=replace(self.judge_sampling, seed=seed),
        )

    def _rates(self, counted: Sequence[Row]) -> Row:
        from core.statistics import bootstrap_interval

        verdicts = Counter(o["verdict"] for o in counted)
        wins, ties, losses = verdicts["win"], verdicts["tie"], verdicts["loss"]
        numbers: Row = {"n": len(counted), "wins": wins, "ties": ties, "losses": losses}
        if not counted:
            return {"value": None, "low": None, "high": None, **numbers, "without_ties": None}
        values = [100.0 * VALUES[o["verdict"]] for o in counted]
        tasks = [o["task"] for o in counted]
        interval = bootstrap_interval(
            values, strata=None if None in tasks else tasks, replicates=self.replicates
        )
        return {
            "value": sum(values) / len(values),
            "low": interval.low,
            "high": interval.high,
            **numbers,
            "without_ties": 100.0 * wins / (wins + losses) if wins + losses else None,
        }


def _is_opponent(row: Row) -> bool:
    is_query = any(key in row for key in ("messages", "prompt", "rubric", "anchor"))
    return not is_query and "id" in row and isinstance(row.get("response"), str)


def _add_queries(
    name: str, rows: Sequence[Row], queries: dict[str, Query], dropped: dict[str, str]
) -> None:
    given = [with_rubric(FileRow(number=i, value=row), _NO_RUBRIC) for i, row in enumerate(rows)]
    read = read_rows(given)
    for lost in read.dropped:
        dropped[f"{name}:{lost.row + 1}"] = f"{lost.reason}: {lost.detail}".removesuffix(": ")
    for query in read.queries:
        if query.id in queries:
            dropped[f"{name} {query.id}"] = "the id of a query in an earlier file"
        else:
            queries[query.id] = query


def _opponent(query: Query, opponents: Mapping[str, str]) -> tuple[str, str | None]:
    """Return who the opponent of a query is, and its response if there is one."""
    if opponents:
        return "the opponent's file", opponents.get(query.id)
    if query.anchor is None:
        return "an anchor", None
    return query.anchor.model, query.anchor.response


def _task(query: Query, opponent: str, response: str) -> Task:
    return Task(
        id=query.id,
        messages=query.messages,
        row={
            "prompt": query.prompt_text,
            "task": query.task,
            "opponent": opponent,
            "response": response,
        },
    )


def _majority(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """Return the verdict of one, two or three passes; None when one of them is missing."""
    known: list[Verdict] = [v for v in verdicts if v is not None]
    if len(known) < len(verdicts):
        return None
    verdict = max(known, key=known.count)
    return verdict if len(verdicts) == 1 or known.count(verdict) > 1 else "tie"


def _opponents(outcomes: Sequence[Row]) -> str:
    names = sorted({o["opponent"] for o in outcomes})
    return names[0] if len(names) == 1 else f"{len(names)} opponents"


def _position(passes: Sequence[Row]) -> Row:
    """Return how often the first place won, which is half of the time for a judge without bias.

    In percent of the passes with a winner; over ``both_orders`` the policy stands first as often as
    not, so that its strength does not show in it.
    """
    sides = Counter(p["side"] for p in passes if p["side"] is not None)
    decided = sides["A"] + sides["B"]
    return {
        "first_won": 100.0 * sides["A"] / decided if decided else None,
        "decided": decided,
        "ties": sides["tie"],
        "policy_first": sum(p["first"] == "policy" for p in passes),
        "passes": len(passes),
    }


def _orders(outcomes: Sequence[Row]) -> Row:
    """Return how the two orders agree, over the tasks in which both have a verdict."""
    pairs = [[p["verdict"] for p in o["passes"][:2]] for o in outcomes]
    both = [pair for pair in pairs if None not in pair]
    agreed = sum(pair[0] == pair[1] for pair in both)
    thirds = [o for o in outcomes if len(o["passes"]) > 2]
    undecided = sum(len({p["verdict"] for p in o["passes"]} - {None}) > 2 for o in thirds)
    return {
        "directional_agreement": 100.0 * agreed / len(both) if both else None,
        "n": len(both),
        "third_passes": len(thirds),
        "without_majority": undecided,
    }
