"""A small run made by the project's own writers: twelve steps in which one rubric learns to resist.

Query ``q1`` begins with one criterion. At step 3 a rollout games it, and an adaptive edit puts in a
[Resist] criterion; later rollouts are graded under version 1. Query ``q2`` keeps its rubric. Gold
rises from 0 to 1 at step 6.
"""

from collections.abc import Mapping
from pathlib import Path

from actors.rubric_log import RubricLog
from core.advantage import score_group
from core.config import RunConfig
from core.query import Query
from core.records import (
    Commit,
    Draw,
    EditEvent,
    EditOrigin,
    Evidence,
    GradedGroup,
    GradedRollout,
    Rollout,
    RubricEdit,
    ScoredGroup,
    Verdict,
)
from core.rubric import Criterion, Rubric
from drivers.config_file import dump_config
from drivers.run_folder import RunFolder, RunRecorder
from drivers.trackers import Trackers

NUM_STEPS = 12
HACK = "great great great <script>alert(1)</script> great \ud83d"
GOOD = "A calm and short answer."
RESIST = Criterion(id="c1", text="It does not repeat <b>one word</b>.", kind="resist")


def event_of(draw: Draw, edit: RubricEdit, to_version: int, seconds: float) -> EditEvent:
    """The event of an edit of the query's first version."""
    origin = EditOrigin(rubric_id=draw.query_id, step=draw.step, visit=draw.visit)
    return EditEvent(
        edit=edit, origin=origin, from_version=0, to_version=to_version, seconds=seconds
    )


def example_config() -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "example",
            "seed": 3,
            "data": {"train": "queries.jsonl"},
            "policy": {"model": "packaged:smollm2-135m-instruct"},
            "evolution": {"method": "care"},
            "loop": {"steps": NUM_STEPS, "groups_per_step": 2},
        }
    )


def example_query(query_id: str) -> Query:
    return Query.model_validate(
        {
            "id": query_id,
            "messages": [{"role": "user", "content": "Say something kind."}],
            "rubric": [{"id": "c0", "text": "It says 'great'."}],
            "gold": [{"id": "g0", "text": "It is calm."}],
        }
    )


def example_group(query: Query, rubric: Rubric, step: int, *, failure: bool = False) -> ScoredGroup:
    """Four rollouts: the first games the criterion, the others do not; one may be ungraded."""
    rollouts: list[GradedRollout] = []
    for index in range(4):
        is_hack = index == 0
        scores: Mapping[str, float] = {
            "c0": 1.0 if is_hack else float(index % 2),
            "c1": not is_hack,
        }
        verdicts = {
            c.id: Verdict(criterion_id=c.id, score=float(scores[c.id]), max=1, reason="seen")
            for c in rubric.criteria
        }
        if failure and index == 3:
            verdicts["c0"] = Verdict(criterion_id="c0", score=None, max=1, failure="timeout")
        gold = {"g0": Verdict(criterion_id="g0", score=1.0 if step >= 6 else 0.0, max=1)}
        rollouts.append(
            GradedRollout(
                rollout=example_rollout(query.id, step, index, HACK if is_hack else GOOD),
                verdicts=verdicts,
                gold=gold,
            )
        )
    group = GradedGroup(
        draw=Draw(query_id=query.id, step=step, position=0, visit=step - 1),
        query=query,
        rubric=rubric,
        rollouts=tuple(rollouts),
        judge="rules",
    )
    config = example_config()
    return score_group(group, config.reward, config.advantage)


def example_rollout(query_id: str, step: int, index: int, response: str) -> Rollout:
    return Rollout(
        query_id=query_id,
        visit=step - 1,
        index=index,
        response=response,
        finish_reason="stop",
        prompt_token_ids=(1, 2),
        token_ids=(3, 4, 5),
        rollout_logprobs=(-0.1, -0.2, -0.3),
        policy_version_first=step - 1,
        policy_version_last=step - 1,
    )


def resist_edit(quote: str = "great great great", index: int = 0) -> RubricEdit:
    return RubricEdit(
        method="care",
        branch="adaptive",
        status="accepted",
        new=RESIST,
        evidence=Evidence(rollouts=(index,), quotes=(quote,), analysis="<i>one word</i> again"),
    )


def make_run(
    path: Path, *, edit: RubricEdit | None = None, num_steps: int = NUM_STEPS
) -> RunFolder:
    """Write the run's folder with the project's own writers."""
    folder = RunFolder(path)
    folder.begin(dump_config(example_config()), 0)
    queries = [example_query("q1"), example_query("q2")]
    log = RubricLog(folder.rubrics)
    log.register({q.id: q.rubric for q in queries})
    recorder = RunRecorder(folder.files, Trackers([]))
    for step in range(1, num_steps + 1):
        groups = [
            example_group(q, log.current(q.id), step, failure=(step == 2 and q.id == "q2"))
            for q in queries
        ]
        if step == 3:
            _commit(log, recorder, groups[0], edit or resist_edit())
        refused = RubricEdit(method="care", branch="chase", status="refused", reason="both tags")
        recorder.edit(event_of(groups[1].draw, refused, 0, 0.1))
        recorder.step(step, groups, {"timing_s/step": 2.0, "judge/calls": step * 8.0})
    log.close()
    return folder


def _commit(log: RubricLog, recorder: RunRecorder, group: ScoredGroup, edit: RubricEdit) -> None:
    assert edit.new is not None
    result = log.commit(
        Commit(
            query_id=group.query.id,
            from_version=0,
            rubric=group.rubric.with_criteria((*group.rubric.criteria, edit.new)),
            edits=(edit,),
            step=group.draw.step,
            visit=group.draw.visit,
            key="q1-3",
            writer="rules",
        )
    )
    assert result.status == "applied"
    recorder.edit(event_of(group.draw, edit, 1, 0.5))
