"""BiGGen Bench: which instances count, what the judge sees, how its reply is read, the macro."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.biggen import BiGGen, read_result
from core.errors import ConfigError
from core.model_calls import Sampling

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "biggen" / "instances.jsonl"
SHARED = ROOT.parent / "shared" / "data" / "biggen" / "biggen_765.jsonl.gz"


def prompt(name: str) -> str:
    return (ROOT / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def benchmark(**options: Any) -> BiGGen:
    return BiGGen(template=prompt("bench_biggen"), system=prompt("bench_biggen_system"), **options)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]


def tasks(**options: Any) -> tuple[Task, ...]:
    return benchmark(**options).load({"instances.jsonl": rows()}).tasks


def test_prometheus_judges_leave_out_what_the_model_under_test_judges() -> None:
    result = benchmark().load({"instances.jsonl": rows()})
    assert len(result.tasks) == 5
    assert list(result.dropped) == ["refinement_llm_judge_absolute_0"]
    assert len(tasks(with_judge_tasks=True)) == 6


def test_base_models_leave_out_the_multilingual_instances() -> None:
    ids = {t.id for t in tasks(is_base_model=True, with_judge_tasks=True)}
    assert len(ids) == 5
    assert "multilingual_proverb_0" not in ids


@pytest.mark.skipif(not SHARED.is_file(), reason="the authors' rows are not beside this checkout")
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"with_judge_tasks": True}, 765),
        ({}, 747),
        ({"with_judge_tasks": True, "is_base_model": True}, 695),
    ],
)
def test_the_authors_instances_load_whole(options: dict[str, Any], count: int) -> None:
    lines = gzip.decompress(SHARED.read_bytes()).decode("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    result = benchmark(**options).load({SHARED.name: found})
    assert len(result.tasks) == count
    assert len(result.tasks) + len(result.dropped) == 765


def test_a_response_file_of_rows_by_id_is_read_too() -> None:
    by_id = {row["id"]: {**row, "response": "x"} for row in rows()}
    assert len(benchmark().load({"responses.json": [by_id]}).tasks) == 5


def test_a_broken_or_doubled_instance_is_dropped_and_named() -> None:
    broken = {**rows()[1], "score_rubric": {"criteria": "c"}}
    result = benchmark().load({"a.jsonl": [rows()[0], rows()[0], broken]})
    assert [t.id for t in result.tasks] == ["planning_travel_plan_0"]
    assert set(result.dropped) == {"a.jsonl:2", "planning_travel_plan_1"}


def test_no_instance_at_all_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="765"):
        benchmark().load({"a.jsonl": [{"prompt": "x"}]})


def test_the_system_prompt_goes_to_the_model_by_role_or_before_the_input() -> None:
    first, second = tasks()[:2]
    assert [m.role for m in first.messages] == ["system", "user"]
    assert [m.role for m in second.messages] == ["user"]  # it has none
    (joined,) = tasks(system_prompt="user")[0].messages
    assert joined.content == "Answer in one sentence.\n\nPlan a day by a river."


def test_the_judge_sees_the_input_the_reference_and_the_rubric_but_no_system_prompt() -> None:
    (call,) = benchmark().next_calls(tasks()[0], "Row and rest.", {})
    user = call.call.messages[-1].content
    assert "Answer in one sentence." not in user
    sections = [
        "###Task Description:",
        "###The instruction to evaluate:",
        "Plan a day by a river.",
        "###Response to evaluate:",
        "Row and rest.",
        "###Reference Answer (Score 5):",
        "A good answer.",
        "###Score Rubrics:",
        "[Is it right?]\nScore 1: wrong\n",
        "Score 5: right",
        "###Feedback:",
    ]
    places = [user.index(section) for section in sections]
    assert places == sorted(places)
    assert call.call.sampling == Sampling(
        temperature=1.0, top_p=0.9, repetition_penalty=1.03, max_tokens=1024
    )


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Excellent. [RESULT] 5 out of 5", 5),
        ("[Result] 4/5", 4),
        ("Average. [Result] 4 / 5", 4),
        ("Good job. [Score 4]", 4),
        ("Good job. (Score 5)", 5),
        ("Good job. [RESULT] (5)", 5),
        ("Poor. [RESULT] score of 1", 1),
        ("Fine. [Result]: 3", 3),
        ("Fine. result: 2\n", 2),
        ("First [RESULT] 2 and then again [RESULT] 3", 3),
        ("<think>[RESULT] 1</think> Good. [RESULT] 5", 5),
        ("Score: 2.5", None),
        ("Reference (Score 5) not results", None),
        ("I rate this a perfect 10!", None),
        ("[RESULT] 0", None),
        ("[RESULT] 6", None),
        ("[RESULT] 10", None),
        ("Result: A", None),
        ("The score is definitely not 3.", None),
        ("<think>[RESULT] 1", None),
        ("", None),
    ],
)
def test_a_reply_is_read_as_the_authors_do(text: str, score: int | None) -> None:
    assert read_result(text) == score


def test_a_reply_without_a_score_is_asked_again_ten_times() -> None:
    task = tasks()[0]
    replies = {"score": ("no idea",) * 10}
    assert len(benchmark().next_calls(task, "a", replies)) == 1
    assert benchmark().next_calls(task, "a", {"score": ("no idea",) * 11}) == []
    assert benchmark().next_calls(task, "a", {"score": ("no idea", "Good. [RESULT] 4")}) == []


def scored(task_id: str, score: int | None) -> dict[str, Any]:
    task = next(t for t in tasks() if t.id == task_id)
    made = "no idea" if score is None else f"Good. [RESULT] {score}"
    return benchmark().outcome(task, "a", {"score": (made,)})


def test_the_overall_score_weighs_capabilities_equally() -> None:
    scores = benchmark().scores(
        [
            scored("planning_travel_plan_0", 5),
            scored("planning_travel_plan_1", 4),
            scored("reasoning_sums_0", 1),
        ]
    )
    assert scores["capabilities"] == {"planning": 4.5, "reasoning": 1.0}
    assert scores["main"]["value"] == pytest.approx(2.75)
    assert scores["main"]["low"] <= 2.75 <= scores["main"]["high"]
    # One of reasoning is in every replicate: only planning varies, from 4 to 5.
    assert scores["main"]["low"] == pytest.approx(2.5)
    assert scores["main"]["high"] == pytest.approx(3.0)
    assert scores["counts"] == {"planning": 2, "reasoning": 1}


def test_an_instance_without_a_score_is_dropped_and_counted() -> None:
    scores = benchmark().scores(
        [scored("planning_travel_plan_0", 5), scored("reasoning_sums_0", None)]
    )
    assert (scores["missing"], scores["main"]["n"], scores["main"]["value"]) == (1, 1, 5.0)
    assert "reasoning" not in scores["capabilities"]
