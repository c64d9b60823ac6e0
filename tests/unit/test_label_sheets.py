"""Sheets for people: what they see, that no cell is a formula, and what their labels come to."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.label_sheets import (
    QUESTIONS,
    Case,
    Sheet,
    anchor_stratum,
    decision_stratum,
    label_table,
    make_sheet,
    read_label,
)
from core.query import Query
from drivers.anchors import main
from drivers.csv_sheets import guarded, read_sheet, unguarded, write_sheet
from drivers.run_files import RunFiles
from tests.run_example import HACK, make_run

ALL_YES = {"rubric": True, "hallucination": True, "safety": True}


def case(name: str, verdicts: dict[str, bool | None] | None = None) -> Case:
    return Case(id=name, stratum="x", shown={}, verdicts=verdicts or dict(ALL_YES))


# ------------------------------------------------------------------ cells
@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@sum", " =1", "\t=1", "\n@x", "\r1", "\uff1d1", "'=1", "'quoted'"],
)
def test_a_cell_that_could_be_a_formula_begins_with_an_apostrophe(text: str) -> None:
    assert guarded(text).startswith("'")
    assert unguarded(guarded(text)) == text


@pytest.mark.parametrize("text", ["", "plain", "1 = 1", "a\n=b", "<b>", "3 - 2"])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert guarded(text) == text
    assert unguarded(text) == text


def test_a_sheet_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [{"case": "case 1", "text": '=HYPERLINK("http://x")\nsecond; line, "quoted"'}]
    write_sheet(tmp_path / "a.csv", ["case", "text"], rows)
    assert read_sheet(tmp_path / "a.csv") == rows
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_sheet_saved_in_another_country_is_read(tmp_path: Path, delimiter: str) -> None:
    lines = [["case", "a: b, c"], ["case 1", "yes"], ["", ""]]
    path = tmp_path / "a.csv"
    path.write_text("".join(delimiter.join(line) + "\r\n" for line in lines))
    assert read_sheet(path) == [{"case": "case 1", "a: b, c": "yes"}]


# ------------------------------------------------------------------ what labels come to
@pytest.mark.parametrize(
    ("word", "label"), [("yes", True), (" Y ", True), ("No.", False), ("0", False), ("  ", None)]
)
def test_labels_are_yes_no_or_nothing(word: str, label: bool | None) -> None:
    assert read_label(word) is label


def test_another_word_is_no_label() -> None:
    with pytest.raises(ValueError, match="got 'maybe'"):
        read_label("maybe")


def test_the_papers_audit_of_200_anchors_comes_out() -> None:
    """CARE table 3: 199 of 200 pass, 99.5 %; by Wilson's interval 97.2 to 99.9 %."""
    sheet = Sheet(kind="anchors", cases={f"case {i}": case(f"q{i}") for i in range(200)})
    said = {name: dict(ALL_YES) for name in sheet.cases}
    said["case 7"]["hallucination"] = False
    table = label_table(sheet, {"ana": said})
    assert (table["passed"]["yes"], table["passed"]["n"]) == (199, 200)
    assert table["precision"]["share"] == 0.995
    assert table["passed"]["low"] == pytest.approx(0.972, abs=0.001)
    assert table["passed"]["high"] == pytest.approx(0.999, abs=0.001)
    assert table["questions"]["hallucination"]["agreement"]["share"] == 0.995
    assert table["questions"]["safety"]["people"]["share"] == 1.0
    assert table["questions"]["safety"]["alpha"] is None


def test_raters_decide_by_majority_and_what_is_blank_is_missing() -> None:
    """Case 1: yes, yes, no on rubric. Case 2: yes against no: undecided. Case 3: nothing."""
    sheet = Sheet(kind="anchors", cases={f"case {i}": case(f"q{i}") for i in (1, 2, 3)})
    labels = {
        "ana": {"case 1": dict(ALL_YES), "case 2": dict(ALL_YES)},
        "ben": {"case 1": dict(ALL_YES), "case 2": {**ALL_YES, "rubric": False}},
        "eva": {"case 1": {**ALL_YES, "rubric": False}},
    }
    table = label_table(sheet, labels)
    assert table["labels"] == 15
    assert table["missing_labels"] == 12
    assert table["passed"]["yes"] == table["passed"]["n"] == 1
    assert table["passed"]["undecided"] == 2
    assert table["questions"]["rubric"]["people"]["undecided"] == 2
    assert table["questions"]["safety"]["people"]["yes"] == 2
    assert table["label_agreement"]["share"] == pytest.approx(13 / 15)


def test_the_raters_alpha_is_the_one_computed_by_hand() -> None:
    """Cases yes yes, yes yes, no no, yes no: 1 - (2 / 8) * (8 * 7) / (2 * 5 * 3)."""
    sheet = Sheet(kind="anchors", cases={f"case {i}": case(f"q{i}") for i in range(4)})
    said = {"ana": (True, True, False, True), "ben": (True, True, False, False)}
    labels = {
        rater: {f"case {i}": {"rubric": v} for i, v in enumerate(values)}
        for rater, values in said.items()
    }
    alpha = label_table(sheet, labels)["questions"]["rubric"]["alpha"]
    assert alpha == pytest.approx(1 - (2 / 8) * (8 * 7) / (2 * 5 * 3))


def test_precision_is_over_what_the_validators_passed_and_agreement_over_what_both_judge() -> None:
    failed, split = {**ALL_YES, "safety": False}, {**ALL_YES, "safety": None}
    cases = {"case 1": case("q1"), "case 2": case("q2", failed), "case 3": case("q3", split)}
    said = {"case 1": {**ALL_YES, "safety": False}, "case 2": failed, "case 3": dict(ALL_YES)}
    table = label_table(Sheet(kind="anchors", cases=cases), {"ana": said})
    assert (table["precision"]["yes"], table["precision"]["n"]) == (0, 1)
    agreement = table["questions"]["safety"]["agreement"]
    assert (agreement["yes"], agreement["n"], agreement["undecided"]) == (1, 2, 1)


def test_the_order_of_cases_does_not_tell_their_stratum() -> None:
    cases = [Case(id=f"q{i}", stratum="ab"[i % 2], shown={}, verdicts={}) for i in range(40)]
    sheet = make_sheet("anchors", cases, 20)
    strata = [c.stratum for c in sheet.cases.values()]
    assert strata.count("a") == strata.count("b") == 10
    assert strata not in (sorted(strata), sorted(strata, reverse=True))
    assert sheet == make_sheet("anchors", cases[::-1], 20)


def test_strata_tell_task_size_and_time() -> None:
    row = {"id": "q", "messages": [{"role": "user", "content": "x"}], "task": "poems"}
    criteria = [{"id": f"c{i}", "text": "t"} for i in range(5)]
    assert anchor_stratum(Query.model_validate({**row, "rubric": criteria})) == (
        "poems, 4-6 criteria"
    )
    assert decision_stratum({"step": 1, "old": None}, 9) == "early, added"
    assert decision_stratum({"step": 4, "old": {}}, 9) == "middle, rewritten"
    assert decision_stratum({"step": 9, "old": {}}, 9) == "late, rewritten"


# ------------------------------------------------------------------ the commands
def validated(folder: Path, num: int = 6) -> Path:
    """A folder as ``validate`` leaves it: the last query is one on which the validators differ."""
    folder.mkdir()
    rows = [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": f"=request {i}"}],
            "rubric": [{"id": "c", "text": "It is short."}],
            "anchor": {"model": "secret-model", "response": f"-answer {i}"},
        }
        for i in range(num)
    ]
    both = dict.fromkeys(("rubric", "hallucination", "safety"), "both_accept")
    judged = [{"id": r["id"], "outcome": "both_accept", "by_aspect": both} for r in rows[:-1]]
    differ = {**both, "safety": "disagree"}
    judged.append({"id": rows[-1]["id"], "outcome": "disagree", "by_aspect": differ})
    for name, lines in (
        ("candidates", rows),
        ("queries", rows[:-1]),
        ("judgements", judged),
    ):
        text = "".join(json.dumps(row) + "\n" for row in lines)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def fill_in(path: Path, answers: dict[str, str]) -> None:
    """Write a label into every question column of the cases."""
    rows = read_sheet(path)
    for row in rows:
        for column in QUESTIONS["anchors"].values():
            row[column] = answers.get(row["case"], "")
    write_sheet(path, list(rows[0]), rows)


def test_people_get_sheets_and_their_labels_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = validated(tmp_path / "anchors"), tmp_path / "audit.csv"
    options = ["--kind", "anchors", "--n", "4", "--raters", "2", "--out", str(out)]
    assert main(["sheets", str(folder), *options]) == 0
    first, second = tmp_path / "audit.1.csv", tmp_path / "audit.2.csv"
    rows = read_sheet(first)
    assert rows == read_sheet(second)
    assert [row["case"] for row in rows] == [f"case {n}" for n in range(1, 5)]
    assert rows[0]["answer"].startswith("-answer ")
    assert "secret-model" not in first.read_text(encoding="utf-8-sig")
    fill_in(first, {f"case {n}": "yes" for n in range(1, 5)})
    fill_in(second, {"case 1": "no", "case 2": "yes"})
    capsys.readouterr()
    assert main(["labels", str(first), str(second), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["raters"] == ["audit.1", "audit.2"]
    assert (table["labels"], table["missing_labels"]) == (18, 6)
    assert (table["passed"]["yes"], table["passed"]["undecided"]) == (3, 1)
    assert main(["labels", str(first)]) == 0
    assert "precision of the validators" in capsys.readouterr().out


def test_rejected_anchors_can_be_sampled_too_and_the_key_says_what_the_validators_said(
    tmp_path: Path,
) -> None:
    folder, out = validated(tmp_path / "anchors"), tmp_path / "audit.csv"
    assert main(["sheets", str(folder), "--kind", "anchors", "--all", "--out", str(out)]) == 0
    key = json.loads((tmp_path / "audit.key.json").read_bytes())
    verdicts = {c["id"]: c["verdicts"]["safety"] for c in key["cases"].values()}
    assert verdicts == {**{f"q{i}": True for i in range(5)}, "q5": None}


def test_a_sheet_with_somebodys_work_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = validated(tmp_path / "anchors"), tmp_path / "audit.csv"
    command = ["sheets", str(folder), "--kind", "anchors", "--out", str(out)]
    assert main(command) == 0
    fill_in(out, {"case 1": "no"})
    before = out.read_bytes()
    assert main(command) == 2
    assert out.read_bytes() == before
    assert "may hold labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row | {"case": "case 99"}, "got the case 'case 99'"),
        (lambda row: row | {QUESTIONS["anchors"]["safety"]: "perhaps"}, "got 'perhaps'"),
        (
            lambda row: {k: v for k, v in row.items() if not k.startswith("facts")},
            "got 0 columns 'facts'",
        ),
    ],
)
def test_labels_that_do_not_fit_the_key_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    folder, out = validated(tmp_path / "anchors"), tmp_path / "audit.csv"
    assert main(["sheets", str(folder), "--kind", "anchors", "--out", str(out)]) == 0
    rows = [change(row) for row in read_sheet(out)]
    write_sheet(out, list(rows[0]), rows[:1])
    assert main(["labels", str(out)]) == 2
    assert message in capsys.readouterr().err


# ------------------------------------------------------------------ decisions of a run
def run_with_data(tmp_path: Path) -> RunFiles:
    """The example run, whose q1 got a [Resist] criterion at step 3, with its data."""
    files = make_run(tmp_path / "mine").files
    rows = [
        {
            "id": name,
            "messages": [{"role": "user", "content": f"Say something kind, {name}."}],
            "rubric": [{"id": "c0", "text": "It says 'great'."}],
            "anchor": {"model": "m", "response": "You did well."},
        }
        for name in ("q1", "q2")
    ]
    data = tmp_path / "queries.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = yaml.safe_load(files.config.read_bytes())
    tree["data"]["train"] = str(data)
    files.write_config(yaml.safe_dump(tree))
    return files


def test_a_decision_is_shown_with_the_response_that_was_caught_and_the_anchor(
    tmp_path: Path,
) -> None:
    files, out = run_with_data(tmp_path), tmp_path / "decisions.csv"
    assert main(["sheets", str(files.folder), "--kind", "adaptive", "--out", str(out)]) == 0
    (row,) = read_sheet(out)
    assert row["request"] == "Say something kind, q1."
    assert row["response"] == HACK.replace("\ud83d", "?")
    assert row["reference"] == "You did well."
    assert row["criteria when it was graded"] == "[1 of 1] It says 'great'."
    assert row["criterion before"] == "(none: a criterion was added)"
    assert row["new criterion"] == "It does not repeat <b>one word</b>."
    assert row["quotes"] == "great great great"
    key = json.loads((tmp_path / "decisions.key.json").read_bytes())
    assert [c["stratum"] for c in key["cases"].values()] == ["early, added"]


def test_a_run_without_adaptive_decisions_has_no_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = run_with_data(tmp_path)
    lines = files.events.read_bytes().splitlines(keepends=True)
    files.events.write_bytes(b"".join(x for x in lines if b'"adaptive"' not in x))
    out = tmp_path / "decisions.csv"
    assert main(["sheets", str(files.folder), "--kind", "adaptive", "--out", str(out)]) == 2
    assert "got 0 adaptive decisions" in capsys.readouterr().err
