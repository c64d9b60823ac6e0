"""Rubrics and commits for the tests of the rubric file."""

from actors.rubric_log import RubricLog
from core.records import Commit, Evidence, RubricEdit
from core.rubric import Criterion, Rubric


def make_rubric(text: str = "Is it short?") -> Rubric:
    return Rubric(criteria=(Criterion(id="c1", text=text),))


TWO = {"q1": make_rubric(), "q2": make_rubric()}


def make_commit(
    rubric: Rubric, text: str, *, step: int, key: str = "", query_id: str = "q1"
) -> Commit:
    new = Criterion(id=f"c{rubric.version + 2}", text=text, kind="resist")
    edit = RubricEdit(
        method="care",
        branch="adaptive",
        status="accepted",
        new=new,
        evidence=Evidence(rollouts=(2,), quotes=("ha ha \ud83d ha",), analysis="repeats"),
    )
    return Commit(
        query_id=query_id,
        from_version=rubric.version,
        rubric=rubric.with_criteria((*rubric.criteria, new)),
        edits=(edit,),
        step=step,
        visit=step,
        key=key or f"{query_id}-{step}",
        writer="rules",
        seconds=0.5,
    )


def commit_steps(log: RubricLog, *steps: int, query_id: str = "q1") -> None:
    for step in steps:
        commit = make_commit(log.current(query_id), f"text {step}", step=step, query_id=query_id)
        assert log.commit(commit).status == "applied"
