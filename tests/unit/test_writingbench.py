"""WritingBench: rows and requirement files, valid replies, the authors' means and RARE's."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Loaded, Task
from core.benchmarks.writingbench import WritingBench, judged_part, read_score
from core.errors import ConfigError
from core.model_calls import Sampling

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "writingbench"
SHARED = ROOT.parent / "shared" / "data" / "writingbench"

SCORES = {"1": (8, 4), "2": (9, 7), "3": (10, 1)}
"""By query; both criteria of query 3 are called Form, and the requirement is about the second."""


def prompt(name: str) -> str:
    return (ROOT / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def benchmark(**options: Any) -> WritingBench:
    return WritingBench(
        template=prompt("bench_writingbench"),
        system=prompt("bench_writingbench_system"),
        **options,
    )


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.relative_to(folder).as_posix(): [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for path in sorted(folder.rglob("*.jsonl"))
    }


def loaded() -> Loaded:
    return benchmark().load(rows_of(FIXTURES))


def reply(score: Any, reason: Any = "clear") -> str:
    return json.dumps({"score": score, "reason": reason})


def outcome(task: Task, scores: tuple[int | None, ...]) -> dict[str, Any]:
    replies = {
        f"criterion {n}": (reply(s) if s is not None else "no",)
        for n, s in enumerate(scores, start=1)
    }
    return benchmark().outcome(task, "an answer", replies)


def outcomes() -> list[dict[str, Any]]:
    return [outcome(task, SCORES[task.id]) for task in loaded().tasks]


# ------------------------------------------------------------------ rows
def test_a_query_is_one_task_whatever_files_name_it() -> None:
    result = loaded()
    assert [t.id for t in result.tasks] == ["1", "2", "3"]
    assert result.tasks[0].messages[0].content == "Plan a lesson on rivers in 200 words."
    assert result.dropped == {}


def test_a_requirement_points_at_its_own_criterion_also_among_two_of_one_name() -> None:
    subsets = {t.id: t.row["subsets"] for t in loaded().tasks}
    assert subsets == {"1": {"length": [1]}, "2": {"style": [1]}, "3": {"length": [1]}}


def test_a_query_of_a_requirement_file_alone_is_judged_by_its_criteria_and_counted() -> None:
    files = rows_of(FIXTURES)
    name = "requirement/length/length_subset_C.jsonl"
    result = benchmark().load({name: files[name]})
    assert [len(t.row["checklist"]) for t in result.tasks] == [1, 1]
    scores = benchmark().scores([outcome(t, (5,)) for t in result.tasks])
    assert (scores["partial"], scores["length_C"]) == (2, 5.0)


def test_a_row_that_stands_twice_is_dropped_and_named() -> None:
    rows = rows_of(FIXTURES)["benchmark_all.jsonl"]
    result = benchmark().load({"benchmark_all.jsonl": [*rows, rows[1]]})
    assert len(result.tasks) == 3
    assert list(result.dropped) == ["benchmark_all.jsonl:4"]


@pytest.mark.parametrize(
    "change",
    [
        {"index": True},
        {"index": "1"},
        {"query": " "},
        {"checklist": []},
        {"checklist": [{"name": "Scope"}]},
        {"checklist": ["Scope"]},
    ],
)
def test_a_row_without_its_parts_is_dropped_with_a_reason(change: dict[str, Any]) -> None:
    rows = rows_of(FIXTURES)["benchmark_all.jsonl"]
    result = benchmark().load({"b.jsonl": [rows[0], {**rows[1], **change}]})
    assert [t.id for t in result.tasks] == ["1"]
    assert result.dropped["b.jsonl:2"]


def test_no_row_at_all_is_a_config_error_that_names_the_file() -> None:
    with pytest.raises(ConfigError, match="benchmark_all"):
        benchmark().load({"x.jsonl": [{"a": 1}]})


@pytest.mark.skipif(not SHARED.is_dir(), reason="the authors' rows are not beside this checkout")
def test_the_authors_length_rows_load_whole() -> None:
    result = benchmark().load(rows_of(SHARED))
    assert len(result.tasks) == 222
    assert result.dropped == {}
    places = [len(t.row["subsets"]["length"]) for t in result.tasks]
    assert (places.count(1), places.count(2)) == (218, 4)
    assert sum(t.row["is_partial"] for t in result.tasks) == 216
    assert sorted(len(t.row["checklist"]) for t in result.tasks)[-6:] == [5] * 6


# ------------------------------------------------------------------ calls
def test_each_criterion_is_one_call_as_the_authors_make_it() -> None:
    task = loaded().tasks[0]
    calls = benchmark().next_calls(task, "<think>short</think>\n\nRivers flow.", {})
    assert [c.key for c in calls] == ["criterion 1", "criterion 2"]
    assert calls[0].call.sampling == Sampling(temperature=1.0, top_p=0.95, max_tokens=2048)
    system, user = calls[0].call.messages
    assert (system.role, user.role) == ("system", "user")
    assert user.content.count("Covers rivers") == 2  # the criterion stands before and after
    assert "Near 200 words" not in user.content
    assert "Rivers flow." in user.content
    assert "short" not in user.content.split("The response")[-1].split("once more")[0]


def test_only_what_has_no_valid_reply_is_asked_again_and_not_for_ever() -> None:
    task = loaded().tasks[0]
    replies = {"criterion 1": (reply(11), reply(7)), "criterion 2": (reply(7), reply(11))}
    assert [c.key for c in benchmark().next_calls(task, "a", replies)] == ["criterion 2"]
    assert benchmark(attempts=2).next_calls(task, "a", replies) == []
    made = benchmark(attempts=2).outcome(task, "a", replies)
    assert [s["score"] for s in made["scores"]] == [7, None]


def test_the_answer_is_cut_after_the_first_end_of_reasoning() -> None:
    assert judged_part("a</think>\n\nb</think>\n\nc") == "b</think>\n\nc"
    assert judged_part("a</think>\nb") == "a</think>\nb"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (reply(10), 10),
        (reply(1), 1),
        ("```json\n" + reply(6) + "\n```", 6),
        ("<think>2 or 3</think>\n" + reply(3), 3),
        (reply(7.0), 7),
        (reply(0), None),
        (reply(11), None),
        (reply(7.5), None),
        (reply(True), None),  # equal to 1 in Python, and no score
        (reply("7"), None),
        (reply(7, None), None),
        ('{"score": 7}', None),
        ('{"reason": "x"}', None),
        ("__import__('os')", None),
        ("{'score': 7, 'reason': 'x'}", None),  # the authors would eval it
        (reply(3) + reply(4), None),
        ("", None),
    ],
)
def test_a_reply_is_valid_with_a_whole_score_and_a_text(text: str, score: int | None) -> None:
    read = read_score(text)
    assert (None if read is None else read[0]) == score


# ------------------------------------------------------------------ scores
def test_means_are_the_authors_and_rares() -> None:
    scores = benchmark().scores(outcomes())
    assert scores["micro"] == pytest.approx(39 / 6)
    assert scores["domain1"] == {"Education": 7.0, "Literature & Arts": 5.5}
    assert scores["domain2"] == {"Lesson Plan": 6.0, "Speech": 8.0, "Poem": 5.5}
    assert scores["domain_macro"] == pytest.approx(6.25)
    assert (scores["length_R"], scores["length_C"]) == (5.75, 2.5)
    assert (scores["style_R"], scores["style_C"]) == (8.0, 7.0)
    assert (scores["format_R"], scores["format_C"]) == (None, None)
    assert scores["leaderboard"]["micro"] == pytest.approx(65.0)


def test_two_criteria_of_one_name_do_not_merge_and_the_authors_number_stands_beside() -> None:
    official = benchmark().scores(outcomes())["official"]
    assert official["micro"] == pytest.approx(38 / 5)
    assert official["domain_macro"] == pytest.approx((7 + 10) / 2)
    assert (official["length_R"], official["length_C"]) == (8.0, 7.0)
    alike = [o for o in outcomes() if o["id"] != "3"]
    assert "official" not in benchmark().scores(alike)


@pytest.mark.parametrize(("main", "value"), [("micro", 6.5), ("domain_macro", 6.25)])
def test_the_headline_is_selectable_and_has_an_interval(main: Any, value: float) -> None:
    headline = benchmark(main=main).scores(outcomes())["main"]
    assert headline["name"] == main
    assert headline["value"] == pytest.approx(value)
    assert headline["low"] < value < headline["high"]
    assert headline["n"] == 3


def test_a_query_with_an_unjudged_criterion_is_missing_and_counted() -> None:
    tasks = loaded().tasks
    rows = [outcome(tasks[0], (8, 4)), outcome(tasks[1], (9, None))]
    scores = benchmark().scores(rows)
    assert (scores["missing"], scores["missing_criteria"]) == (1, 1)
    assert scores["micro"] == 6.0
    assert scores["main"]["n"] == 1


def test_nothing_judged_has_no_number() -> None:
    scores = benchmark().scores([outcome(loaded().tasks[0], (None, None))])
    assert scores["main"] == {"name": "micro", "value": None, "low": None, "high": None, "n": 0}
    assert scores["domain_macro"] is None


def test_a_record_that_was_made_twice_counts_once() -> None:
    twice = [*outcomes(), outcome(loaded().tasks[0], (2, 2))]
    assert benchmark().scores(twice)["micro"] == pytest.approx(31 / 6)
