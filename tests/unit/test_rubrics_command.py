"""``ratchet rubrics`` on a run's folder: what it shows, what it changes, what it refuses."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.rubric_log import RubricLog
from core.records import Commit, RubricEdit
from core.rubric import Criterion
from drivers.report_check import check_run
from drivers.rubrics import main
from drivers.run_files import RunFiles
from tests.run_example import HACK, make_run, resist_edit


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    """Twelve steps; q1 got a veto in step 3."""
    return make_run(tmp_path / "runs" / "mine").files


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> "Out":
    return Out(capsys)


class Out:
    """Runs the command and gives what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        written = self._capsys.readouterr()
        assert "Traceback" not in written.err
        return written.err if code else written.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))


def events(run: RunFiles, status: str = "accepted") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in run.events.read_bytes().splitlines()]
    return [r for r in rows if r["status"] == status]


def propose(run: RunFiles, *, text: str, step: int = 5, rubric_id: str = "q2") -> int:
    """Keep a waiting edit that adds a criterion; return its number."""
    log = RubricLog(run.rubrics)
    current = log.current(rubric_id)
    new = Criterion(id=f"c{len(current.criteria)}", text=text)
    edit = replace(resist_edit(), branch="chase", status="waiting", new=new)
    log.propose(
        Commit(
            query_id=rubric_id,
            from_version=current.version,
            rubric=current.with_criteria((*current.criteria, new)),
            edits=(edit,),
            step=step,
            visit=step - 1,
            key=f"{rubric_id} {text}",
            writer="a model",
        )
    )
    number = log.waiting()[-1].id
    log.close()
    return number


# ------------------------------------------------------------------ looking
def test_history_lists_all_rubrics_of_a_run(run: RunFiles, out: Out):
    folder = str(run.folder)
    rows = out.json("history", folder)["rubrics"]
    assert rows == [
        {"rubric": "q1", "versions": 2, "criteria": 2, "resist": 1, "waiting": 0},
        {"rubric": "q2", "versions": 1, "criteria": 1, "resist": 0, "waiting": 0},
    ]
    propose(run, text="Say it twice.")
    lines = out.text("history", folder).splitlines()
    assert [line.split() for line in lines] == [
        ["versions", "criteria", "[Resist]", "waiting", "rubric"],
        ["2", "2", "1", "0", "q1"],
        ["1", "1", "0", "1", "q2"],
    ]


def test_history_of_a_rubric_shows_each_version_with_what_changed(run: RunFiles, out: Out):
    text = out.text("history", str(run.folder), "--rubric", "q1")
    assert "version 1: care/adaptive by rules, step 3" in text
    assert "  + c1 [Resist] It does not repeat <b>one word</b>." in text
    versions = out.json("history", str(run.folder), "--rubric", "q1")["versions"]
    assert [v["version"] for v in versions] == [0, 1]
    assert versions[1]["changes"][0]["what"] == ["added"]
    assert versions[1]["edits"][0]["evidence"]["quotes"] == ["great great great"]
    assert [c["id"] for c in versions[1]["criteria"]] == ["c0", "c1"]


def test_a_run_is_found_by_its_name_too(
    run: RunFiles, out: Out, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("RATCHET_RUNS_DIR", str(tmp_path / "runs"))
    assert "q1" in out.text("history", "mine")
    assert "did you mean 'mine'?" in out.text("history", "mina", code=2)


def test_text_of_a_model_cannot_steer_the_terminal(tmp_path: Path, out: Out):
    evil = Criterion(id="c1", text="ok\x1b[2J\u202eevil\nversion 9: x \ud800", kind="resist")
    run = make_run(tmp_path / "run", edit=replace(resist_edit(), new=evil)).files
    text = out.text("history", str(run.folder), "--rubric", "q1")
    assert "ok [2Jevil version 9: x ?" in text
    assert not any(c in text for c in "\x1b\u202e\ud800")
    assert (
        out.json("history", str(run.folder), "--rubric", "q1")["versions"][1]["criteria"][1]["text"]
        == evil.text
    )


def test_diff_compares_the_last_two_versions_or_those_that_are_named(run: RunFiles, out: Out):
    folder = str(run.folder)
    main(["rollback", folder, "--rubric", "q1", "--to", "0"])
    text = out.text("diff", folder, "--rubric", "q1")
    assert "version 1 -> 2" in text
    assert "  - c1 [Resist]" in text
    assert out.json("diff", folder, "--rubric", "q1", "0", "2")["changes"] == []
    assert out.json("diff", folder, "0", "1", "--rubric", "q1")["changes"][0]["what"] == ["added"]
    assert "version 0 -> 0" in out.text("diff", folder, "--rubric", "q2")


def test_diff_names_what_changed_in_a_criterion(run: RunFiles, out: Out):
    log = RubricLog(run.rubrics)
    old = log.current("q2")
    new = Criterion(id="c0", text="Two parts.", max=2, weight=0.5, levels={0: "a", 1: "b", 2: "c"})
    log.commit(
        Commit(
            query_id="q2",
            from_version=0,
            rubric=old.with_criteria([new]),
            edits=(RubricEdit(method="rare", branch="replacement", status="accepted", new=new),),
            step=2,
            visit=1,
            key="k",
        )
    )
    log.close()
    text = out.text("diff", str(run.folder), "--rubric", "q2")
    assert "  ~ c0: rewritten, weight, scale, levels" in text
    assert "      to   c0 [llm] Two parts.  (0..2, weight 0.5)" in text
    assert "      2 = c" in text


# ------------------------------------------------------------------ rolling back
def test_a_rollback_is_a_new_version_with_the_old_criteria_and_an_event(run: RunFiles, out: Out):
    folder = str(run.folder)
    text = out.text("rollback", folder, "--rubric", "q1", "--to", "0", "--reason", "too hard")
    assert "rubric q1 is at version 2, with the criteria of version 0" in text
    assert "note: this takes back the veto c1" in text
    log = RubricLog(run.rubrics, is_read_only=True)
    versions = log.history("q1")
    assert [v.version for v in versions] == [0, 1, 2]
    assert versions[2].rubric.criteria == versions[0].rubric.criteria
    assert (versions[2].writer, versions[2].step) == ("person", 3)
    log.close()
    row = events(run)[-1]
    assert (row["method"], row["branch"], row["step"]) == ("person", "rollback", 3)
    assert (row["from_version"], row["to_version"], row["new"]) == (1, 2, None)
    assert row["reason"] == "back to version 0: too hard"
    claims = check_run(run, min_gain=0)
    assert [c.text for c in claims if not c.holds] == []


def test_a_rollback_that_is_repeated_changes_nothing(run: RunFiles, out: Out):
    arguments = ("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    out.text(*arguments)
    before = run.events.read_bytes()
    assert "is as in version 0 already (it is at version 2)" in out.text(*arguments)
    assert run.events.read_bytes() == before
    assert "version 3, with the criteria of version 1" in out.text(*arguments[:-1], "1")


def test_a_line_that_a_crash_kept_from_events_is_written_by_the_next_edit(run: RunFiles, out: Out):
    before = run.events.read_bytes()
    out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    after = run.events.read_bytes()
    run.events.write_bytes(before)
    out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    assert run.events.read_bytes() == after


@pytest.mark.parametrize("kept_step", [2, 3, 12])
def test_a_persons_edit_survives_a_resume_exactly_when_its_base_version_does(
    run: RunFiles, out: Out, tmp_path: Path, kept_step: int
):
    log = RubricLog(run.rubrics)
    log.snapshot(tmp_path / "ckpt", kept_step)
    out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    run.truncate_after(kept_step)
    log.restore(tmp_path / "ckpt", kept_step)
    run.restore_edits(log.edited())
    versions = [v.version for v in log.history("q1")]
    log.close()
    is_kept = kept_step >= 3  # version 1, which it was made on, is of step 3
    assert versions == ([0, 1, 2] if is_kept else [0])
    assert sum(e["method"] == "person" for e in events(run)) == is_kept


# ------------------------------------------------------------------ edits that wait
def test_an_approved_edit_is_committed_and_its_line_names_the_rollouts_it_rests_on(
    run: RunFiles, out: Out
):
    number = propose(run, text="Say it twice.")
    folder = str(run.folder)
    shown = out.text("waiting", folder)
    assert f"{number}  waiting  rubric q2, version 0 -> 1, care/chase, step 5" in shown
    assert "  + c1 [llm] Say it twice." in shown
    assert "is approved: version 1" in out.text("approve", folder, str(number), "--reason", "yes")
    row = events(run)[-1]
    assert (row["query_id"], row["step"], row["to_version"]) == ("q2", 5, 1)
    assert row["reason"] == "approved by a person: yes"
    assert row["evidence"]["quotes"] == ["great great great"]
    assert HACK.startswith(row["evidence"]["quotes"][0])
    assert "approved before" in out.text("approve", folder, str(number))
    assert out.json("waiting", folder) == []
    assert [r["state"] for r in out.json("waiting", folder, "--all")] == ["approved"]
    assert len(events(run)) == 2


def test_a_rejected_edit_is_kept_and_recorded_once(run: RunFiles, out: Out):
    number = str(propose(run, text="Say it twice."))
    folder = str(run.folder)
    assert "is rejected" in out.text("reject", folder, number, "--reason", "vague")
    assert "rejected before" in out.text("reject", folder, number)
    refused = [e for e in events(run, "refused") if "person" in e["reason"]]
    assert [e["reason"] for e in refused] == ["rejected by a person: vague"]
    (row,) = out.json("waiting", folder, "--all")
    assert (row["state"], row["reason"]) == ("rejected", "vague")
    assert "it was rejected before" in out_of_failure(out, "approve", folder, number)


def out_of_failure(out: Out, *arguments: str) -> str:
    """What a command writes that could not do all it was asked to."""
    assert main(arguments) == 1
    return out._capsys.readouterr().out


def test_an_edit_of_a_rubric_that_moved_on_is_named_and_stays(run: RunFiles, out: Out):
    first, second = propose(run, text="Say it twice."), propose(run, text="Say it thrice.")
    folder = str(run.folder)
    text = out_of_failure(out, "approve", folder, str(second), str(first))
    assert f"edit {second} of rubric q2 is approved" in text
    assert f"edit {first} of rubric q2 is not approved: it was made from version 0 and" in text
    assert "the rubric is at version 1 now, so it can no longer be applied" in text
    states = {r["id"]: r["state"] for r in out.json("waiting", folder)}
    assert states == {first: "outdated (the rubric is at version 1)"}
    assert "no edit waits" in out.text("approve", folder, "--all")


def test_all_edits_that_can_be_applied_are_approved_at_once(run: RunFiles, out: Out):
    propose(run, text="Say it twice.")
    propose(run, text="Say it slowly.", rubric_id="q1")
    assert out.text("approve", str(run.folder), "--all").count("is approved") == 2
    assert {e["query_id"] for e in events(run)[1:]} == {"q1", "q2"}


def test_an_approval_outlives_a_resume_that_redoes_the_step_of_its_proposal(
    run: RunFiles, out: Out, tmp_path: Path
):
    number = propose(run, text="Say it twice.", step=9)
    log = RubricLog(run.rubrics)
    log.snapshot(tmp_path / "ckpt", 6)
    out.text("approve", str(run.folder), str(number))
    run.truncate_after(6)
    log.restore(tmp_path / "ckpt", 6)
    run.restore_edits(log.edited())
    assert log.current("q2").criteria[-1].text == "Say it twice."
    log.close()
    row = events(run)[-1]
    assert (row["query_id"], row["step"], row["to_version"]) == ("q2", 0, 1)
    assert row["evidence"]["quotes"] == []  # its rollouts are redone
    assert row["evidence"]["analysis"]


# ------------------------------------------------------------------ what a person got wrong
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("history", "{run}", "--rubric", "q3"), r"the rubric 'q3'.*did you mean 'q"),
        (("history", "{parent}"), "without rubrics.sqlite, wanted a run's folder"),
        (("history", "/nowhere/at/all"), "neither a run's folder nor a run in"),
        (("diff", "{run}"), "no --rubric, wanted one of the run's 2 rubrics, such as 'q1'"),
        (
            ("diff", "{run}", "--rubric", "q1", "0", "7"),
            r"version 7 of rubric 'q1', wanted .*0\.\.1",
        ),
        (("rollback", "{run}", "--rubric", "q1", "--to", "-1"), r"version -1 .*0\.\.1"),
        (("approve", "{run}"), "got no edit to approve.*0 wait"),
        (("approve", "{run}", "8"), "got the edit 8, which the run does not have"),
        (("reject", "{run}"), "got no edit to reject"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_changes_nothing(
    run: RunFiles, out: Out, arguments: Sequence[str], words: str
):
    before = run.events.read_bytes()
    places = {"run": str(run.folder), "parent": str(run.folder.parent)}
    message = out.text(*(a.format(**places) for a in arguments), code=2)
    assert re.search(words, message), message
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert run.events.read_bytes() == before


def test_help_has_examples_and_a_missing_argument_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
):
    for command in ("history", "diff", "waiting", "health", "rollback", "approve", "reject"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"ratchet rubrics {command} mine" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["rollback", "x"])
    assert ended.value.code == 2


# ------------------------------------------------------------------ beside a live run
_BUSY = """
import sys
from actors.rubric_log import RubricLog
from core.records import Commit
from core.rubric import Criterion
for number in range(60):
    log = RubricLog(sys.argv[1])  # opened and closed again: the hardest moments for a neighbour
    while True:
        old = log.current("q1")
        new = Criterion(id=f"{sys.argv[2]}{number}", text=f"number {number}")
        result = log.commit(Commit(
            query_id="q1", from_version=old.version,
            rubric=old.with_criteria((*old.criteria, new)), edits=(), step=13, visit=12,
            key=f"{sys.argv[2]} {number}"))
        if result.status != "conflict":
            break
    log.close()
"""


def test_edits_beside_processes_that_commit_lose_nothing_and_never_meet_a_lock(
    run: RunFiles, out: Out
):
    writers = [
        subprocess.Popen([sys.executable, "-c", _BUSY, str(run.rubrics), name], text=True)
        for name in ("a", "b")
    ]
    num_rollbacks = 0
    while any(w.poll() is None for w in writers):
        text = out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
        num_rollbacks += "nothing to do" not in text
        assert out.json("history", str(run.folder), "--rubric", "q1")["versions"]
    assert [w.wait(60) for w in writers] == [0, 0]
    log = RubricLog(run.rubrics)
    versions = log.history("q1")
    log.close()
    assert [v.version for v in versions] == list(range(2 + 120 + num_rollbacks))
    assert num_rollbacks > 0
    keys = [v.key for v in versions]
    assert len({k for k in keys if k[:2] in ("a ", "b ")}) == 120
    made = [e["to_version"] for e in events(run) if e["method"] == "person"]
    assert set(made) == {v.version for v in versions if v.key.startswith("rollback")}


def test_a_line_that_a_live_driver_is_writing_is_not_cut(run: RunFiles, out: Out):
    with run.lock():  # as the driver holds it
        whole = run.events.read_bytes()
        half = b'{"step": 12, "half'
        run.events.write_bytes(whole + half)
        out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    assert run.events.read_bytes().startswith(whole + half)


def test_a_half_line_that_a_dead_driver_left_is_cut(run: RunFiles, out: Out):
    run.events.write_bytes(run.events.read_bytes() + b'{"step": 12, "half')
    out.text("rollback", str(run.folder), "--rubric", "q1", "--to", "0")
    assert events(run)[-1]["method"] == "person"
    assert not (run.folder / "run.lock").exists()
