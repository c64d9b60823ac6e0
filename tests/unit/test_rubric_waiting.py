"""Edits that wait for a person in the rubric file, and files from before there were any."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from actors.rubric_log import RubricLog
from core.records import Commit
from core.rubric import Rubric
from tests.unit.rubric_builders import TWO, commit_steps, make_commit, make_rubric


@pytest.fixture
def log(tmp_path: Path) -> RubricLog:
    log = RubricLog(tmp_path / "rubrics.sqlite")
    log.register(TWO)
    return log


def proposal(rubric: Rubric, *, step: int, key: str, query_id: str = "q1") -> Commit:
    commit = make_commit(rubric, f"text {key}", step=step, key=key, query_id=query_id)
    return replace(commit, edits=tuple(replace(e, status="waiting") for e in commit.edits))


def test_a_proposed_edit_waits_and_is_committed_once_when_a_person_approves(log: RubricLog):
    log.propose(proposal(log.current("q1"), step=3, key="k"))
    log.propose(proposal(log.current("q1"), step=3, key="k"))
    assert (log.num_waiting("q1"), log.num_waiting("q2")) == (1, 0)
    assert log.current("q1").version == 0
    (edit,) = log.waiting()
    assert edit.is_open
    assert [log.approve(edit.id), log.approve(edit.id)] == ["done", "before"]
    assert log.num_waiting("q1") == 0
    new = log.history("q1")[-1]
    assert (new.version, new.writer, new.step) == (1, "rules", 0)
    assert [(e.status, e.reason) for e in new.edits] == [("accepted", "approved by a person")]
    assert log.reject(edit.id) == "otherwise"
    assert log.approve(99) == log.reject(99) == "unknown"


def test_a_rejected_edit_stays_as_provenance_and_cannot_be_approved(log: RubricLog):
    log.propose(proposal(log.current("q1"), step=3, key="k"))
    (edit,) = log.waiting("q1")
    assert [log.reject(edit.id, "too vague"), log.reject(edit.id)] == ["done", "before"]
    assert log.approve(edit.id) == "otherwise"
    (kept,) = log.waiting("q1")
    assert (kept.status, kept.decision, kept.commit) == ("rejected", "too vague", edit.commit)
    assert log.num_waiting("q1") == 0
    log.propose(proposal(log.current("q1"), step=3, key="k"))  # known, so not asked again
    assert log.num_waiting("q1") == 0


def test_an_edit_of_a_rubric_that_moved_on_is_outdated(log: RubricLog):
    for key in ("a", "b"):
        log.propose(proposal(log.current("q1"), step=3, key=key))
    first, second = log.waiting("q1")
    assert log.approve(first.id) == "done"
    assert log.num_waiting("q1") == 0
    assert log.approve(second.id) == "outdated"
    assert log.current("q1").criteria[-1].text == "text a"
    assert not log.waiting("q1")[1].is_open


def test_an_unknown_rubric_takes_no_proposal(log: RubricLog):
    with pytest.raises(KeyError, match="registered"):
        log.propose(proposal(log.current("q1"), step=1, key="k", query_id="nobody"))


def test_a_restore_frees_later_proposals_and_keeps_an_approval_with_its_base(
    log: RubricLog, tmp_path: Path
):
    commit_steps(log, 2)
    log.snapshot(tmp_path / "ckpt", 4)
    log.propose(proposal(log.current("q1"), step=5, key="k5"))
    assert log.approve(log.waiting()[0].id) == "done"  # its base is of step 2
    commit_steps(log, 6)
    log.propose(proposal(log.current("q1"), step=7, key="k7"))
    late = log.waiting()[1]
    assert log.approve(late.id) == "done"  # its base is of step 6
    log.propose(proposal(log.current("q1"), step=8, key="k8"))
    log.restore(tmp_path / "ckpt", 4)
    assert [v.version for v in log.history("q1")] == [0, 1, 2]
    assert log.current("q1").criteria[-1].text == "text k5"
    assert log.waiting() == ()
    log.propose(proposal(log.current("q1"), step=7, key="k7"))  # the replay proposes anew
    assert log.num_waiting("q1") == 1
    assert log.approve(log.waiting()[0].id) == "done"
    with sqlite3.connect(tmp_path / "rubrics.sqlite") as db:
        assert db.execute("SELECT count(*) FROM waiting").fetchone() == (4,)


def test_waiting_edits_are_in_a_snapshot(log: RubricLog, tmp_path: Path):
    log.propose(proposal(log.current("q1"), step=2, key="k2"))
    log.propose(proposal(log.current("q1"), step=9, key="k9"))
    log.snapshot(tmp_path / "ckpt", 4)
    other = RubricLog(tmp_path / "other" / "rubrics.sqlite")
    other.register(TWO)
    for _ in range(2):
        other.restore(tmp_path / "ckpt", 4)
        assert [e.commit for e in other.waiting()] == [proposal(make_rubric(), step=2, key="k2")]


def as_schema_1(path: Path) -> None:
    """Make a file what the first release wrote."""
    with sqlite3.connect(path) as db:
        db.execute("DROP INDEX waiting_key")
        db.execute("DROP TABLE waiting")
        db.execute("PRAGMA user_version = 1")
    db.close()


def test_a_file_and_a_checkpoint_of_schema_1_are_read_and_brought_up_to_date(
    log: RubricLog, tmp_path: Path
):
    commit_steps(log, 1, 2)
    log.snapshot(tmp_path / "ckpt", 1)
    wanted = log.history("q1")
    log.close()
    for path in (tmp_path / "rubrics.sqlite", tmp_path / "ckpt" / "rubrics.sqlite"):
        as_schema_1(path)
    reader = RubricLog(tmp_path / "rubrics.sqlite", is_read_only=True)
    assert reader.history("q1") == wanted
    assert (reader.waiting(), reader.num_waiting("q1")) == ((), 0)
    reader.close()
    opened = RubricLog(tmp_path / "rubrics.sqlite")
    assert opened.history("q1") == wanted
    opened.propose(proposal(opened.current("q1"), step=3, key="k"))
    assert opened.num_waiting("q1") == 1
    assert opened.restore(tmp_path / "ckpt", 1) == 1
    assert opened.history("q1") == wanted[:2]
    opened.snapshot(tmp_path / "new", 1)
    assert opened.restore(tmp_path / "new", 1) == 0
