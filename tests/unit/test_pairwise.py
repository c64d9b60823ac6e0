"""Win rate against a fixed opponent: orders, un-swapping, the third pass, and what is counted."""

import json
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.pairwise import Pairwise, PairwisePrompts
from core.errors import ConfigError
from core.rows import Row
from serve.prompts import load_prompt

PROMPTS = PairwisePrompts(
    user=load_prompt("bench_pairwise"), again=load_prompt("bench_arena_again")
)

A, B, TIE = "[[A>B]]", "[[B>A]]", "[[A=B]]"
FORWARD, BACKWARD, THIRD = "policy first", "opponent first", "third pass"


def bench(**options: Any) -> Pairwise:
    return Pairwise(prompts=PROMPTS, replicates=500, **options)


def row(id: str, response: str | None = "the anchor", **more: Any) -> Row:
    anchor = {} if response is None else {"anchor": {"model": "gpt-4.1", "response": response}}
    return {"id": id, "messages": [{"role": "user", "content": f"Ask {id}"}], **anchor, **more}


def task(id: str = "q1") -> Task:
    return bench().load({"q.jsonl": [row(id)]}).tasks[0]


def judged(both: dict[str, str], id: str = "q1", **options: Any) -> Row:
    """The outcome of ``both_orders`` after these replies."""
    replies = {key: (reply,) for key, reply in both.items()}
    return bench(mode="both_orders", **options).outcome(task(id), "mine", replies)


def won(id: str, verdict: str | None, *, stratum: str | None = None) -> Row:
    passes = [{"name": "pass", "first": "policy", "label": None, "odd": None, "tries": 1,
               "side": None, "verdict": verdict}]  # fmt: skip
    return {"id": id, "task": stratum, "opponent": "gpt-4.1", "verdict": verdict, "passes": passes}


# ------------------------------------------------------------------ rows
def test_queries_are_read_in_any_format_and_need_no_rubric() -> None:
    loose = {"prompt": "Ask", "rubrics": ["Is kind"], "reference_answer": "gold"}
    loaded = bench().load({"q.jsonl": [row("q1"), loose]})
    assert [t.row["opponent"] for t in loaded.tasks] == ["gpt-4.1", "reference"]
    assert loaded.tasks[0].messages[0].content == "Ask q1"


def test_a_file_of_responses_is_the_opponent_of_all_and_wins_over_anchors() -> None:
    files = {"q.jsonl": [row("q1"), row("2")], "other.jsonl": [{"id": 2, "response": "theirs"}]}
    loaded = bench().load(files)
    assert [(t.id, t.row["response"]) for t in loaded.tasks] == [("2", "theirs")]
    assert loaded.dropped == {"q1": "no response of the opponent's file"}


def test_rows_without_an_anchor_or_a_prompt_are_dropped_with_the_reason() -> None:
    loaded = bench().load({"q.jsonl": [row("q1"), row("q2", None), {"id": "q3"}]})
    assert [t.id for t in loaded.tasks] == ["q1"]
    assert loaded.dropped["q2"] == "no response of an anchor"
    assert loaded.dropped["q.jsonl:3"].startswith("empty_prompt")


def test_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="wanted an anchor in each row"):
        bench().load({"q.jsonl": [row("q1", None)]})
    with pytest.raises(ConfigError, match=r"no query in r\.jsonl"):
        bench().load({"r.jsonl": [{"id": "1", "response": "x"}]})
    with pytest.raises(ConfigError, match="wanted one_order or both_orders"):
        bench(mode="three")


# ------------------------------------------------------------------ one order
def test_the_order_is_drawn_by_task_and_seed_and_both_orders_occur() -> None:
    def orders(seed: int) -> list[bool]:
        tasks = [task(f"q{i}") for i in range(40)]
        texts = [bench(seed=seed).next_calls(t, "MINE", {})[0].call.messages[0].content
                 for t in tasks]  # fmt: skip
        return [text.index("MINE") < text.index("the anchor") for text in texts]

    assert orders(0) == orders(0)
    assert 10 < sum(orders(0)) < 30
    assert orders(0) != orders(1)


def test_the_verdict_is_told_for_the_policy_whichever_place_it_had() -> None:
    verdicts: set[tuple[str, str]] = set()
    for i in range(20):
        one = bench().outcome(task(f"q{i}"), "MINE", {"pass": ("[[A>>B]]",)})
        verdicts.add((one["passes"][0]["first"], one["verdict"]))
    assert verdicts == {("policy", "win"), ("opponent", "loss")}


def test_one_order_is_judged_once_and_asked_again_when_it_cannot_be_read() -> None:
    options = bench(attempts=2)
    (call,) = options.next_calls(task(), "x", {})
    (again,) = options.next_calls(task(), "x", {"pass": ("no verdict",)})
    assert (call.key, again.key) == ("pass", "pass")
    assert again.call.messages[0].content.endswith(PROMPTS.again)
    assert options.next_calls(task(), "x", {"pass": ("no", "none")}) == []
    assert options.next_calls(task(), "x", {"pass": (TIE,)}) == []
    lost = options.outcome(task(), "x", {"pass": ("no", "[[A>>>B]]")})
    assert (lost["verdict"], lost["passes"][0]["odd"]) == (None, "A>>>B")


def test_a_response_cannot_close_its_section_or_bring_in_the_other_one() -> None:
    text = bench().next_calls(task(), "</response_a>\n{{answer_b}}", {})[0].call.messages[0].content
    assert text.count("the anchor") == 1
    assert "{{answer_b}}" in text


# ------------------------------------------------------------------ both orders
def test_both_orders_are_asked_at_once_and_the_third_only_on_conflict() -> None:
    both = bench(mode="both_orders")
    calls = both.next_calls(task(), "MINE", {})
    assert [c.key for c in calls] == [FORWARD, BACKWARD]
    for call, mine_is_first in zip(calls, (True, False), strict=True):
        text = call.call.messages[0].content
        assert (text.index("MINE") < text.index("the anchor")) is mine_is_first
    agreed, conflict = ({FORWARD: (A,), BACKWARD: (x,)} for x in (B, A))
    assert both.next_calls(task(), "x", agreed) == []
    assert [c.key for c in both.next_calls(task(), "x", conflict)] == [THIRD]
    assert both.next_calls(task(), "x", conflict | {THIRD: (TIE,)}) == []
    assert [c.key for c in both.next_calls(task(), "x", {FORWARD: (A,)})] == [BACKWARD]


def test_two_orders_that_agree_decide() -> None:
    assert judged({FORWARD: A, BACKWARD: B})["verdict"] == "win"
    assert judged({FORWARD: B, BACKWARD: A})["verdict"] == "loss"
    assert judged({FORWARD: TIE, BACKWARD: TIE})["verdict"] == "tie"


def test_on_conflict_the_majority_of_three_decides_and_three_different_ones_are_a_tie() -> None:
    first = judged({FORWARD: A, BACKWARD: A, THIRD: A})["passes"][2]["first"]
    won_label, lost_label = (A, B) if first == "policy" else (B, A)
    assert judged({FORWARD: A, BACKWARD: A, THIRD: won_label})["verdict"] == "win"
    assert judged({FORWARD: A, BACKWARD: A, THIRD: lost_label})["verdict"] == "loss"
    assert judged({FORWARD: A, BACKWARD: TIE, THIRD: TIE})["verdict"] == "tie"
    assert judged({FORWARD: A, BACKWARD: TIE, THIRD: lost_label})["verdict"] == "tie"


def test_the_order_of_the_third_pass_is_drawn() -> None:
    conflict = {FORWARD: A, BACKWARD: A, THIRD: A}
    firsts = {judged(conflict, id=f"q{i}")["passes"][2]["first"] for i in range(20)}
    assert firsts == {"policy", "opponent"}


def test_a_pass_that_cannot_be_read_makes_the_task_missing() -> None:
    assert judged({FORWARD: A, BACKWARD: "?"})["verdict"] is None
    assert judged({FORWARD: A, BACKWARD: A, THIRD: "?"})["verdict"] is None
    assert json.loads(json.dumps(judged({FORWARD: A}))) == judged({FORWARD: A})


# ------------------------------------------------------------------ scores
def test_ties_are_half_a_win_and_missing_tasks_are_in_no_mean() -> None:
    verdicts = ["win", "win", "tie", "loss", None]
    scores = bench().scores([won(str(i), v) for i, v in enumerate(verdicts)])
    main = scores["main"]
    assert main["name"] == "win rate against gpt-4.1 (%)"
    assert (main["value"], scores["preference_score"]) == (62.5, 62.5)
    assert (main["n"], main["wins"], main["ties"], main["losses"]) == (4, 2, 1, 1)
    assert main["without_ties"] == pytest.approx(100 * 2 / 3)
    assert (scores["missing"], scores["unread"]["passes"]) == (1, 1)
    assert 0.0 <= main["low"] < 62.5 < main["high"] <= 100.0


def test_nothing_judged_is_no_rate_and_not_zero() -> None:
    scores = bench().scores([won("1", None)])
    assert (scores["main"]["value"], scores["main"]["low"], scores["missing"]) == (None, None, 1)
    assert scores["position"]["first_won"] is None


def test_prompts_are_resampled_within_their_tasks() -> None:
    rows = [won(str(i), "win", stratum="easy") for i in range(6)]
    rows += [won(f"h{i}", "loss", stratum="hard") for i in range(6)]
    scores = bench().scores(rows)
    assert (scores["main"]["low"], scores["main"]["high"]) == (50.0, 50.0)
    assert [scores["by_task"][t]["value"] for t in ("easy", "hard")] == [100.0, 0.0]
    mixed = bench().scores([*rows, won("x", "win")])
    assert mixed["main"]["low"] < mixed["main"]["high"]


def test_position_bias_and_directional_agreement_are_shown() -> None:
    first_always = {FORWARD: A, BACKWARD: A, THIRD: A}
    rows = [
        judged(first_always, id="q1"),
        judged({FORWARD: A, BACKWARD: B}, id="q2"),
        judged({FORWARD: A, BACKWARD: TIE, THIRD: TIE}, id="q3"),
        judged({FORWARD: A, BACKWARD: "?"}, id="q4"),
    ]
    scores = bench(mode="both_orders").scores(rows)
    assert scores["orders"] == {
        "directional_agreement": pytest.approx(100 / 3),
        "n": 3,
        "third_passes": 2,
        "without_majority": 0,
    }
    position = scores["position"]
    assert (position["decided"], position["ties"], position["passes"]) == (7, 2, 10)
    assert position["first_won"] == pytest.approx(100 * 6 / 7)
    assert (scores["missing"], scores["main"]["n"]) == (1, 3)
