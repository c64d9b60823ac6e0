"""The rubric file: compare-and-set, one application a key, restart, snapshot and exact restore."""

import os
import sqlite3
from pathlib import Path

import pytest

from actors.rubric_log import MAX_REASON_CHARS, RubricLog
from actors.rubric_schema import transaction
from core.errors import ConfigError
from core.records import Commit, RubricEdit, Verdict
from core.rubric import Criterion, Rubric
from tests.unit.rubric_builders import TWO, commit_steps, make_commit, make_rubric


@pytest.fixture
def log(tmp_path: Path) -> RubricLog:
    log = RubricLog(tmp_path / "rubrics.sqlite")
    log.register(TWO)
    return log


def test_a_commit_makes_the_next_version_current_and_keeps_where_it_came_from(log: RubricLog):
    commit = make_commit(log.current("q1"), "No filler.", step=3)
    result = log.commit(commit)
    assert (result.status, result.version) == ("applied", 1)
    assert log.current("q1") == commit.rubric
    first, second = log.history("q1")
    assert (first.version, first.edits, first.writer) == (0, (), "")
    assert second.rubric == commit.rubric
    assert second.edits == commit.edits  # the lone surrogate in the quote too
    assert (second.writer, second.step, second.visit, second.key) == ("rules", 3, 3, "q1-3")
    assert second.time > 0
    assert log.current("q2").version == 0


def test_the_same_key_is_applied_once(log: RubricLog):
    commit = make_commit(log.current("q1"), "No filler.", step=3)
    assert log.commit(commit).status == "applied"
    assert log.commit(commit) == log.commit(commit)
    assert log.commit(commit).status == "duplicate"
    assert log.current("q1").version == 1
    assert log.num_edits == 1


def test_a_commit_on_an_old_version_loses_the_race(log: RubricLog):
    old = log.current("q1")
    commit_steps(log, 3)
    late = log.commit(make_commit(old, "Another.", step=2, key="late"))
    assert (late.status, late.version) == ("conflict", 1)
    assert log.current("q1").criteria[-1].text == "text 3"
    # The lost key is free: the same edit made on the current version can still be committed.
    again = make_commit(log.current("q1"), "Another.", step=4, key="late")
    assert log.commit(again).status == "applied"


def test_a_commit_that_changes_nothing_is_provenance_only(log: RubricLog):
    rubric = log.current("q1")
    edit = RubricEdit(method="care", branch="chase", status="refused", reason="both tags new")
    commit = Commit(
        query_id="q1", from_version=0, rubric=rubric, edits=(edit,), step=1, visit=0, key="k"
    )
    assert log.commit(commit).status == "applied"
    assert log.commit(commit).status == "duplicate"
    assert log.current("q1").version == 0
    assert log.num_edits == 0


def test_changed_criteria_without_a_new_version_and_skipped_versions_are_refused(log: RubricLog):
    good = make_commit(log.current("q1"), "x", step=1)
    same = Rubric(version=0, criteria=good.rubric.criteria)
    skipped = Rubric(version=2, criteria=good.rubric.criteria)
    for rubric, words in ((same, "next version"), (skipped, "wanted 1")):
        bad = Commit(
            query_id="q1", from_version=0, rubric=rubric, edits=(), step=1, visit=0, key="bad"
        )
        with pytest.raises(ValueError, match=words):
            log.commit(bad)
    assert log.commit(good).status == "applied"  # nothing of the refused ones stayed


def test_an_unknown_query_has_no_rubric(log: RubricLog):
    with pytest.raises(KeyError, match="registered"):
        log.current("nobody")
    assert log.history("nobody") == ()


def test_a_restart_from_the_file_has_everything(log: RubricLog, tmp_path: Path):
    commit_steps(log, 1, 2, 3)
    log.put_verdicts({"k": Verdict(criterion_id="c1", score=1.0, max=1)})
    again = RubricLog(tmp_path / "rubrics.sqlite")  # the first is not closed: as after a SIGKILL
    again.register(TWO)
    assert again.current("q1") == log.current("q1")
    assert again.current("q1").version == 3
    assert (again.num_rubrics, again.num_edits) == (2, 3)
    assert again.history("q1") == log.history("q1")
    assert set(again.cached_verdicts(["k", "no"])) == {"k"}
    assert again.commit(make_commit(again.current("q1"), "x", step=9, key="q1-2")).status == (
        "duplicate"
    )


def test_a_changed_data_file_is_refused_by_name_and_nothing_is_registered(log: RubricLog):
    with pytest.raises(ConfigError, match=r"rubric 'q1'.*fresh=true"):
        log.register({"q3": make_rubric(), "q1": make_rubric("Is it long?")})
    with pytest.raises(KeyError):
        log.current("q3")


def test_registering_after_edits_keeps_the_edited_rubric(log: RubricLog):
    commit_steps(log, 1)
    log.register({"q1": make_rubric()})
    assert log.current("q1").version == 1


def test_a_newer_schema_and_a_file_that_is_no_database_are_refused(tmp_path: Path):
    path = tmp_path / "rubrics.sqlite"
    RubricLog(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="schema 99"):
        RubricLog(path)
    path = tmp_path / "other.sqlite"
    path.write_bytes(b"not a database, long enough to be read as a header" * 100)
    with pytest.raises(ConfigError, match="cannot read"):
        RubricLog(path)
    with pytest.raises(ConfigError, match="no file"):
        RubricLog(tmp_path / "none.sqlite", is_read_only=True)


def test_failures_are_never_cached_and_a_cached_verdict_stays(log: RubricLog):
    log.put_verdicts(
        {
            "good": Verdict(criterion_id="c1", score=1.0, max=1, reason="r\ud800" * 5000),
            "bad": Verdict(criterion_id="c1", score=None, max=1, failure="timeout"),
        }
    )
    log.put_verdicts({"good": Verdict(criterion_id="c1", score=0.0, max=1)})
    found = log.cached_verdicts([f"no{i}" for i in range(1200)] + ["good", "bad"])
    assert set(found) == {"good"}
    assert found["good"].score == 1.0
    assert found["good"].reason == ("r\ud800" * 5000)[:MAX_REASON_CHARS]


def test_a_restore_makes_exactly_the_versions_of_its_step_current(log: RubricLog, tmp_path: Path):
    commit_steps(log, 1, 3)
    commit_steps(log, 2, query_id="q2")
    log.snapshot(tmp_path / "ckpt", 2)
    wanted = (log.history("q1")[:2], log.history("q2"))
    commit_steps(log, 5)
    commit_steps(log, 4, 6, query_id="q2")
    log.put_verdicts({"k": Verdict(criterion_id="c1", score=1.0, max=1)})
    assert log.restore(tmp_path / "ckpt", 2) == 4
    assert (log.history("q1"), log.history("q2")) == wanted
    assert log.num_edits == 2
    assert set(log.cached_verdicts(["k"])) == {"k"}
    # The replay commits the same steps again, under the same keys.
    commit_steps(log, 3, 5)
    commit_steps(log, 4, query_id="q2")
    assert log.current("q1").version == 3


def test_what_a_restore_sets_aside_is_not_deleted(log: RubricLog, tmp_path: Path):
    log.snapshot(tmp_path / "ckpt", 0)
    commit_steps(log, 1, 2)
    log.restore(tmp_path / "ckpt", 0)
    commit_steps(log, 1)
    log.restore(tmp_path / "ckpt", 0)
    with sqlite3.connect(tmp_path / "rubrics.sqlite") as db:
        rows = db.execute("SELECT key, to_version, rubric FROM set_aside ORDER BY seq").fetchall()
    assert [(key, version) for key, version, _ in rows] == [("q1-1", 1), ("q1-2", 2), ("q1-1", 1)]
    assert all("text" in rubric for *_, rubric in rows)


def test_an_acknowledged_edit_of_a_trained_step_survives_though_the_snapshot_is_older(
    log: RubricLog, tmp_path: Path
):
    log.snapshot(tmp_path / "ckpt", 4)
    commit_steps(log, 4, 5)  # the edit of step 4 came in late; step 5 will be replayed
    log.restore(tmp_path / "ckpt", 4)
    assert log.current("q1").version == 1
    assert log.current("q1").criteria[-1].text == "text 4"


def test_an_edit_by_a_person_on_the_restored_version_stays_and_on_a_later_one_goes(
    log: RubricLog, tmp_path: Path
):
    commit_steps(log, 1)
    log.snapshot(tmp_path / "ckpt", 1)
    log.commit(make_commit(log.current("q1"), "by hand", step=0, key="person"))
    log.restore(tmp_path / "ckpt", 1)
    assert log.current("q1").criteria[-1].text == "by hand"
    commit_steps(log, 2)
    log.commit(make_commit(log.current("q1"), "by hand too", step=0, key="person 2"))
    log.restore(tmp_path / "ckpt", 1)
    assert log.current("q1").criteria[-1].text == "by hand"


def test_a_snapshot_brings_the_rubrics_back_when_the_live_file_is_gone(
    log: RubricLog, tmp_path: Path
):
    commit_steps(log, 1, 2)
    log.snapshot(tmp_path / "ckpt", 2)
    other = RubricLog(tmp_path / "other" / "rubrics.sqlite")
    other.register(TWO)
    other.restore(tmp_path / "ckpt", 2)
    assert other.history("q1") == log.history("q1")
    assert other.commit(make_commit(log.current("q1"), "x", step=3, key="q1-2")).status == (
        "duplicate"
    )


def test_a_restore_from_nothing_or_from_another_step_changes_nothing(
    log: RubricLog, tmp_path: Path
):
    commit_steps(log, 1)
    with pytest.raises(ConfigError, match=r"no .*checkpoint"):
        log.restore(tmp_path / "none", 1)
    log.snapshot(tmp_path / "ckpt", 1)
    with pytest.raises(ConfigError, match="wanted step 7"):
        log.restore(tmp_path / "ckpt", 7)
    log.snapshot(tmp_path / "ckpt", 1)  # the failed restore left nothing attached
    assert log.current("q1").version == 1


def test_a_run_that_stopped_before_its_first_checkpoint_starts_from_version_zero(log: RubricLog):
    commit_steps(log, 1, 2)
    assert [(v.query_id, v.version) for v in log.edited()] == [("q1", 1), ("q1", 2)]
    assert log.restore("", 0) == 2
    assert log.current("q1").version == 0
    assert log.edited() == ()
    commit_steps(log, 1)


def test_a_full_disk_loses_the_commit_whole_and_the_next_one_can_be_made(tmp_path: Path):
    log = RubricLog(tmp_path / "full.sqlite")
    log.register({"q1": make_rubric()})
    (pages,) = log._db.execute("PRAGMA page_count").fetchone()
    log._db.execute(f"PRAGMA max_page_count = {pages}")  # what SQLite says of a full disk
    long = Criterion(id="new", text="x" * 100_000)
    rubric = log.current("q1").with_criteria([long])
    commit = Commit(
        query_id="q1", from_version=0, rubric=rubric, edits=(), step=1, visit=0, key="k"
    )
    with pytest.raises(sqlite3.OperationalError, match="full"):
        log.commit(commit)
    assert log.current("q1").version == 0
    log._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert log.commit(commit).status == "applied"
    log.close()


def test_a_commit_that_fails_at_its_end_leaves_no_open_transaction(tmp_path: Path):
    db = sqlite3.connect(tmp_path / "t.sqlite", isolation_level=None)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    db.execute("CREATE TABLE b (a INTEGER REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sqlite3.IntegrityError), transaction(db):
        db.execute("INSERT INTO b VALUES (1)")  # found at COMMIT only
    assert not db.in_transaction
    with transaction(db):
        db.execute("INSERT INTO a VALUES (1)")
    db.close()


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="which SQLite cannot read"):
        RubricLog(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "garbage", "middle"])
def test_a_damaged_snapshot_is_refused_and_changes_nothing(
    log: RubricLog, tmp_path: Path, damage: str
):
    commit_steps(log, 1, 2)
    log.snapshot(tmp_path / "s", 1)
    path = tmp_path / "s" / "rubrics.sqlite"
    whole = bytearray(path.read_bytes())
    if damage == "middle":
        whole[4096:] = b"\xff" * (len(whole) - 4096)
    path.write_bytes({"cut": whole[:5000], "garbage": b"x" * 9000, "middle": whole}[damage])
    with pytest.raises(ConfigError, match=r"cannot read .* delete that checkpoint to go on"):
        log.restore(tmp_path / "s", 1)
    assert log.current("q1").version == 2
    commit_steps(log, 3)


def test_a_file_in_a_folder_that_cannot_be_written_is_read_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "run" / "rubrics.sqlite"
    log = RubricLog(path)
    log.register({"q1": make_rubric()})
    unclosed = path.read_bytes(), path.with_name("rubrics.sqlite-wal").read_bytes()
    log.close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    reader = RubricLog(path, is_read_only=True)
    assert reader.query_ids() == ("q1",)
    assert [p.name for p in path.parent.iterdir()] == ["rubrics.sqlite"]
    reader.close()
    for name, data in zip(("rubrics.sqlite", "rubrics.sqlite-wal"), unclosed, strict=True):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match="copy the run's folder"):
        RubricLog(tmp_path / "rubrics.sqlite", is_read_only=True)
