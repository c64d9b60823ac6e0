"""``ratchet analyze`` over runs as files: results, tables, what is missing, and bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivers.analyze import main
from drivers.run_files import RunFiles
from tests.run_example import make_run
from tests.unit.rare_run import make_rare_run


@pytest.fixture
def rare(tmp_path: Path) -> RunFiles:
    return make_rare_run(tmp_path / "rare")


@pytest.fixture
def care(tmp_path: Path) -> RunFiles:
    return make_run(tmp_path / "care").files


def analyses(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)["analyses"]


def test_a_runs_files_give_the_analyses_of_its_replacements(
    rare: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {n: r["rare"] for n, r in analyses(capsys, str(rare.folder)).items() if "rare" in r}
    # One event: shares 1 1 1 1 .5 .5 0 0, mean .625; at the next visit all have full score.
    assert (found["reopening"]["events"], found["reopening"]["discarded"]) == (1, 1)
    assert found["reopening"]["headroom"]["value"] == pytest.approx(0.375)
    assert (found["resaturation"]["cohort"], found["resaturation"]["share"]) == (1, 1.0)
    (direction,) = found["directions"]["directions"]
    assert direction["direction"] == "negative"
    # Of 8 rollouts 4 are below full: one subset of four of 70 holds none of them.
    rates = {(r["unit"], r["subset_size"]): r["of_all"] for r in found["false_saturation"]["rates"]}
    assert rates["criterion", 4] == pytest.approx(1 / 70)
    # Initial criteria: c0 and c1 of two queries; c0 of q1 saturates at step 1.
    assert [p["share"] for p in found["first_saturation"]["curve"]] == [0.25, 0.25]
    assert [p["a_query"] for p in found["replaced"]["curve"]] == [0.5, 0.0]
    # 17 requests a step, one of them a rescoring.
    assert (found["calls"]["grading"], found["calls"]["rescoring"]) == (32, 2)
    assert found["calls"]["overhead"] == pytest.approx(4 / 32)
    assert found["times"]["evolution"]["hidden_share"] == pytest.approx(2 / 3)


def test_results_are_a_file_and_tables(rare: RunFiles, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(rare.folder)]) == 0
    shown = capsys.readouterr().out
    written = json.loads((rare.folder / "analysis" / "analysis.json").read_bytes())
    assert written["runs"][0]["method"] == "rare"
    assert set(written["analyses"]) >= {"reopening", "matched", "audit", "followbench"}
    assert "headroom_reopened" in shown
    assert "first_saturation: when initial criteria first saturate (RARE A.4.1)" in shown


def test_what_the_files_do_not_give_is_said_with_the_reason(
    care: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    found = analyses(capsys, str(care.folder))
    assert found["reopening"]["care"]["missing"].startswith("no accepted replacement")
    assert "--judge-a" in found["audit"]["care"]["missing"]
    assert found["times"]["care"]["evolution"] is None
    assert main([str(care.folder)]) == 0
    assert "care: not given: no accepted replacement" in capsys.readouterr().out


def test_an_analysis_asked_for_by_name_that_is_not_there_ends_in_1(
    rare: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    found = analyses(capsys, str(rare.folder), "--what", "matched,times", code=1)
    assert "polarity=mixed" in found["matched"]["rare"]["missing"]
    assert set(found) == {"matched", "times"}


def test_several_runs_stand_side_by_side_and_together(
    rare: RunFiles, care: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_rare_run(tmp_path / "again")
    folders = [str(f.folder) for f in (rare, other, care)]
    found = analyses(capsys, *folders, "--what", "reopening,times")
    assert found["reopening"]["all runs"]["events"] == 2
    assert [b["type"] for b in found["reopening"]["all runs"]["event_means"]] == ["again", "rare"]
    ratios = {r["run"]: r["ratio"] for r in found["times"]["all runs"]["runs"]}
    assert ratios == {"rare": 1.0, "again": 1.0, "care": 0.5}
    assert (tmp_path / "analysis" / "analysis.json").is_file()


def test_types_and_clusters_come_from_the_queries_meta(
    rare: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--type-by", "medium", "--cluster-by", "stem")
    found = analyses(capsys, str(rare.folder), "--what", "reopening", *options)
    assert found["reopening"]["rare"]["event_means"][0]["type"] == "2d"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--what", "nothing"), "wanted one of: reopening"),
        (("--what", "audit"), "--what audit without --judge-a"),
        (("--what", "fresh", "--judge", "m"), "without --policy-before"),
        (("--what", "followbench"), "without --outcomes"),
        (("--outcomes", "/no/such.jsonl"), "got no file"),
        (("--limit", "-1"), "wanted 0 or more"),
        (("--cluster-by", "video"), "wanted one of its keys: medium, stem"),
    ],
)
def test_bad_input_ends_in_2_with_a_sentence(
    rare: RunFiles, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main([str(rare.folder), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_no_run_ends_in_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert "wanted one" in capsys.readouterr().err


def test_followbench_by_type_comes_from_an_evaluations_outcomes(
    rare: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "followbench"
    folder.mkdir()
    # Level 1: one of two passes, 50; level 2: the one passes, 100; their mean is 75.
    rows = [("style", 1, 1), ("style", 1, 0), ("style", 2, 1), ("format", 1, 0)]
    lines = [json.dumps({"type": t, "level": n, "hard": h}) + "\n" for t, n, h in rows]
    (folder / "outcomes.jsonl").write_text("".join(lines))
    options = ("--what", "followbench", "--outcomes", str(folder))
    found = analyses(capsys, str(rare.folder), *options)["followbench"][str(folder)]
    assert found == {"style": 75.0, "format": 0.0}


def test_outcomes_of_another_benchmark_are_refused(
    rare: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "outcomes.jsonl"
    other.write_text('{"id": "1", "score": 3}\n')
    assert main([str(rare.folder), "--outcomes", str(other)]) == 2
    assert "wanted those of FollowBench" in capsys.readouterr().err
