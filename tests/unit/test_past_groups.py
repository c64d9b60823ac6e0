"""The groups before a resume come back from the run's files as they were graded."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from core.config_evolution import (
    CareEvolution,
    MpoEvolution,
    RareEvolution,
    RareTaskConfig,
    StaticEvolution,
)
from core.query import Query
from core.records import Commit, Draw, GradedGroup, GradedRollout, ScoredGroup, ScoredRollout
from core.rubric import Rubric
from drivers.past_groups import num_past_steps, past_groups
from drivers.run_files import RunFiles
from tests.fakes import FakeStore
from tests.unit.method_builders import llm, query, rollout, verdict

EVOLUTION = RareEvolution(scope="task")
RUBRIC = Rubric(criteria=(llm("a", max=2),))
NEXT = RUBRIC.with_criteria((llm("a", "stronger", max=2),))
QUERIES = {
    name: Query(id=name, messages=query(RUBRIC).messages, rubric=RUBRIC, task="films")
    for name in ("q1", "q2")
}


def graded(name: str, *, step: int, position: int, rubric: Rubric = RUBRIC) -> GradedGroup:
    members = [
        GradedRollout(
            rollout=replace(rollout(i, f"{name} \ud800 {i}", first=step), query_id=name, visit=1),
            verdicts={"a": verdict("a", score, 2)},
            gold={"g": verdict("g", 1)},
        )
        for i, score in enumerate((2, None))
    ]
    return GradedGroup(
        draw=Draw(query_id=name, step=step, position=position, visit=1),
        query=QUERIES[name],
        rubric=rubric,
        rollouts=tuple(members),
        judge="j",
    )


def scored(group: GradedGroup) -> ScoredGroup:
    return ScoredGroup(
        draw=group.draw,
        query=group.query,
        rubric=group.rubric,
        rollouts=tuple(
            ScoredRollout(graded=r, reward=None, is_vetoed=False, advantage=0.0)
            for r in group.rollouts
        ),
        is_masked=True,
    )


def as_read(group: GradedGroup) -> GradedGroup:
    """No file holds tokens, log-probs, seconds or the judge's identity."""
    members = [
        replace(
            r, rollout=replace(r.rollout, prompt_token_ids=(), token_ids=(), rollout_logprobs=())
        )
        for r in group.rollouts
    ]
    return replace(group, rollouts=tuple(members), judge="")


async def a_run(folder: Path) -> tuple[RunFiles, FakeStore, list[GradedGroup]]:
    """Steps 1 to 4; the rubric was revised after step 3."""
    files, store = RunFiles(folder), FakeStore()
    await store.register({"task:films": RUBRIC})
    await store.commit(
        Commit(
            query_id="task:films", from_version=0, rubric=NEXT, edits=(), step=3, visit=0, key="k"
        )
    )
    groups: list[GradedGroup] = []
    for step in range(1, 5):
        rubric = RUBRIC if step <= 3 else NEXT
        of_step = [
            graded("q2", step=step, position=0, rubric=rubric),
            graded("q1", step=step, position=1, rubric=rubric),
        ]
        files.write_rollouts(step, [scored(g) for g in of_step])
        groups += of_step
    return files, store, groups


async def test_the_last_steps_come_back_in_draw_order_under_their_versions(tmp_path: Path) -> None:
    files, store, groups = await a_run(tmp_path)
    found = await past_groups(files, store, QUERIES, EVOLUTION, last_step=4)
    assert found == [as_read(g) for g in groups if g.draw.step in (3, 4)]
    assert [g.rubric.version for g in found] == [0, 0, 1, 1]


async def test_steps_after_the_checkpoint_are_not_read(tmp_path: Path) -> None:
    files, store, groups = await a_run(tmp_path)
    found = await past_groups(files, store, QUERIES, EVOLUTION, last_step=1)
    assert found == [as_read(g) for g in groups if g.draw.step == 1]
    assert await past_groups(files, store, QUERIES, EVOLUTION, last_step=0) == []


async def test_a_version_that_was_taken_back_is_no_evidence_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, _, groups = await a_run(tmp_path)
    older = FakeStore()
    await older.register({"task:films": RUBRIC})
    with caplog.at_level(logging.WARNING):
        found = await past_groups(files, older, QUERIES, EVOLUTION, last_step=4)
    assert found == [as_read(g) for g in groups if g.draw.step == 3]
    assert "version 1 of its rubric is not known" in caplog.text
    only_q1 = {"q1": QUERIES["q1"]}
    assert len(await past_groups(files, older, only_q1, EVOLUTION, last_step=3)) == 2


def test_only_the_task_level_of_rare_looks_back() -> None:
    assert num_past_steps(EVOLUTION) == 2
    five = RareEvolution(scope="task", task=RareTaskConfig(evidence_steps=5))
    assert num_past_steps(five) == 4
    for other in (RareEvolution(), StaticEvolution(scope="task"), CareEvolution(), MpoEvolution()):
        assert num_past_steps(other) == 0


async def test_a_method_that_does_not_look_back_reads_nothing(tmp_path: Path) -> None:
    files, store, _ = await a_run(tmp_path)
    assert await past_groups(files, store, QUERIES, MpoEvolution(), last_step=4) == []
