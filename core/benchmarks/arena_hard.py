"""Arena-Hard v2.0 and v0.1: a judge compares each answer with a baseline's, in both orders.

Rows, games, labels and the vanilla score are the authors' (github lmarena/arena-hard-auto); the
prompts are our words around their tokens. Their categories are never pooled, since each has its own
baseline: scores are by category, and of coding and math inside hard_prompt. A row counts when both
games have a verdict, else it is dropped whole and counted; where they take the first reply as it
is, an unreadable one is asked for again (``attempts``; 1 is their way).
Files for ``load``: ``question.jsonl`` and the baselines' ``model_answer/MODEL.jsonl``; rows with
``metadata`` only serve lengths where the answer's text comes from another file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.benchmarks.arena_files import (
    BASELINES,
    ArenaRows,
    Version,
    group_names,
    read_files,
)
from core.benchmarks.arena_labels import battle_scores, read_game
from core.benchmarks.arena_style import (
    AUTHORS_COUNTER,
    STAND_IN,
    TokenCounter,
    answer_metadata,
    style_controlled,
)
from core.benchmarks.base import JudgeCall, Loaded, Replies, Task, to_ask_again
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Message
from core.rows import Row
from core.templates import fenced, fill

GAMES = ("game 1", "game 2")
"""In game 1 the baseline is A, in game 2 the model is."""

GPT_4_1 = Sampling(temperature=0.0, max_tokens=16_000)
"""How the authors draw their GPT-4.1 judge's replies."""

_OFFICIAL_BOOTSTRAPS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ArenaPrompts:
    """The templates ``bench_arena_*``."""

    hard: str
    """System prompt of hard prompts: the judge answers first."""
    creative: str
    """System prompt of creative writing."""
    user: str
    again: str
    """Stands below the user prompt when a reply had no verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArenaHard:
    """The benchmark; ConfigError for categories that its version does not have."""

    prompts: ArenaPrompts
    version: Version = "v2.0"
    categories: tuple[str, ...] = ()
    """Of ``group_names``; none: all."""
    attempts: int = 3
    judge_sampling: Sampling = GPT_4_1
    counter: TokenCounter = STAND_IN
    replicates: int = 10_000

    def __post_init__(self) -> None:
        if self.version not in BASELINES:
            raise ConfigError(f"got version {self.version!r}, wanted {' or '.join(BASELINES)}")
        unknown = sorted(set(self.categories) - set(group_names(self.version)))
        if unknown:
            raise ConfigError(
                f"got categories {', '.join(unknown)}, wanted some of "
                f"{', '.join(group_names(self.version))} (Arena-Hard {self.version})"
            )
        if self.attempts < 1:
            raise ConfigError(f"got attempts={self.attempts}, wanted at least 1")

    @property
    def name(self) -> str:
        """``arena-hard-v2.0`` or ``arena-hard-v0.1``."""
        return f"arena-hard-{self.version}"

    @property
    def answer_sampling(self) -> Sampling:
        """Greedy, up to 4,096 tokens (the authors' gen_answer_config.yaml)."""
        return Sampling(temperature=0.0, max_tokens=4096)

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return a task for each question with a baseline answer, in the questions' order."""
        read = read_files(files, self.version)
        if not read.questions:
            raise ConfigError(
                f"got no question of Arena-Hard {self.version} in {_named(files)}, wanted its "
                "question.jsonl (rows with uid, category, prompt)"
            )
        dropped = dict(read.dropped)
        tasks: list[Task] = []
        for uid, row in read.questions.items():
            problem = self._problem(row, read)
            if problem:
                dropped[uid] = problem
            else:
                tasks.append(_task(row, read))
        if not tasks:
            wanted = ", ".join(f"{b}.jsonl" for b in BASELINES[self.version].values())
            raise ConfigError(
                f"got {len(read.questions)} questions of Arena-Hard {self.version} and no baseline "
                f"answer to one that is asked for in {_named(files)}, wanted {wanted} of its "
                "model_answer folder"
            )
        return Loaded(tasks=tuple(tasks), dropped=dropped)

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the games without a verdict that have tries left."""
        return [
            JudgeCall(key=key, call=self._call(task, answer, key, len(replies.get(key, ()))))
            for key in GAMES
            if to_ask_again(
                replies, key, read_game(replies.get(key, ())).label is not None, self.attempts
            )
        ]

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return the labels of both games, the scores of the battles, and both answers' style."""
        games = [read_game(replies.get(key, ())) for key in GAMES]
        scores = battle_scores(games[0].label, games[1].label)
        row = task.row
        return {
            "id": task.id,
            "category": row["category"],
            "subcategory": row.get("subcategory", row["category"]),
            "baseline": row["baseline"],
            "games": [asdict(game) for game in games],
            "scores": None if scores is None else list(scores),
            "style": {
                "counter": self.counter.name,
                "model": answer_metadata(answer, self.counter),
                "baseline": self._baseline_metadata(row),
            },
        }

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return vanilla and style-controlled scores by category, in percent.

        ``main`` is the first category's vanilla score (hard_prompt unless others were asked for),
        with the interval clustered by prompt. ``official`` holds what the authors' program prints:
        the mean of 100 bootstraps over battles, with their 5 % and 95 % quantiles.
        """
        groups = {
            name: rows
            for name in self._groups()
            if (rows := [o for o in outcomes if name in (o["category"], o["subcategory"])])
        }
        by_category = {name: self._group_scores(rows) for name, rows in groups.items()}
        head = next(iter(by_category), self._groups()[0])
        vanilla = by_category.get(head, {}).get("vanilla", _NOTHING)
        return {
            "main": {"name": f"{self.name} {head}, vanilla (%)", **vanilla},
            "missing": sum(o["scores"] is None for o in outcomes),
            "unread": _unread(outcomes),
            "by_category": by_category,
        }

    def _groups(self) -> tuple[str, ...]:
        return tuple(n for n in group_names(self.version) if n in (self.categories or (n,)))

    def _problem(self, row: Row, read: ArenaRows) -> str:
        """Return why a question is no task; empty when it is one."""
        names = (row["category"], row.get("subcategory", row["category"]))
        if not set(names) & set(self._groups()):
            return f"category {names[0]} ({names[1]}) was not asked for"
        baseline = BASELINES[self.version][row["category"]]
        answer = read.answers.get((baseline, row["uid"]))
        if answer is None:
            return f"no answer of the baseline {baseline}"
        return "" if answer.text is not None else f"only metadata of the baseline {baseline}"

    def _call(self, task: Task, answer: str, key: str, num_made: int) -> ModelCall:
        baseline = task.row["baseline_answer"]
        first, second = (baseline, answer) if key == GAMES[0] else (answer, baseline)
        prompts, is_creative = self.prompts, task.row["category"] == "creative_writing"
        text = fill(
            prompts.user,
            {
                "prompt": fenced(task.messages[-1].content, "prompt"),
                "answer_a": fenced(first, "answer_a"),
                "answer_b": fenced(second, "answer_b"),
            },
        )
        return user_call(
            f"{text}\n{prompts.again}" if num_made else text,
            system=prompts.creative if is_creative else prompts.hard,
            sampling=replace(self.judge_sampling, seed=self.judge_sampling.seed + num_made),
        )

    def _baseline_metadata(self, row: Row) -> Row:
        """Return the authors' own counts where they count as this benchmark does."""
        given = row["baseline_metadata"]
        if given is not None and self.counter.name == AUTHORS_COUNTER:
            return given
        return answer_metadata(row["baseline_answer"], self.counter)

    def _group_scores(self, rows: Sequence[Row]) -> dict[str, Any]:
        counted = [row for row in rows if row["scores"] is not None]
        result: dict[str, Any] = {
            "baselines": sorted({row["baseline"] for row in rows}),
            "missing": sum(row["scores"] is None for row in rows),
        }
        if not counted:
            return result | {"vanilla": _NOTHING, "official": None, "style_controlled": None}
        return result | {
            "vanilla": self._vanilla(counted),
            "official": _official(counted),
            "style_controlled": self._style(counted),
        }

    def _vanilla(self, counted: Sequence[Row]) -> Row:
        from core.statistics import bootstrap_interval

        values = [100.0 * score for row in counted for score in row["scores"]]
        clusters = [row["id"] for row in counted for _ in row["scores"]]
        interval = bootstrap_interval(values, clusters=clusters, replicates=self.replicates)
        return {
            "value": sum(values) / len(values),
            "low": interval.low,
            "high": interval.high,
            "n": len(counted),
            "battles": len(values),
        }

    def _style(self, counted: Sequence[Row]) -> Row | None:
        """Return the fit of this model alone; several are fitted by ``style_controlled``."""
        if any(row["style"] is None for row in counted):
            return None
        fit = style_controlled({"model": counted}, replicates=self.replicates)
        return {
            **asdict(fit.scores["model"]),
            "counter": fit.counter,
            "coefficients": dict(fit.coefficients),
            "constant_features": list(fit.constant_features),
            "lost_replicates": fit.lost_replicates,
        }


_NOTHING: Row = {"value": None, "low": None, "high": None, "n": 0, "battles": 0}


def _task(row: Row, read: ArenaRows) -> Task:
    baseline = next(b for v in BASELINES.values() if (b := v.get(row["category"])))
    answer = read.answers[baseline, row["uid"]]
    return Task(
        id=row["uid"],
        messages=(Message(role="user", content=row["prompt"]),),
        row={
            **row,
            "baseline": baseline,
            "baseline_answer": answer.text,
            "baseline_metadata": answer.metadata,
        },
    )


def _official(counted: Sequence[Row]) -> Row:
    """Return what show_result.py prints, from draws of our own generator, rounded as there."""
    import numpy as np

    values = np.array([score for row in counted for score in row["scores"]])
    rng = np.random.default_rng(0)
    drawn = rng.choice(values, size=(_OFFICIAL_BOOTSTRAPS, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95])
    named = {"value": drawn.mean(), "low": low, "high": high}
    return {name: round(100.0 * float(value), 1) for name, value in named.items()}


def _unread(outcomes: Sequence[Row]) -> Row:
    """Count games without a verdict, and labels outside the table."""
    games = [game for o in outcomes for game in o["games"] if game["label"] is None]
    odd = Counter(game["odd"] for game in games if game["odd"] is not None)
    return {
        "games": len(games),
        "odd_labels": dict(sorted(odd.items())),
    }


def _named(files: Mapping[str, Sequence[Row]]) -> str:
    return ", ".join(sorted(files)) or "no file"
