"""The loop with fakes on all sides, for its unit tests."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from core.config import RunConfig
from core.query import Anchor, Message, Query
from core.records import ScoredGroup
from core.rubric import Criterion, Rubric
from core.writer_requests import ReplacementRequest
from drivers.checkpoint import Checkpoints, Identity
from drivers.held_out import Evaluator
from drivers.loop import Position, TrainLoop
from drivers.ports import Parts
from drivers.progress import Progress
from tests.fakes import FakeJudge, FakeLearner, FakePool, FakeRecorder, FakeStore, FakeWriter

NUM_QUERIES = 8
IDENTITY = Identity(data_fingerprint="f", seed=0, groups_per_step=2, group_size=2)


def make_queries() -> dict[str, Query]:
    return {
        f"q{i}": Query(
            id=f"q{i}",
            messages=(Message(role="user", content=f"question {i}"),),
            rubric=Rubric(
                criteria=(
                    Criterion(id="c1", text="Is it short"),
                    Criterion(id="c2", text="Is it kind"),
                )
            ),
            anchor=Anchor(response="a good answer"),
        )
        for i in range(NUM_QUERIES)
    }


def make_config(**changes: object) -> RunConfig:
    tree: dict[str, object] = {
        "name": "test",
        "data": {"train": "unused"},
        "policy": {"model": "unused"},
        "sampling": {"group_size": 2, "max_new_tokens": 8},
        # Fake ones; not `rules`, under which no criterion is taken up that code cannot decide.
        "judge": {"backend": "openai", "model": "fake"},
        "loop": {"steps": 6, "groups_per_step": 2, "checkpoint_every": 0},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            part = tree.setdefault(section, {})
            assert isinstance(part, dict)
            part[name] = value
        else:
            tree[section] = value
    return RunConfig.model_validate(tree)


class Rig:
    """A loop with fakes on all sides and a real checkpoint folder."""

    loop_type: type[TrainLoop] = TrainLoop

    def __init__(self, config: RunConfig, folder: Path, **parts: object) -> None:
        self.pool = parts.get("pool") or FakePool()
        self.control = parts.get("control")
        self.reference = parts.get("reference")
        self.spending = parts.get("spending")
        self.learner = parts.get("learner") or FakeLearner()
        self.judge = parts.get("judge") or FakeJudge()
        self.writer = parts.get("writer") or FakeWriter()
        self.store = parts.get("store") or FakeStore()
        self.recorder = FakeRecorder()
        self.config = config
        self.folder = folder
        self.queries = make_queries()

    def loop(self) -> TrainLoop:
        parts = Parts(
            pool=self.pool,
            learner=self.learner,
            judge=self.judge,
            writer=self.writer,
            store=self.store,
            control=self.control,
            reference=self.reference,
            spending=self.spending,
        )
        checkpoints = Checkpoints(
            self.folder, self.learner, self.store, IDENTITY, num_kept=2, wall_s=lambda: 1.0
        )
        evaluator = Evaluator(
            self.config, list(self.queries.values())[:2], self.pool, self.judge, self.store
        )
        return self.loop_type(
            self.config,
            self.queries,
            parts,
            self.recorder,
            checkpoints,
            evaluator,
            Progress(self.config.loop.steps, 0),
        )

    async def register(self) -> None:
        await self.store.register({q.id: q.rubric for q in self.queries.values()})

    async def run(self, start: Position | None = None) -> Position:
        await self.register()
        return await asyncio.wait_for(self.loop().run(start or Position()), 20)

    def groups_of(self, query_id: str) -> list[ScoredGroup]:
        return [g for _, groups, _ in self.recorder.steps for g in groups if g.query.id == query_id]

    def trained(self) -> list[list[str]]:
        return [[g.draw.query_id for g in groups] for _, groups, _ in self.recorder.steps]

    def trained_in_a_row(self) -> list[str]:
        return [query_id for step in self.trained() for query_id in step]


class SharedRig(Rig):
    """Its queries are of ``tasks`` in turn; the queries of a task share ``rubric``."""

    def __init__(  # type: ignore[no-untyped-def]
        self, config, folder: Path, rubric: Rubric, tasks: Sequence[str], **parts: object
    ) -> None:
        super().__init__(config, folder, **parts)
        self.queries = {
            key: query.model_copy(update={"task": tasks[i % len(tasks)], "rubric": rubric})
            for i, (key, query) in enumerate(make_queries().items())
        }

    async def register(self) -> None:
        await self.store.register({f"task:{q.task}": q.rubric for q in self.queries.values()})


def rewards(group: ScoredGroup) -> list[float | None]:
    return [r.reward for r in group.rollouts]


def replacement_reply(
    request: ReplacementRequest, check: Callable[[str], str] = "Fresh check {}".format
) -> str:
    """Replace as many saturated criteria as may be; ``check`` makes the text from the id."""
    updates = [
        {
            "id": i,
            "polarity": "negative",
            "diagnosis": {
                "difference": "one is longer",
                "best_rollout_ids": ["R0"],
                "weaker_rollout_ids": ["R1"],
                "learning_direction": "avoid it",
                "nonredundancy": "not covered",
            },
            "rubric": {
                "id": i,
                "check": check(i),
                "max_points": 1,
                "scoring_rule": "1 = absent; 0 = present",
            },
        }
        for i in request.saturated_ids[: request.num_updates]
    ]
    return json.dumps({"updates": updates})
