"""A run of RARE as files, made by the project's own writers: two queries, two visits, 8 rollouts.

At step 1 all of q1 have 2 of 2 on ``c0``; it is replaced, and the joint rescoring gives 2 2 2 2 1 1
0 0. At step 2 all of q1 have full score on the replacement, and the writer's tries are used up. q2
never saturates. ``c1`` (0..1) stays 1 0 1 0 1 0 1 0 throughout.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from actors.rubric_log import RubricLog
from core.advantage import score_group
from core.config import RunConfig
from core.evolution.rare import Replaced, Replacements, apply_replacements
from core.evolution.rare_reply import Replacement
from core.query import Query
from core.records import (
    Commit,
    Draw,
    EditEvent,
    EditOrigin,
    GradedGroup,
    GradedRollout,
    RescoreReply,
    RubricEdit,
    Verdict,
)
from core.rubric import Criterion, Rubric
from drivers.config_file import dump_config
from drivers.run_files import RunFiles
from drivers.run_folder import RunFolder, RunRecorder
from drivers.trackers import Trackers
from tests.run_example import example_rollout

OLD = Criterion(id="c0", text="It has a hero", max=2)
STAYS = Criterion(id="c1", text="It has an end")
NEW = Criterion(id="c0", text="The hero pays a price", max=2)
FULL = (2, 2, 2, 2, 2, 2, 2, 2)
RESCORED = (2, 2, 2, 2, 1, 1, 0, 0)
OPEN = (2, 2, 2, 2, 2, 2, 2, 1)
HALF = (1, 0, 1, 0, 1, 0, 1, 0)


def rare_config(data: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "rare",
            "seed": 3,
            "data": {"train": str(data)},
            "policy": {"model": "packaged:smollm2-135m-instruct"},
            "evolution": {"method": "rare"},
            "sampling": {"group_size": 8, "max_new_tokens": 32},
            "loop": {"steps": 2, "groups_per_step": 2},
        }
    )


def rare_queries() -> list[Query]:
    rubric = Rubric(criteria=(OLD, STAYS))
    return [
        Query.model_validate(
            {
                "id": i,
                "messages": [{"role": "user", "content": f"A script, {i}."}],
                "rubric": rubric,
                "meta": {"stem": "video_1", "medium": "2d"},
            }
        )
        for i in ("q1", "q2")
    ]


def make_rare_run(path: Path) -> RunFiles:
    """Write the run's folder, and its query file beside it."""
    data = path.parent / f"{path.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    queries = rare_queries()
    data.write_text("".join(json.dumps(_native(q)) + "\n" for q in queries))
    config = rare_config(data)
    folder = RunFolder(path)
    folder.begin(dump_config(config), 0)
    log = RubricLog(folder.rubrics)
    log.register({q.id: q.rubric for q in queries})
    recorder = RunRecorder(folder.files, Trackers([]))
    q1, q2 = queries
    replaced = _replace(log, recorder, _group(q1, q1.rubric, 1, FULL))
    groups = [replaced.group, _group(q2, q2.rubric, 1, OPEN)]
    _record(recorder, config, 1, groups)
    failed = RubricEdit(method="rare", branch="replacement", status="failed", reason="5 tries")
    recorder.edit(_event(Draw(query_id="q1", step=2, position=0, visit=1), failed, 1, 1))
    _record(
        recorder,
        config,
        2,
        [_group(q1, log.current("q1"), 2, FULL), _group(q2, q2.rubric, 2, OPEN)],
    )
    log.close()
    return folder.files


def _native(query: Query) -> dict[str, object]:
    row = query.model_dump(mode="json", exclude_none=True)
    return row | {"rubric": row["rubric"]["criteria"]}


def _group(query: Query, rubric: Rubric, step: int, scores: Sequence[int]) -> GradedGroup:
    rollouts = tuple(
        GradedRollout(
            rollout=example_rollout(query.id, step, index, f"Script {index}."),
            verdicts={
                "c0": Verdict(criterion_id="c0", score=float(score), max=2),
                "c1": Verdict(criterion_id="c1", score=float(HALF[index]), max=1),
            },
        )
        for index, score in enumerate(scores)
    )
    position = 0 if query.id == "q1" else 1
    draw = Draw(query_id=query.id, step=step, position=position, visit=step - 1)
    return GradedGroup(draw=draw, query=query, rubric=rubric, rollouts=rollouts, judge="rules")


def _replace(log: RubricLog, recorder: RunRecorder, group: GradedGroup) -> Replaced:
    replacement = Replacement(
        criterion=NEW,
        polarity="negative",
        difference="some heroes win for free",
        learning_direction="a price",
        nonredundancy="nobody asks for it",
        best=(0,),
        weaker=(7,),
    )
    scores = [(Verdict(criterion_id="c0", score=float(s), max=2),) for s in RESCORED]
    reply = RescoreReply(verdicts=tuple(scores), judge="rules")
    replaced = apply_replacements(group, Replacements(items=(replacement,)), reply)
    edits = replaced.evolution.edits
    log.commit(
        Commit(
            query_id="q1",
            from_version=0,
            rubric=replaced.evolution.rubric,
            edits=edits,
            step=1,
            visit=0,
            key="q1:0:replacement",
            writer="rules",
        )
    )
    for edit in edits:
        recorder.edit(_event(group.draw, edit, 0, 1))
    return replaced


def _event(draw: Draw, edit: RubricEdit, from_version: int, to_version: int) -> EditEvent:
    origin = EditOrigin(rubric_id=draw.query_id, step=draw.step, visit=draw.visit)
    return EditEvent(
        edit=edit, origin=origin, from_version=from_version, to_version=to_version, seconds=0.5
    )


def _record(
    recorder: RunRecorder, config: RunConfig, step: int, groups: Sequence[GradedGroup]
) -> None:
    scored = [score_group(g, config.reward, config.advantage) for g in groups]
    metrics = {
        "timing_s/step": 4.0,
        "timing_s/evolve_total": 3.0,
        "timing_s/evolve_exposed": 1.0,
        "judge/calls": step * 17.0,
        "evolving_rubrics/writer_calls": 1.0,
        "evolving_rubrics/rescored_calls": 1.0,
    }
    recorder.step(step, scored, metrics)
