"""HealthBench: one call an item, signed points, a mean that alone is clipped, scores by tag."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.healthbench import HealthBench, clipped_stats, points_share, read_met
from core.errors import ConfigError

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "healthbench"
SHARED = ROOT.parent / "shared" / "data" / "format_samples" / "healthbench.synthetic.jsonl"
TEMPLATE = (ROOT / "prompts" / "bench_healthbench.txt").read_text(encoding="utf-8")


def benchmark(**options: Any) -> HealthBench:
    return HealthBench(template=TEMPLATE, **options)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def files() -> dict[str, list[dict[str, Any]]]:
    return {name: lines(FIXTURES / name) for name in ("oss_eval.jsonl", "hard.jsonl")}


def tasks() -> tuple[Task, ...]:
    return benchmark().load(files()).tasks


def reply(is_met: Any) -> str:
    return json.dumps({"explanation": "because", "criteria_met": is_met})


def outcome(task: Task, met: tuple[bool | None, ...]) -> dict[str, Any]:
    replies = {f"item {n}": (reply(m),) for n, m in enumerate(met, start=1)}
    return benchmark().outcome(task, "an answer", replies)


def test_subsets_are_files_and_a_row_without_positive_points_is_dropped() -> None:
    full = benchmark().load(files())
    assert [t.id for t in full.tasks] == ["p1", "p2"]
    assert full.dropped == {"oss_eval.jsonl:3": "no rubric item has positive points"}
    assert [t.id for t in benchmark(subset="hard").load(files()).tasks] == ["h1"]
    with pytest.raises(ConfigError, match="consensus"):
        benchmark(subset="consensus").load(files())


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_id": ""},
        {"prompt": []},
        {"prompt": [{"role": "user"}]},
        {"rubrics": []},
        {"rubrics": [{"criterion": "c", "points": True, "tags": []}]},
        {"rubrics": [{"criterion": "c", "points": float("nan"), "tags": []}]},
        {"rubrics": [{"criterion": "c", "points": 1}]},
        {"example_tags": [1]},
    ],
)
def test_a_row_without_its_parts_is_dropped_with_a_reason(change: dict[str, Any]) -> None:
    first, second, _ = files()["oss_eval.jsonl"]
    result = benchmark().load({"a.jsonl": [first, {**second, **change}]})
    assert [t.id for t in result.tasks] == ["p1"]
    assert result.dropped["a.jsonl:2"]


@pytest.mark.skipif(not SHARED.is_file(), reason="the sample row is not beside this checkout")
def test_the_shared_sample_loads() -> None:
    (task,) = benchmark().load({SHARED.name: lines(SHARED)}).tasks
    assert outcome(task, (True, False, True, True))["score"] == pytest.approx(11 / 22)


def test_each_item_is_one_call_with_its_points_and_the_conversation() -> None:
    calls = benchmark().next_calls(tasks()[0], "Rest a little.", {})
    assert [c.key for c in calls] == ["item 1", "item 2", "item 3", "item 4"]
    text = calls[3].call.messages[-1].content
    assert "user: I have a mild headache.\n\nassistant: For how long?\n\nuser: Since noon." in text
    assert "assistant: Rest a little." in text
    assert "[-6] Recommends antibiotics" in text
    assert "Names red flags" not in text


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        (reply(True), True),
        (reply(False), False),
        ("```json\n" + reply(True) + "\n```", True),
        (reply("true"), None),
        (reply(1), None),
        (reply(None), None),
        ('{"explanation": "x"}', None),
        ("true", None),
        ("", None),
    ],
)
def test_only_a_boolean_is_a_grade(text: str, is_met: bool | None) -> None:
    read = read_met(text)
    assert (None if read is None else read[0]) is is_met


def test_an_item_without_a_grade_is_asked_again_and_then_missing() -> None:
    task = tasks()[1]
    replies = {"item 1": (reply(True),), "item 2": (reply("no"),)}
    assert [c.key for c in benchmark().next_calls(task, "a", replies)] == ["item 2"]
    assert benchmark(attempts=1).next_calls(task, "a", replies) == []
    made = benchmark().outcome(task, "a", replies)
    assert made["score"] is None
    scores = benchmark().scores([made, outcome(tasks()[0], (True, False, True, True))])
    assert (scores["missing"], scores["missing_items"], scores["main"]["n"]) == (1, 1, 1)


def test_the_authors_vector_gives_a_half() -> None:
    points = [(7, True), (5, False), (10, True), (-6, True)]
    assert points_share([{"points": p, "met": m} for p, m in points]) == 11 / 22


def test_items_without_positive_points_have_no_share() -> None:
    assert points_share([{"points": -6, "met": True}]) is None


def test_an_example_may_be_below_zero_and_only_the_mean_is_clipped() -> None:
    low = outcome(tasks()[1], (True, True))
    half = outcome(tasks()[0], (True, False, True, True))
    assert low["score"] == -1.0
    scores = benchmark().scores([low, half])
    assert scores["main"]["value"] == 0.0
    assert scores["main"]["low"] == 0.0
    assert scores["main"]["high"] == pytest.approx(0.5)
    all_met = outcome(tasks()[0], (True, True, True, False))
    assert benchmark().scores([low, all_met, all_met | {"id": "x"}])["main"]["value"] == (
        pytest.approx((-1 + 1 + 1) / 3)
    )


def test_tags_of_items_score_on_their_items_and_tags_of_examples_on_the_whole() -> None:
    scores = benchmark().scores(
        [outcome(tasks()[0], (True, False, True, True)), outcome(tasks()[1], (True, False))]
    )
    assert scores["themes"]["context_seeking"]["value"] == pytest.approx(0.5)
    assert scores["themes"]["hedging"]["value"] == 1.0
    # accuracy: (0 - 6) / 5 in the first example, 4 / 4 in the second; the mean is clipped.
    accuracy = scores["axes"]["accuracy"]
    assert (accuracy["value"], accuracy["n"]) == (0.0, 2)
    assert scores["axes"]["completeness"]["value"] == 1.0
    assert "communication_quality" not in scores["axes"]  # it has no positive points


def test_the_authors_deviation_is_that_of_clipped_bootstrap_means() -> None:
    # Means of two draws from {-1, 1} are -1, 0, 1 with 1/4, 1/2, 1/4; clipped 0, 0, 1: the
    # deviation is that of a coin with 1/4, whose square is 3/16.
    stats = clipped_stats([-1.0, 1.0])
    assert stats["bootstrap_std"] == pytest.approx((3 / 16) ** 0.5, abs=0.03)
    assert (stats["value"], stats["n"]) == (0.0, 2)
    assert clipped_stats([]) == {"value": None, "bootstrap_std": None, "n": 0}
