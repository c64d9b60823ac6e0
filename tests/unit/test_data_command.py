"""``ratchet data``: what it prints, writes and returns."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivers.data import main
from drivers.data_files import load_queries

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["check", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_check_tells_format_counts_and_what_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FIXTURES / "rar.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "format      rar (" in out
    assert "normaliser  pos_sum" in out
    assert "2 queries, 0 left out" in out
    assert "look at: pitfalls: 1 say what is wanted" in out


def test_check_names_dropped_rows_with_line_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = check(capsys, str(FIXTURES / "rare.jsonl"))
    assert (found["num_rows"], found["num_queries"], found["format"]) == (3, 2, "rare")
    (dropped,) = found["dropped"]
    assert (dropped["reason"], dropped["count"]) == ("bad_rubric", 1)
    assert dropped["examples"][0].startswith("line 3: criterion 'c1': got max_points True")
    assert found["criteria"]["maxima"] == {"1": 2, "2": 1}
    assert found["prompts"]["languages"] == {"cjk": 2}
    assert found["reward"] == {"weights": "none", "normaliser": "pos_sum"}


def test_check_says_which_methods_the_file_serves(capsys: pytest.CaptureFixture[str]) -> None:
    bare = {m["method"]: m for m in check(capsys, str(FIXTURES / "tinker.jsonl"))["methods"]}
    assert not bare["care"]["is_served"]
    assert not bare["mpo"]["is_served"]
    assert bare["rler"]["is_served"]
    some = {
        m["method"]: m for m in check(capsys, str(FIXTURES / "wildchecklists.jsonl"))["methods"]
    }
    assert some["care"]["is_served"]
    assert "1 of 2 queries have an anchor" in some["care"]["why"]
    rare = {m["method"]: m for m in check(capsys, str(FIXTURES / "rare.jsonl"))["methods"]}
    assert rare["rare (scope=task)"]["is_served"]


def test_check_warns_of_the_universal_item_and_missing_anchors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = check(capsys, str(FIXTURES / "wildchecklists.jsonl"))["warnings"]
    assert any(n.startswith("universal item: 2 of 2 queries") for n in notes)
    assert any(n.startswith("anchors: 1 of 2") for n in notes)


def test_check_warns_of_a_negative_weight_on_what_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = [{"text": "Is brief", "weight": 2}, {"text": "Avoids jargon", "weight": -1}]
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"prompt": "p", "rubrics": rubric}))
    (note, *_) = check(capsys, str(path))["warnings"]
    assert note.startswith("sign trap: 1 criteria")
    assert "Avoids jargon" in note


def test_check_knows_a_rubric_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"criteria": [{"id": "a", "text": "Is short", "max": 2}]}))
    found = check(capsys, str(path))
    assert (found["holds"], found["rubric"]["criteria"][0]["max"]) == ("rubric", 2)
    assert main(["check", str(path)]) == 0
    assert "data.task_rubrics.TASK" in capsys.readouterr().out


def test_check_reads_the_first_rows_only_where_it_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = check(capsys, str(FIXTURES / "rare.jsonl"), "--limit", "1")
    assert (found["num_rows"], found["dropped"]) == (1, [])


@pytest.mark.parametrize("text", ["", "{}", '{"rubrics": ["r"]}', "no json"])
def test_a_file_without_queries_is_exit_2_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    assert main(["check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_texts_of_a_file_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        {"prompt": f"p{i}", "rubrics": ["Is \x1b[2J short"], "task": "\x1b]0;x"} for i in (1, 2)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["check", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


# ---------------------------------------------------------------------- convert
@pytest.mark.parametrize("name", ["dr_tulu", "healthbench", "wildchecklists", "native"])
def test_convert_writes_what_reads_as_the_same_queries(tmp_path: Path, name: str) -> None:
    source, out = FIXTURES / f"{name}.jsonl", tmp_path / "out.jsonl"
    assert main(["convert", str(source), str(out)]) == 0
    again = load_queries(out)
    assert again.queries == load_queries(source, strict=False).queries
    assert again.format == "native"


def test_convert_says_what_it_left_out_and_strict_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = str(FIXTURES / "auto_rubric.jsonl"), tmp_path / "out.jsonl"
    assert main(["convert", source, str(out), "--strict"]) == 2
    assert not out.exists()
    assert main(["convert", source, str(out)]) == 0
    assert "left out 1 rows: marked_invalid (line 2" in capsys.readouterr().err


def test_convert_replaces_a_file_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = str(FIXTURES / "tinker.jsonl"), tmp_path / "out.jsonl"
    out.write_text("mine")
    assert main(["convert", source, str(out)]) == 2
    assert "wanted a new file" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main(["convert", source, str(out), "--force"]) == 0
    assert len(load_queries(out).queries) == 2


def test_formats_are_listed_with_how_their_source_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["dr_tulu"]["normaliser"] == "pos_sum_floor1"
    assert main(["formats"]) == 0
    assert "wildchecklists" in capsys.readouterr().out


def test_a_wrong_option_is_exit_2() -> None:
    for arguments in (["check", "x", "--limit", "0"], ["check", "x", "--format", "yaml"], []):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


# ---------------------------------------------------------------------- prompts without rubrics
def test_check_knows_prompts_that_have_no_rubric_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Name a hill."}\n{"prompt": ""}\n{"prompt": "Name a lake."}\n')
    found = check(capsys, str(path))
    assert (found["holds"], found["num_queries"]) == ("prompts", 2)
    assert [d["reason"] for d in found["dropped"]] == ["empty_prompt"]
    assert "criteria" not in found
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "no row has a rubric" in out
    assert "normaliser" not in out


def test_a_given_rubric_is_that_of_rows_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric, out = tmp_path / "r.json", tmp_path / "out.jsonl"
    rubric.write_text(json.dumps([{"id": "a", "text": "Moves on", "max": 2}]))
    source = str(FIXTURES / "rare_queries.jsonl")
    assert main(["convert", source, str(out), "--rubric", str(rubric)]) == 0
    assert "2 queries of 2 rows (rare_queries)" in capsys.readouterr().out
    assert [(q.task, q.rubric.ids) for q in load_queries(out).queries] == [
        ("2d_animation", ("a",)),
        ("live_action", ("a",)),
    ]


def test_every_left_out_row_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "q.jsonl"
    rows = [{"prompt": "p", "rubrics": ["r"]}, *({"prompt": f"p{i}"} for i in range(20))]
    path.write_text("\n".join(map(json.dumps, rows)))
    (reason,) = check(capsys, str(path))["dropped"]
    assert reason["places"] == [f"line {i}" for i in range(2, 22)]
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "left out    20: no_rubrics" in out
    assert "line 5, line 6, " in out
    assert "line 16 and 5 more (--json has all)" in out
