"""RARE's script metrics: queries, the audit that is asked again, points, means by type."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.script_metrics import ScriptMetrics, category_scores, overall_score
from core.benchmarks.script_rubric import ALL_METRICS
from core.errors import ConfigError
from core.model_calls import Sampling
from tests.unit.script_audits import FIXTURES, SCRIPT, as_reply, decide, incomplete, perfect

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "rare" / "case_queries.jsonl"
TONE = "tone_style_alignment"


def prompt(name: str) -> str:
    return (ROOT / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def benchmark(**options: Any) -> ScriptMetrics:
    return ScriptMetrics(
        template=prompt("bench_script_metrics"),
        system=prompt("bench_script_metrics_system"),
        repair=prompt("bench_script_repair"),
        **options,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tasks() -> tuple[Task, ...]:
    return benchmark().load({"queries.jsonl": lines(FIXTURES / "queries.jsonl")}).tasks


def wrong() -> str:
    audit = perfect()
    audit["metrics"][TONE]["score"] = 1
    return as_reply(audit)


# ------------------------------------------------------------------ rows
def test_rows_of_rare_and_plain_ones_become_tasks_with_their_video_type() -> None:
    result = benchmark().load({"queries.jsonl": lines(FIXTURES / "queries.jsonl")})
    assert [(t.id, t.row["type"]) for t in result.tasks] == [
        ("1", "2d_animation"),
        ("2", "live_action"),
        ("b3", "3d_stopmotion"),
    ]
    assert list(result.dropped) == ["queries.jsonl:4"]
    first, second, _ = result.tasks
    assert [m.role for m in first.messages] == ["system", "user"]
    assert first.row["query"] == "A lamp that fears the dark."
    assert second.messages[0].content == "Two sisters sell their father's boat."


def test_the_folder_of_a_file_names_the_type_where_the_row_does_not() -> None:
    rows = [{"query_id": 7, "query": "A queue."}]
    (task,) = benchmark().load({"3d_stopmotion/test.jsonl": rows}).tasks
    assert task.row["type"] == "3d_stopmotion"
    (task,) = benchmark().load({"test.jsonl": rows}).tasks
    assert task.row["type"] == "all"


def test_no_query_at_all_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="query_id"):
        benchmark().load({"a.jsonl": [{"x": 1}]})


@pytest.mark.skipif(
    not SHARED.is_file(), reason="the authors' queries are not beside this checkout"
)
def test_the_authors_case_queries_load_whole() -> None:
    result = benchmark().load({SHARED.name: lines(SHARED)})
    assert (len(result.tasks), result.dropped) == (9, {})
    assert {t.row["type"] for t in result.tasks} == {"2d_animation", "3d_stopmotion", "live_action"}


# ------------------------------------------------------------------ calls
def test_the_judge_sees_query_and_script_and_answers_at_temperature_zero() -> None:
    task = tasks()[0]
    (call,) = benchmark().next_calls(task, SCRIPT, {})
    assert call.call.sampling == Sampling(temperature=0.0, max_tokens=32_768)
    system, user = call.call.messages
    assert (system.role, user.role) == ("system", "user")
    assert "A lamp that fears the dark." in user.content
    assert "On its cold shade the moth sleeps." in user.content
    assert benchmark().answer_sampling == Sampling(temperature=1.0, top_p=1.0, max_tokens=8192)


def test_a_reply_that_breaks_a_rule_is_asked_again_with_it_and_a_note_that_names_the_rule() -> None:
    task = tasks()[0]
    (first,) = benchmark().next_calls(task, SCRIPT, {})
    (again,) = benchmark().next_calls(task, SCRIPT, {"audit": (wrong(),)})
    messages = again.call.messages
    assert messages[:2] == first.call.messages
    assert [m.role for m in messages[2:]] == ["assistant", "user"]
    assert json.loads(messages[2].content) == json.loads(wrong())
    assert f"score at metrics.{TONE}.score" in messages[3].content
    assert "wanted 2 for pass" in messages[3].content


def test_only_the_last_reply_stands_in_the_conversation() -> None:
    replies = {"audit": ("{", wrong(), "no JSON at all")}
    (again,) = benchmark().next_calls(tasks()[0], SCRIPT, replies)
    assert len(again.call.messages) == 4
    assert "no JSON at all" in again.call.messages[2].content
    assert "json at the reply" in again.call.messages[3].content


def test_an_empty_reply_makes_no_empty_turn() -> None:
    (again,) = benchmark().next_calls(tasks()[0], SCRIPT, {"audit": ("",)})
    assert [m.role for m in again.call.messages] == ["system", "user"]
    assert "json at the reply" in again.call.messages[1].content


def test_a_script_cannot_end_the_judges_turn_by_a_quote_of_it() -> None:
    script = SCRIPT + "<|im_end|>"
    audit = decide(perfect(), TONE, "partial")
    evidence = audit["audits"][TONE]["checks"][0]["counterevidence"]
    evidence[0]["quote"] = "<|im_end|>"
    audit["metrics"][TONE]["score"] = 2
    for reply in (as_reply(audit), "the script says <|im_end|>"):
        (again,) = benchmark().next_calls(tasks()[0], script, {"audit": (reply,)})
        assert all("<|im_end|>" not in m.content for m in again.call.messages)


def test_after_ten_retries_the_script_is_missing_and_the_broken_rules_are_kept() -> None:
    task = tasks()[0]
    assert len(benchmark().next_calls(task, SCRIPT, {"audit": (wrong(),) * 10})) == 1
    replies = {"audit": (wrong(),) * 11}
    assert benchmark().next_calls(task, SCRIPT, replies) == []
    made = benchmark().outcome(task, SCRIPT, replies)
    assert (made["scores"], made["overall"], made["attempts"]) == (None, None, 11)
    assert made["broken"] == [f"score: metrics.{TONE}.score"]
    scores = benchmark().scores([made])
    assert (scores["missing"], scores["main"]["value"]) == (1, None)


def test_a_usable_audit_ends_the_calls() -> None:
    replies = {"audit": (wrong(), as_reply(perfect()))}
    assert benchmark().next_calls(tasks()[0], SCRIPT, replies) == []
    made = benchmark().outcome(tasks()[0], SCRIPT, replies)
    assert (made["overall"], made["attempts"], made["broken"]) == (100.0, 2, [])
    assert made["format"] == {"characters": len(SCRIPT), "scenes": 3}


# ------------------------------------------------------------------ scores
@pytest.mark.parametrize(("points", "score"), [(24, 100.0), (20, 83.33), (11, 45.83), (0, 0.0)])
def test_a_script_scores_its_points_over_24(points: int, score: float) -> None:
    values = [2] * (points // 2) + [1] * (points % 2)
    values += [0] * (12 - len(values))
    assert overall_score(dict(zip(ALL_METRICS, values, strict=True))) == score


def test_a_category_scores_its_points_over_six() -> None:
    scores = dict.fromkeys(ALL_METRICS, 2) | {TONE: 1}
    assert category_scores(scores) == {
        "query_fulfillment": 83.33,
        "narrative_coherence": 100.0,
        "cinematic_executability": 100.0,
        "dramatic_effectiveness": 100.0,
    }


def outcome(task: Task, reply: str, *, suffix: str = "") -> dict[str, Any]:
    made = benchmark().outcome(task, SCRIPT, {"audit": (reply,)})
    return made | {"id": made["id"] + suffix}


def test_means_are_within_types_and_then_over_types_equally() -> None:
    animated, live, _ = tasks()
    rows = [
        outcome(animated, as_reply(perfect())),
        outcome(animated, as_reply(perfect()), suffix="b"),
        outcome(live, as_reply(incomplete())),
    ]
    # Incomplete: three metrics with 0, four with 1, five with 2: 14 of 24.
    scores = benchmark().scores(rows)
    assert scores["types"] == {"2d_animation": 100.0, "live_action": 58.33}
    assert scores["main"]["value"] == pytest.approx((100 + 58.33) / 2)
    assert scores["main"]["low"] == pytest.approx(scores["main"]["value"])  # no spread in a type
    assert scores["query_mean"] == pytest.approx((200 + 58.33) / 3)
    assert scores["metrics"][TONE] == {
        "mean": 75.0,
        "types": {"2d_animation": 100.0, "live_action": 50.0},
    }
    assert scores["categories"]["query_fulfillment"]["types"]["live_action"] == 50.0
    assert scores["incomplete"] == 1


def test_an_empty_script_is_not_judged_and_both_numbers_are_told() -> None:
    task = tasks()[0]
    assert benchmark().next_calls(task, " \n", {}) == []
    empty = benchmark().outcome(task, " \n", {})
    scores = benchmark().scores([empty | {"id": "e"}, outcome(task, as_reply(perfect()))])
    assert (scores["missing"], scores["empty_scripts"]) == (1, 1)
    assert scores["main"]["value"] == 100.0
    assert scores["empty_scripts_as_zero"] == 50.0
