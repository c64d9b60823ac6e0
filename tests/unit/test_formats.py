"""Rows of any shape become queries, or are dropped with a reason."""

import json
from typing import Any

import pytest

from core.config import RewardConfig
from core.formats.checklists import level_texts
from core.formats.reading import read_rows
from core.formats.rows import ReadRows, Row, RowError
from core.formats.rubric_files import read_rubric
from core.grading.prompt import judge_prompt
from core.records import JudgeRequest, Verdict
from core.reward import rollout_reward

NATIVE = {
    "id": "q1",
    "messages": [{"role": "user", "content": "Name a river."}],
    "rubric": [{"id": "c1", "text": "Names one", "rule": {"name": "max_words", "args": {"n": 4}}}],
    "gold": [{"id": "g1", "text": "Is true"}],
    "anchor": {"model": "m", "response": "The Elbe."},
}


def read(*values: Any) -> ReadRows:
    return read_rows([Row(number=i, value=v, line=i + 1) for i, v in enumerate(values)])


def test_a_native_row_keeps_rules_gold_and_anchor() -> None:
    (query,) = read(NATIVE).queries
    assert query.rubric.criteria[0].rule is not None
    assert query.gold[0].id == "g1"
    assert query.anchor is not None


def test_a_native_row_with_two_criteria_of_one_id_is_named() -> None:
    doubled = {**NATIVE, "rubric": [{"id": "c1", "text": "a"}, {"id": "c1", "text": "b"}]}
    (dropped,) = read(doubled).dropped
    assert dropped.reason == "invalid"
    assert "two criteria with the id 'c1'" in dropped.detail


def test_a_native_row_with_an_unknown_key_or_a_used_id_is_named() -> None:
    typo = {**NATIVE, "id": "q2", "rubric": [{"id": "c1", "text": "a", "wieght": 2}]}
    other = {**NATIVE, "messages": [{"role": "user", "content": "Name a lake."}]}
    reasons = [d.reason for d in read(NATIVE, typo, other).dropped]
    assert reasons == ["invalid", "duplicate_id"]


def test_a_rare_rubric_keeps_its_maxima_and_level_texts() -> None:
    row = {
        "prompt": "p",
        "rubric": {"criteria": [{"id": "pace", "check": "Keeps pace", "max_points": 2,
                                 "scoring_rule": "2 = steady; 1 = uneven; 0 = none"}]},
    }  # fmt: skip
    (criterion,) = read(row).queries[0].rubric.criteria
    assert (criterion.id, criterion.max) == ("pace", 2)
    assert criterion.levels == {0: "none", 1: "uneven", 2: "steady"}


def test_tags_of_a_loose_rubric_become_kinds() -> None:
    row = {"prompt": "p", "rubrics": ["[llm] Names one", "[Resist] Does not pad"]}
    kinds = [(c.kind, c.text) for c in read(row).queries[0].rubric.criteria]
    assert kinds == [("llm", "Names one"), ("resist", "Does not pad")]


def test_an_item_of_several_lines_ends_at_its_importance_note() -> None:
    block = (
        "1) Holds both:\n1) short\n2) clear (importance: 100/100)\n2) Is kind (importance: 50/100)"
    )
    criteria = read({"prompt": "p", "requirements": block}).queries[0].rubric.criteria
    assert [c.weight for c in criteria] == [100, 50]
    assert criteria[0].text == "Holds both:\n1) short\n2) clear"


def test_ids_are_unique_texts_and_stay_when_rows_move() -> None:
    rows = [
        {"id": "a", "prompt": "x", "rubrics": ["r"]},
        {"id": "a", "prompt": "y", "rubrics": ["r"]},
        {"prompt": "z", "rubrics": ["r"]},
    ]
    first = [q.id for q in read(*rows).queries]
    assert first[0] == "a"
    assert len(set(first)) == 3
    assert read(rows[2]).queries[0].id == first[2]


def test_an_exact_repeat_is_dropped_even_under_a_reused_id() -> None:
    a, b = (
        {"id": "a", "prompt": "x", "rubrics": ["r"]},
        {"id": "a", "prompt": "y", "rubrics": ["r"]},
    )
    read_ = read(a, b, b, a)
    assert len(read_.queries) == 2
    assert [d.reason for d in read_.dropped] == ["duplicate", "duplicate"]


# ---------------------------------------------------------------------- rubrics deeper down
RARE_RUBRIC = {
    "criteria": [
        {"id": "c1", "check": "Pace", "scoring_rule": "2 = even; 1 = uneven; 0 = none",
         "max_points": 2},
        {"id": "c2", "check": "End", "scoring_rule": "1 \uff1d closed; 0 \uff1d open",
         "max_points": 1},
    ],
    "reward_aggregation": {
        "type": "normalized_sum_with_caps",
        "caps": [{"criterion_id": "c2", "score_lte": 0, "max_normalized_score": 0.5}],
    },
}  # fmt: skip


@pytest.mark.parametrize("as_text", [True, False])
def test_a_rare_row_has_its_rubric_in_extra_info(as_text: bool) -> None:
    rubric = json.dumps(RARE_RUBRIC) if as_text else RARE_RUBRIC
    row = {
        "prompt": [{"role": "user", "content": "Write a script."}],
        "answer": "",
        "query_id": 1097,
        "extra_info": {"criteria": rubric, "stem_uid": "3d_video_0001_q01"},
    }
    (query,) = read(row).queries
    assert query.id == "1097"
    assert [(c.id, c.max) for c in query.rubric.criteria] == [("c1", 2), ("c2", 1)]
    assert query.rubric.criteria[1].levels == {0: "open", 1: "closed"}
    assert [(c.criterion_id, c.max_normalized_score) for c in query.rubric.caps] == [("c2", 0.5)]


def test_a_cap_on_a_criterion_that_is_not_there_drops_the_row() -> None:
    rubric = RARE_RUBRIC | {
        "reward_aggregation": {
            "type": "normalized_sum_with_caps",
            "caps": [{"criterion_id": "c9", "score_lte": 0, "max_normalized_score": 0.5}],
        }
    }
    (dropped,) = read({"prompt": "p", "extra_info": {"criteria": rubric}}).dropped
    assert dropped.reason == "bad_rubric"
    assert "a cap on 'c9'" in dropped.detail


def test_a_dr_tulu_row_has_its_rubric_in_ground_truth() -> None:
    rubrics = [
        {"title": "T", "description": "Cites", "weight": -1.0},
        {"title": "U", "description": "Is clear", "weight": 1.0},
    ]
    truth = {"query": "q", "rubrics": rubrics}
    row = {"messages": [{"role": "user", "content": "q"}], "ground_truth": [json.dumps(truth)]}
    (query,) = read(row).queries
    assert [(c.text, c.weight) for c in query.rubric.criteria] == [("Cites", -1), ("Is clear", 1)]


def test_dr_tulu_criteria_are_scored_to_two_and_a_penalty_says_what_its_levels_mean() -> None:
    rubrics = [{"description": "Overclaims", "weight": -1.0}, {"description": "Is clear"}]
    truth = json.dumps({"query": "q", "rubrics": rubrics})
    (query,) = read({"prompt": "p", "ground_truth": truth}).queries
    penalty, plain = query.rubric.criteria
    assert (penalty.max, plain.max, plain.levels) == (2, 2, None)
    assert penalty.levels is not None
    assert "not true" in penalty.levels[0]
    (other,) = read({"prompt": "p", "rubrics": rubrics}).queries
    assert [c.max for c in other.rubric.criteria] == [1, 1]


def test_a_weighted_binary_criterion_is_0_or_its_weight_and_the_judge_is_told() -> None:
    row = {
        "prompt": "Explain tides.",
        "rubrics": [{"criterion": "Names the Moon", "weight": 3},
                    {"criterion": "Has an example", "weight": 1}],
        "total_weight": 4,
    }  # fmt: skip
    (query,) = read(row).queries
    moon, example = query.rubric.criteria
    assert (moon.max, moon.weight, example.max, example.levels) == (3, 3.0, 1, None)
    assert moon.levels is not None
    assert moon.levels[1] == moon.levels[2]
    assert "gets 0, all others 3" in moon.levels[1]
    prompt = judge_prompt(
        "{{criteria}}{{prompt}}{{response}}{{ids}}",
        JudgeRequest(query_id="q", prompt="p", response="r", criteria=query.rubric.criteria),
        style="ids",
    )
    assert "gets 0, all others 3" in prompt
    # The reward under either way of weighing: 3 of 4 for the Moon alone (RARE appendix E.2).
    verdicts = {
        "c1": Verdict(criterion_id="c1", score=3, max=3),
        "c2": Verdict(criterion_id="c2", score=0, max=1),
    }
    for weights in ("none", "checklist"):
        config = RewardConfig.model_validate({"weights": weights})
        assert rollout_reward(query.rubric, verdicts, config).value == 0.75


@pytest.mark.parametrize(
    "entry",
    [
        {"criterion": "a", "weight": 75},
        {"criterion": "a", "weight": 2.5},
        {"criterion": "a", "weight": 2, "axis": "x"},
        {"description": "a", "weight": 2},
    ],
)
def test_other_weights_stay_weights(entry: dict[str, Any]) -> None:
    (criterion,) = read({"prompt": "p", "rubrics": [entry]}).queries[0].rubric.criteria
    assert (criterion.max, criterion.weight) == (1, entry["weight"])


# ---------------------------------------------------------------------- rubric files
def test_a_rubric_file_is_a_list_an_object_or_rares() -> None:
    own = [{"id": "a", "text": "Is short", "max": 2}]
    assert read_rubric(own).criterion("a").max == 2
    assert read_rubric({"criteria": own}) == read_rubric(own)
    rare = read_rubric({"task_id": "2d", "rubric_version": 0, **RARE_RUBRIC})
    assert (rare.total_max, rare.version) == (3, 0)
    assert rare.criterion("c1").levels == {0: "none", 1: "uneven", 2: "even"}
    assert rare.caps[0].max_normalized_score == 0.5


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "no list of criteria"),
        ({"rubric": 3}, "no list of criteria"),
        ([{"id": "a", "text": "t", "wieght": 2}], "Extra inputs"),
        ({"criteria": [{"id": "a", "text": "t"}], "kapps": []}, "unknown key 'kapps'"),
        ([{"id": "a", "check": "t", "max_points": 1}], "wanted the keys"),
        ([{"id": "a", "check": "t", "max_points": True, "scoring_rule": "1 = a; 0 = b"}],
         "got max_points True"),
        ([{"id": "a", "check": "t", "max_points": 2, "scoring_rule": "2 = a; 0 = b"}],
         "define each level 0..2"),
        (RARE_RUBRIC | {"reward_aggregation": {"type": "mean", "caps": [1]}}, "wanted type"),
        (RARE_RUBRIC | {"reward_aggregation": []}, "wanted type"),
    ],
)  # fmt: skip
def test_a_rubric_file_with_a_slip_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        read_rubric(value)
    assert reason in caught.value.detail


def test_a_scoring_rule_without_a_level_gives_no_level_texts() -> None:
    assert level_texts("full marks for a closed end", 1) is None
    assert level_texts("2 = a; 0 = b", 2) is None
    assert level_texts("1 = a; 0 = b", 1) == {0: "b", 1: "a"}


def test_an_anchor_may_be_json_text() -> None:
    anchor = json.dumps({"model": "m", "response": "The Elbe."})
    (query,) = read({"prompt": "p", "rubrics": ["r"], "anchor": anchor}).queries
    assert query.anchor is not None
    assert (query.anchor.model, query.anchor.response) == ("m", "The Elbe.")
    (plain,) = read({"prompt": "p", "rubrics": ["r"], "anchor": "{x}"}).queries
    assert plain.anchor is not None
    assert plain.anchor.response == "{x}"
