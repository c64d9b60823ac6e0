"""Summary, report page and the check of a run's claims, on a run made by the project's writers."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.rows import json_line
from core.rubric import Criterion, CriterionKind
from drivers import report
from drivers.jsonl_files import read_rows
from drivers.report_charts import MAX_LIVES, CriterionLife, criterion_lives, shown_lives
from drivers.report_check import check_run
from drivers.report_data import read_report_data
from drivers.run_files import RunFiles
from drivers.run_folder import RunFolder
from drivers.summary import step_numbers, summarize, total_of_running
from tests.run_example import HACK, RESIST, make_run, resist_edit


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rows = list(read_rows(path))
    for row in rows:
        change(row)
    path.write_bytes(b"".join(json_line(row) for row in rows))


def failed_claims(folder: RunFolder) -> list[str]:
    return [c.text for c in check_run(folder.files) if not c.holds]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run")


def test_a_sound_run_passes_and_says_what_was_checked(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
):
    assert report.main([str(folder.path), "--check"]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 claims hold" in out
    # Gold is 0 at steps 1 to 5 and 1 at steps 8 to 12.
    assert "0.000 over the first five steps, 1.000 over the last, +1.000" in out
    assert "96 rollouts of 12 steps" in out
    assert not folder.files.summary.exists()  # nothing was read from it or written


def test_a_changed_reward_is_found(folder: RunFolder):
    path = folder.files.rollouts / "step_00007.jsonl"

    def change(row: dict[str, Any]) -> None:
        if row["query_id"] == "q1" and row["index"] == 0:
            row["reward"] = 1.0

    rewrite(path, change)
    claim = next(c for c in check_run(folder.files) if not c.holds)
    assert claim.problems == ["step 7, q1, rollout 0: got reward 1.0, the verdicts make 0.0"]
    assert report.main([str(folder.path), "--check"]) == 1


def test_the_reward_of_a_cut_rollout_is_checked_with_its_penalty(folder: RunFolder):
    tree = yaml.safe_load(folder.files.config.read_bytes())
    tree["reward"]["truncation_penalty"] = 0.5
    folder.files.config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert all(c.holds for c in check_run(folder.files))

    def cut(row: dict[str, Any]) -> None:
        if row["query_id"] == "q1" and row["index"] == 0:
            row["finish_reason"] = "length"

    rewrite(folder.files.rollouts / "step_00007.jsonl", cut)
    claim = next(c for c in check_run(folder.files) if not c.holds)
    assert claim.problems == ["step 7, q1, rollout 0: got reward 0.0, the verdicts make -0.5"]


def drop_verdict(row: dict[str, Any]) -> None:
    del row["verdicts"]["c0"]


def raise_maximum(row: dict[str, Any]) -> None:
    row["verdicts"]["c0"].update(max=2)


def turn_failure_to_zero(row: dict[str, Any]) -> None:
    if not row["graded"]:
        row["verdicts"]["c0"].update(score=0, failure=None)
        row.update(reward=None)


def score_and_failure(row: dict[str, Any]) -> None:
    row["verdicts"]["c0"].update(failure="timeout")


def zero_for_ungraded(row: dict[str, Any]) -> None:
    if not row["graded"]:
        row["reward"] = 0.0


def unveto(row: dict[str, Any]) -> None:
    row["vetoed"] = False


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (2, turn_failure_to_zero),
        (2, zero_for_ungraded),
        (4, drop_verdict),
        (4, raise_maximum),
        (4, score_and_failure),
        (4, unveto),
        (4, lambda row: row.update(reward=float("nan"))),
    ],
)
def test_verdicts_and_rewards_that_do_not_agree_are_found(
    folder: RunFolder, step: int, change: Callable[[dict[str, Any]], None]
):
    rewrite(folder.files.rollouts / f"step_{step:05d}.jsonl", change)
    assert failed_claims(folder) == ["rewards computed again from the verdicts agree"]


def test_a_rubric_version_that_the_store_does_not_have_is_found(folder: RunFolder):
    rewrite(folder.files.rollouts / "step_00009.jsonl", lambda row: row.update(rubric_version=4))
    assert failed_claims(folder) == ["every rubric version used is in rubrics.sqlite"]


@pytest.mark.parametrize(
    "edit",
    [
        resist_edit(quote="great great great."),  # one letter more than was written
        resist_edit(index=1),  # another rollout than the one that said it
        resist_edit(index=9),  # no such rollout
        resist_edit(quote=""),
    ],
    ids=["not said", "other rollout", "no rollout", "empty"],
)
def test_a_quote_that_does_not_stand_in_the_rollout_it_names_is_found(tmp_path: Path, edit: Any):
    assert failed_claims(make_run(tmp_path / "run", edit=edit)) == [
        "an adaptive edit put in a [Resist] criterion that a rollout earned",
        "the quotes of all accepted edits stand in the rollouts they name",
    ]


def test_an_edited_response_takes_the_quote_away(folder: RunFolder):
    rewrite(folder.files.rollouts / "step_00003.jsonl", lambda row: row.update(response="calm"))
    assert "the quotes of all accepted edits stand in the rollouts they name" in (
        failed_claims(folder)
    )


def test_edits_ahead_of_the_last_trained_step_wait_for_their_rollouts(folder: RunFolder):
    for step in range(3, 13):
        (folder.files.rollouts / f"step_{step:05d}.jsonl").unlink()
    claims = {c.text: c for c in check_run(folder.files)}
    claim = claims["the quotes of all accepted edits stand in the rollouts they name"]
    assert claim.holds
    assert claim.detail == "0 quotes of 0 edits (1 more are of steps that are not trained yet)"
    assert not claims["an adaptive edit put in a [Resist] criterion that a rollout earned"].holds


def test_a_run_without_a_resist_criterion_fails_that_claim(folder: RunFolder):
    rewrite(folder.files.events, lambda row: row.update(branch="chase"))
    assert failed_claims(folder) == [
        "an adaptive edit put in a [Resist] criterion that a rollout earned"
    ]


def test_an_invented_or_a_forgotten_edit_is_found(folder: RunFolder):
    story = "accepted edits and rubric versions are the same story"
    original = folder.files.events.read_bytes()

    def other_text(row: dict[str, Any]) -> None:
        if row["new"]:
            row["new"]["text"] = "It is not what the store has."

    rewrite(folder.files.events, other_text)
    assert failed_claims(folder) == [story]
    folder.files.events.write_bytes(
        b"".join(line + b"\n" for line in original.splitlines() if b'"accepted"' not in line)
    )
    assert story in failed_claims(folder)


def test_gold_that_does_not_rise_enough_or_a_run_that_is_too_short_fails(
    folder: RunFolder, tmp_path: Path
):
    for step in range(6, 13):
        rewrite(
            folder.files.rollouts / f"step_{step:05d}.jsonl",
            lambda row: row["gold"]["g0"].update(score=0.0),
        )
    assert failed_claims(folder) == ["gold rose by at least 0.15"]
    assert report.main([str(folder.path), "--check", "--min-gain", "0"]) == 0
    assert failed_claims(make_run(tmp_path / "short", num_steps=9)) == [
        "gold rose by at least 0.15"
    ]


def test_a_folder_that_is_not_a_run_is_bad_input(
    tmp_path: Path, folder: RunFolder, capsys: pytest.CaptureFixture[str]
):
    assert report.main([str(tmp_path / "none"), "--check"]) == 2
    assert "wanted a run's folder" in capsys.readouterr().err
    folder.rubrics.unlink()
    assert report.main([str(folder.path), "--check"]) == 2
    assert "wanted a run's rubrics.sqlite" in capsys.readouterr().err
    (folder.files.rollouts / "step_00001.jsonl").write_text('{"step": 1}\n')
    assert report.main([str(folder.path)]) == 2
    assert "wanted the files that drivers.train writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: rewrite(rollouts_of(folder, 1), lambda row: row.update(verdicts=[])),
        lambda folder: rewrite(rollouts_of(folder, 1), lambda row: row.update(gold=[1])),
        lambda folder: rewrite(rollouts_of(folder, 1), lambda row: row.update(reward="x")),
        lambda folder: rollouts_of(folder, 1).write_bytes(b"[" * 100_000 + b"\n"),
        lambda folder: rollouts_of(folder, 1).write_bytes(b"\xff\xfe\n"),
        lambda folder: folder.files.events.write_bytes(b'{"status": "accepted"}\n'),
        lambda folder: folder.files.config.write_bytes(b"[" * 5000),
        lambda folder: folder.files.config.write_bytes(b"- a\n- b\n"),
        lambda folder: sqlite(folder, "UPDATE versions SET rubric = '{}'"),
        lambda folder: sqlite(folder, "UPDATE versions SET rubric = '{'"),
        lambda folder: sqlite(folder, "DROP TABLE versions"),
    ],
)
def test_a_damaged_record_is_one_sentence_whatever_reads_it(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], damage: Callable[[RunFolder], None]
):
    damage(folder)
    assert report.main([str(folder.path), "--check"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert len(shown) < 700


def rollouts_of(folder: RunFolder, step: int) -> Path:
    return folder.files.rollouts / f"step_{step:05d}.jsonl"


def sqlite(folder: RunFolder, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder.rubrics)) as db, db:
        db.execute(statement)


def test_a_step_whose_rollouts_were_taken_out_is_found(folder: RunFolder):
    rollouts_of(folder, 2).unlink()
    claim = next(c for c in check_run(folder.files) if c.text.startswith("rewards computed"))
    assert claim.problems == ["step 2: got no rollouts, wanted those of every step"]


def test_the_summary_has_exactly_its_keys_and_hand_computed_values(folder: RunFolder):
    summary = summarize(
        folder.files.read_config(), folder.files, wall_s=30.0, is_resumed=False, install_s=12.5
    )
    assert list(summary) == [
        "method", "steps", "seed", "install_s", "wall_s", "step_s_mean", "samples_per_s",
        "reward_first5", "reward_last5", "gold_first5", "gold_last5", "edits_adaptive",
        "edits_chase", "criteria_replaced", "edits_refused", "resist_criteria", "vetoed_frac",
        "judge_calls", "writer_calls", "judge_failed_frac", "exposed_evolution_s",
        "policy_age_max", "resumed",
    ]  # fmt: skip
    assert (summary["method"], summary["steps"], summary["seed"]) == ("care", 12, 3)
    assert (summary["wall_s"], summary["install_s"]) == (30.0, 12.5)
    assert summary["samples_per_s"] == 96 / 24
    # q2 scores 1, 1, 0, 1 at all steps; q1 too, until from step 4 its second criterion vetoes the
    # first rollout and lifts the others: 0, 1, 1/2, 1. Step 2 lost one rollout of q2 (score 1).
    four = (3 + 2.5) / 8
    assert summary["reward_first5"] == pytest.approx((0.75 + 5 / 7 + 0.75 + four + four) / 5)
    assert summary["reward_last5"] == pytest.approx(four)
    assert (summary["gold_first5"], summary["gold_last5"]) == (0.0, 1.0)
    assert (summary["edits_adaptive"], summary["edits_chase"], summary["edits_refused"]) == (
        1, 0, 12,
    )  # fmt: skip
    assert summary["resist_criteria"] == 1
    assert summary["vetoed_frac"] == pytest.approx(9 / 95)
    # Verdicts: 96 gold, 48 of q2, 12 of q1 under one criterion and 72 under two.
    assert summary["judge_failed_frac"] == pytest.approx(1 / 228)
    assert summary["judge_calls"] == 96
    json.dumps(summary)


def test_a_running_total_goes_on_over_a_restart():
    assert total_of_running([3.0, 5.0, 2.0, 6.0]) == 11.0
    assert total_of_running([]) == 0.0


def test_no_data_is_none_and_never_zero():
    numbers = step_numbers(1, [])
    assert (numbers.reward, numbers.gold) == (None, None)


def test_text_of_a_policy_a_writer_or_a_criterion_is_never_markup(folder: RunFolder):
    path = report.write_report(folder.files)
    page = path.read_text("utf-8")
    assert page.count("<script") == 2  # the data and the page's own
    assert "\\u003cscript\\u003ealert(1)" in page  # the example rollout is in the data
    assert "<b>one word" not in page
    assert "\\u003cb\\u003eone word" in page
    assert "<i>one word" not in page
    assert "\ud83d" in HACK
    assert "default-src 'none'" in page
    assert "http://" not in page
    assert "https://" not in page
    assert folder.files.picture.read_bytes().startswith(b"\x89PNG")


def test_the_page_of_a_run_that_has_only_begun_can_be_made(tmp_path: Path):
    folder = make_run(tmp_path / "run", num_steps=1)
    (folder.files.rollouts / "step_00001.jsonl").unlink()
    folder.files.events.unlink()
    folder.files.metrics.unlink()
    folder.rubrics.unlink()
    assert report.write_report(RunFiles(folder.path)).is_file()


def test_the_history_shows_when_each_criterion_was_in_force(folder: RunFolder):
    data = read_report_data(folder.files)
    assert [v.query_id for v in data.history] == ["q1", "q1"]
    first, resist = criterion_lives(data.history, last_step=12)
    assert (first.criterion.id, first.first_step, first.last_step) == ("c0", 0, 12)
    assert (resist.criterion, resist.first_step, resist.last_step) == (RESIST, 3, 12)


def test_help_is_quick_to_come_and_imports_nothing_heavy():
    code = (
        "import sys\nfrom drivers import report\n"
        "try:\n    report.main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'ray', 'torch', 'matplotlib', 'vllm'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


def test_the_picture_keeps_vetoes_and_the_first_criteria_when_it_cannot_show_all() -> None:
    def life(name: str, first: int, last: int, kind: CriterionKind = "llm") -> CriterionLife:
        criterion = Criterion(id=name, text=f"text of {name}", kind=kind)
        return CriterionLife(criterion=criterion, first_step=first, last_step=last)

    initial = [life("first", 0, 1)]
    passing = [life(f"p{i}", 2, 3) for i in range(MAX_LIVES)]
    veto = [life("veto", 9, 10, "resist")]
    shown = shown_lives([*initial, *passing, *veto])
    assert len(shown) == MAX_LIVES
    assert {"first", "veto"} <= {x.criterion.id for x in shown}
