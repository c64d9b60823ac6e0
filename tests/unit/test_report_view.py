"""What the report page is given, on a run made by the project's writers."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivers import report
from drivers.report_view import run_view
from tests.run_example import HACK, make_run


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_view(make_run(tmp_path_factory.mktemp("view") / "run").files)


def test_the_heat_map_has_each_criterion_with_its_mean_by_step(view: dict[str, Any]):
    resist, great = view["criteria"]
    assert (resist["tag"], resist["text"]) == ("[Resist]", "It does not repeat <b>one word</b>.")
    # In force from step 4 on: the first of four rollouts fails it, in each of nine steps.
    assert resist["cells"] == [[step, 0.75] for step in range(4, 13)]
    assert (resist["vetoes"], resist["scores"]) == (9, 36)
    # Of both queries: 1, 1, 0, 1 of four each; one verdict of step 2 failed (it would be 1).
    assert dict(great["cells"])[1] == pytest.approx(0.75)
    assert dict(great["cells"])[2] == pytest.approx(5 / 7)
    assert great["failed"] == 1
    assert view["failures"] == {"timeout": 1}


def test_an_edit_stands_with_the_rollout_that_caused_it(view: dict[str, Any]):
    rubric = view["rubrics"][0]
    assert rubric["id"] == "q1"
    given, edited = rubric["versions"]
    assert given["edits"] == []
    (edit,) = edited["edits"]
    assert (edit["branch"], edit["step"], edit["old"], edit["diff"]) == ("adaptive", 3, None, None)
    caused = [r for r in rubric["rollouts"] if r["step"] == 3 and r["index"] in edit["rollouts"]]
    assert [r["response"] for r in caused] == [HACK]
    assert caused[0]["verdicts"][0]["reason"] == "seen"


def test_curves_hold_means_by_step_and_vetoes_their_step(view: dict[str, Any]):
    assert view["vetoes"] == [3]
    assert view["curves"]["gold"] == [[s, 0.0 if s < 6 else 1.0] for s in range(1, 13)]
    assert view["curves"]["vetoed"][3] == [4, 1 / 8]
    assert view["times"]["step"] == [[s, 2.0] for s in range(1, 13)]
    assert view["totals"]["judge_calls"][-1] == [12, 96.0]
    assert view["totals"]["usd"] == []
    assert view["num_refused"] == 12


def test_a_query_file_that_is_gone_is_said_and_not_an_error(view: dict[str, Any]):
    assert view["has_data_file"] is False
    assert view["rubrics"][0]["prompt"] is None
    assert view["rubrics"][0]["anchor"] is None


def test_prompt_and_anchor_come_from_the_query_file_where_it_still_lies(tmp_path: Path):
    files = make_run(tmp_path / "run").files
    data = tmp_path / "queries.jsonl"
    rows = [
        {
            "id": name,
            "messages": [{"role": "user", "content": "Say something kind."}],
            "rubric": [{"id": "c0", "text": "It says 'great'."}],
            "anchor": {"model": "a person", "response": "You did well."},
        }
        for name in ("q1", "q2")
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files.write_config(files.config.read_text().replace("queries.jsonl", str(data)))
    rubric = run_view(files)["rubrics"][0]
    assert rubric["prompt"] == "Say something kind."
    assert rubric["anchor"] == {"model": "a person", "response": "You did well."}


def test_several_runs_make_one_page_beside_the_first(tmp_path: Path):
    first, second = make_run(tmp_path / "one"), make_run(tmp_path / "two", num_steps=4)
    assert report.main([str(first.path), str(second.path)]) == 0
    page = (tmp_path / "comparison.html").read_text("utf-8")
    assert page.count('"name": "example"') == 2
    assert not first.files.report.exists()
