"""The record of a run with shared rubrics: rows name the task, report and check find the rubric."""

from pathlib import Path

from actors.rubric_log import RubricLog
from core.advantage import score_group
from core.config import RunConfig
from core.query import Query, rubric_id
from core.records import (
    Commit,
    Draw,
    EditEvent,
    EditOrigin,
    GradedGroup,
    GradedRollout,
    RubricEdit,
    Verdict,
)
from core.rows import row_rubric_id
from core.rubric import Rubric
from drivers.config_file import dump_config
from drivers.jsonl_files import read_rows
from drivers.report_check import check_run
from drivers.report_view import run_view
from drivers.run_files import RunFiles
from tests.unit.method_builders import llm, query, rollout

RUBRIC = Rubric(criteria=(llm("a", max=2),))
NEXT = RUBRIC.with_criteria((llm("a", "stronger", max=2),))
CONFIG = RunConfig.model_validate(
    {
        "name": "shared",
        "data": {"train": "unused"},
        "policy": {"model": "unused"},
        "evolution": {"method": "rare", "scope": "task"},
        "loop": {"steps": 2, "groups_per_step": 1},
    }
)
EDIT = RubricEdit(
    method="rare", branch="task", status="accepted", old=RUBRIC.criteria[0], new=NEXT.criteria[0]
)


def own_query(name: str) -> Query:
    return Query(id=name, messages=query(RUBRIC).messages, rubric=RUBRIC, task="films")


def write_run(folder: Path) -> RunFiles:
    """Two steps of one query each; the rubric was revised after the first."""
    files = RunFiles(folder)
    folder.mkdir()
    files.write_config(dump_config(CONFIG))
    log = RubricLog(files.rubrics)
    log.register({"task:films": RUBRIC})
    log.commit(
        Commit(
            query_id="task:films",
            from_version=0,
            rubric=NEXT,
            edits=(EDIT,),
            step=1,
            visit=0,
            key="task:films:0:task:1",
        )
    )
    log.close()
    origin = EditOrigin(rubric_id="task:films", step=1)
    files.write_edit(EditEvent(edit=EDIT, origin=origin, from_version=0, to_version=1, seconds=0.5))
    for step, rubric in ((1, RUBRIC), (2, NEXT)):
        name = f"q{step}"
        members = [
            GradedRollout(
                rollout=rollout(i, f"{name} {i}"),
                verdicts={"a": Verdict(criterion_id="a", score=float(i), max=2)},
            )
            for i in range(2)
        ]
        group = GradedGroup(
            draw=Draw(query_id=name, step=step, position=0, visit=0),
            query=own_query(name),
            rubric=rubric,
            rollouts=tuple(members),
            judge="j",
        )
        files.write_rollouts(step, [score_group(group, CONFIG.reward, CONFIG.advantage)])
        files.write_step(step, step, {"timing_s/step": 1.0})
    return files


def test_a_row_names_the_task_of_its_query(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run")
    row = next(iter(read_rows(files.rollouts / "step_00001.jsonl")))
    assert row["task"] == "films"
    assert row_rubric_id(row, "task") == rubric_id(own_query("q1"), "task") == "task:films"
    assert row_rubric_id(row, "query") == row["query_id"]


def test_the_check_finds_the_shared_rubric_of_every_row(tmp_path: Path) -> None:
    claims = {c.text: c for c in check_run(write_run(tmp_path / "run"))}
    for text in (
        "every rubric version used is in rubrics.sqlite",
        "rewards computed again from the verdicts agree",
        "accepted edits and rubric versions are the same story",
        "the quotes of all accepted edits stand in the rollouts they name",
    ):
        assert claims[text].holds, claims[text].problems


def test_the_report_shows_rollouts_under_the_shared_rubric(tmp_path: Path) -> None:
    view = run_view(write_run(tmp_path / "run"))
    (rubric,) = view["rubrics"]
    assert [v["version"] for v in rubric["versions"]] == [0, 1]
    assert [r["response"] for r in rubric["rollouts"]] == ["q1 0", "q1 1", "q2 0", "q2 1"]
