"""A run that is stopped or killed again and again comes to what it would have come to at once.

Pool, judge and writer answer by rule and after random pauses; the rubric file is real. What must
be the same, for every method and policy age: which draws each step trained, under which rubric
version and criteria, with which rewards, and all versions of all rubrics.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.rubric_log import RubricLog
from core.config_evolution import rubric_scope
from core.query import rubric_id
from core.records import (
    Completion,
    GenerateRequest,
    JudgeReply,
    JudgeRequest,
    Rollout,
    ScoredGroup,
    Verdict,
)
from core.rubric import Criterion
from core.writer_requests import WriterRequest
from drivers.checkpoint import latest_checkpoint
from drivers.loop import Position
from drivers.methods.shared_revision import graded_group
from tests.fakes import FakeJudge, FakePool, FakeWriter
from tests.unit.loop_rig import NUM_QUERIES, Rig, make_config
from tests.unit.scripted_writer import number_of, scripted_reply

STEPS = 5
GATES = {"anchor_passes": True, "discriminates": True, "not_redundant": True, "max_active": 4}
METHODS: Mapping[str, Mapping[str, object]] = {
    "care": {"method": "care"},
    "care in the same step": {"method": "care", "apply": "same_step", "gates": GATES},
    "rare": {"method": "rare"},
    "rler": {"method": "rler"},
    "online_rubrics": {"method": "online_rubrics", "online": {"control_group_size": 2}},
    "ratchet": {"method": "ratchet", "gates": GATES, "trigger": {"when": "always"}},
    "ratchet, for a person": {"method": "ratchet", "approval": "person"},
    "rare for a task": {
        "method": "rare",
        "scope": "task",
        "task": {"min_groups": 2, "max_groups": 3, "revisions": 3, "max_mean_shift": 1.0},
    },
    "mpo": {"method": "mpo", "mpo": {"every_steps": 2, "num_samples": 3}},
}
SHARED = ("rare for a task", "mpo")
"""With a higher age the version of a shared rubric that a draw is pinned with is a race."""
CASES = [(name, age) for name in METHODS for age in ((0,) if name in SHARED else (0, 2))]

Pause = Callable[[], float]
Steps = list[tuple[int, list[ScoredGroup]]]


class Pool(FakePool):
    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self.pause = pause

    async def generate(self, request: GenerateRequest) -> Rollout:
        await asyncio.sleep(self.pause())
        return await super().generate(request)


class Judge(FakeJudge):
    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self.pause = pause

    def verdict(self, criterion: Criterion, response: str) -> Verdict:
        """Mostly full, so that groups saturate; at times none, so that rollouts are ungraded."""
        number = number_of(criterion.text, response)
        is_failed, score = number % 29 == 0, float(criterion.max if number % 3 else 0)
        return Verdict(
            criterion_id=criterion.id,
            score=None if is_failed else score,
            max=criterion.max,
            failure="unavailable" if is_failed else None,
        )

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        await asyncio.sleep(self.pause())
        return await super().grade(request)


class Writer(FakeWriter):
    def __init__(self, pause: Pause) -> None:
        super().__init__(scripted_reply)
        self.pause = pause

    async def write(self, request: WriterRequest) -> Completion:
        await asyncio.sleep(self.pause())
        return await super().write(request)


class Store:
    """The store's port over a real rubric file."""

    def __init__(self, path: Path, pause: Pause) -> None:
        self.log = RubricLog(path)
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        async def call(*args: object) -> object:
            await asyncio.sleep(self._pause())
            return getattr(self.log, name)(*args)

        return call


@dataclass
class Life:
    """One start of a run, up to its end or until it is broken off."""

    rig: Rig
    store: Store

    async def go(self, trained: Steps, after_s: float | None, *, is_killed: bool) -> bool:
        """Go on from the last checkpoint; True when the run is at its end."""
        found = latest_checkpoint(self.rig.folder)
        position = found.position if found else Position()
        scope = rubric_scope(self.rig.config.evolution)
        await self.store.register({rubric_id(q, scope): q.rubric for q in self.queries()})
        await self.store.restore(str(found.folder / "store") if found else "", position.step)
        del trained[position.step :]
        past = [g for step, groups in trained for g in groups if step > position.step - 2]
        loop = self.rig.loop()
        task = asyncio.create_task(loop.run(position, [graded_group(g) for g in past]))
        try:
            await asyncio.wait([task], timeout=after_s)
            if not task.done() and is_killed:
                task.cancel()
            loop.request_stop()
            end = await asyncio.wait_for(task, 30)
        except asyncio.CancelledError:
            return False
        finally:
            trained += [(s, list(groups)) for s, groups, _ in self.rig.recorder.steps]
        return end.step >= STEPS

    def queries(self) -> list[Any]:
        return list(self.rig.queries.values())


def a_life(name: str, age: int, folder: Path, pause: Pause) -> Life:
    config = make_config(
        sampling__group_size=3,
        loop__steps=STEPS,
        loop__groups_per_step=NUM_QUERIES,  # each query in every step
        loop__max_policy_age=age,
        loop__checkpoint_every=2,
        evolution={**METHODS[name], "deadline_s": 20.0},
    )
    store = Store(folder / "rubrics.sqlite", pause)
    rig = Rig(
        config,
        folder / "checkpoints",
        pool=Pool(pause),
        judge=Judge(pause),
        writer=Writer(pause),
        store=store,
        control=Pool(pause) if name == "online_rubrics" else None,
    )
    if name in SHARED:
        rig.queries = {
            n: q.model_copy(update={"task": f"task {int(n[1:]) % 2}"})
            for n, q in rig.queries.items()
        }
    return Life(rig, store)


async def outcome(name: str, age: int, folder: Path, breaks: random.Random | None) -> object:
    """Run to the end, broken off some times where ``breaks`` says so."""
    (folder / "checkpoints").mkdir(parents=True)
    trained: Steps = []
    for number in range(9):
        pause: Pause = (lambda: 0.0) if breaks is None else (lambda: breaks.random() * 0.004)
        life = a_life(name, age, folder, pause)
        after_s = None if breaks is None or number == 8 else breaks.random() * 0.3
        is_killed = breaks is not None and breaks.random() < 0.5
        is_done = await life.go(trained, after_s, is_killed=is_killed)
        log = life.store.log
        versions = {k: [v.rubric for v in log.history(k)] for k in log.query_ids()}
        log.close()
        if is_done:
            return versions, [(step, list(map(_seen, groups))) for step, groups in trained]
    raise AssertionError("the last life goes to the end")


def _seen(group: ScoredGroup) -> object:
    draw = group.draw
    return draw.query_id, draw.visit, group.rubric, [r.reward for r in group.rollouts]


@pytest.mark.parametrize(("name", "age"), CASES)
async def test_a_broken_run_comes_to_what_it_would_have_come_to(
    name: str, age: int, tmp_path: Path
) -> None:
    whole = await outcome(name, age, tmp_path / "whole", None)
    for seed in range(2):
        breaks = random.Random(f"{name} {age} {seed}")
        assert await outcome(name, age, tmp_path / str(seed), breaks) == whole
