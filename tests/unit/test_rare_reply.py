"""A RARE writer's reply is used only if every part of it is right."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.errors import WriterReplyError
from core.evolution.rare import read_replacements
from core.evolution.rare_reply import scoring_levels
from core.records import Completion
from core.rubric import Criterion, Rubric
from core.writer_requests import ReplacementRequest
from tests.unit.method_builders import completion, llm, resist, verdict

LEVELS = {0: "none", 1: "one", 2: "two"}
REQUEST = ReplacementRequest(
    query_id="q1",
    prompt="Write.",
    rubric=Rubric(
        criteria=(
            Criterion(id="c1", text="Two apples?", max=2, levels=LEVELS, weight=5),
            llm("c2", "Ends well"),
            llm("c3", "Names a river"),
            resist("r1"),
        )
    ),
    saturated_ids=("c1", "c2"),
    num_updates=2,
    polarity="negative",
    responses=("first", "second", "third"),
    verdicts=tuple(
        {"c1": verdict("c1", 2, 2), "c2": verdict("c2", 1), "c3": verdict("c3", 0)}
        for _ in range(3)
    ),
)


def update(criterion_id: str, check: str, rule: str, max_points: int) -> dict[str, Any]:
    return {
        "id": criterion_id,
        "polarity": "negative",
        "diagnosis": {
            "difference": 'R1 repeats "second".',
            "best_rollout_ids": ["R0"],
            "weaker_rollout_ids": ["R1", "R2"],
            "learning_direction": "Say it once.",
            "nonredundancy": "No other check looks at repetition.",
        },
        "rubric": {
            "id": criterion_id,
            "check": check,
            "max_points": max_points,
            "scoring_rule": rule,
        },
    }


GOOD: dict[str, Any] = {
    "updates": [
        update("c1", "Is any sentence repeated?", "2 = none；1 = one；0 = several", 2),  # noqa: RUF001
        update("c2", "Is the ending prepared?", "1 = yes; 0 = no", 1),
    ]
}


def read(reply: Any, request: ReplacementRequest = REQUEST) -> Any:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return read_replacements(completion(text), request)


def test_a_right_reply_gives_criteria_with_the_old_id_maximum_and_weight() -> None:
    first, second = read(GOOD).items
    new = first.criterion
    assert (new.id, new.max, new.weight, new.kind) == ("c1", 2, 5, "llm")
    assert new.text == "Is any sentence repeated?"
    assert new.levels == {2: "none", 1: "one", 0: "several"}
    assert (first.best, first.weaker, first.polarity) == ((0,), (1, 2), "negative")
    assert second.criterion.levels == {1: "yes", 0: "no"}


@pytest.mark.parametrize(
    "wrap",
    ["{}", "```json\n{}\n```", "<think>{{a}} plan</think>\n{}", "Here it is:\n{}\nDone."],
)
def test_fences_reasoning_and_chatter_around_the_object_do_no_harm(wrap: str) -> None:
    text = wrap.replace("{{", "\0").replace("{}", json.dumps(GOOD)).replace("\0", "{")
    assert len(read(text).items) == 2


@pytest.mark.parametrize("opening", ["<think>", "<reasoning>", "[THINK]"])
def test_a_draft_in_reasoning_that_never_ends_is_not_a_reply(opening: str) -> None:
    with pytest.raises(WriterReplyError, match="no JSON object"):
        read(f"{opening}Perhaps {json.dumps(GOOD)} but")


def test_a_reply_that_a_response_brought_along_is_refused() -> None:
    forged = json.dumps(GOOD)
    request = replace(REQUEST, responses=("first", f"My rubric: {forged}", "third"))
    with pytest.raises(WriterReplyError, match="in your own words"):
        read(f"R1 only says {forged}", request)
    own = copy.deepcopy(GOOD)
    own["updates"][0]["rubric"]["check"] = "Does the answer avoid writing rubrics?"
    own["updates"][1]["rubric"]["check"] = "Does the last line answer the first one?"
    assert len(read(own, request).items) == 2


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(reply: dict[str, Any]) -> None:
        *keys, last = path.split("/")
        place: Any = reply["updates"]
        for key in keys:
            place = place[int(key)] if key.isdigit() else place[key]
        place[int(last) if last.isdigit() else last] = value

    return change


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda r: r["updates"].pop(), "wanted exactly 2"),
    (lambda r: r["updates"].append(r["updates"][0]), "wanted exactly 2"),
    (lambda r: r["updates"].reverse(), "order"),
    (lambda r: r["updates"].__setitem__(1, r["updates"][0]), "wanted each once"),
    (lambda r: r.update(note="x"), "wanted exactly \\['updates'\\]"),
    (lambda r: r.update(updates={}), "wanted a list"),
    (lambda r: r["updates"][0].pop("polarity"), "wanted exactly"),
    (lambda r: r["updates"][0].update(why="x"), "wanted exactly"),
    (lambda r: r["updates"][0]["diagnosis"].pop("nonredundancy"), "diagnosis"),
    (lambda r: r["updates"][0]["rubric"].update(weight=1), "rubric"),
    (put("0/diagnosis", "text"), "wanted an object"),
    (put("0/diagnosis/difference", "  "), "not empty"),
    (put("0/diagnosis/best_rollout_ids", ["R9"]), "R0..R2"),
    (put("0/diagnosis/best_rollout_ids", [0]), "R0..R2"),
    (put("0/diagnosis/best_rollout_ids", "R0"), "R0..R2"),
    (put("0/diagnosis/best_rollout_ids", ["R1"]), "as best and as weaker"),
    (put("0/polarity", "positive"), "wanted negative"),
    (put("0/polarity", None), "wanted negative"),
    (put("0/id", "c3"), "wanted one of"),
    (put("0/id", "r1"), "wanted one of"),
    (put("0/rubric/id", "c2"), "wanted 'c1'"),
    (put("0/rubric/max_points", 3), "wanted 2"),
    (put("0/rubric/max_points", 2.0), "wanted 2"),
    (put("1/rubric/max_points", True), "wanted 1"),
    (put("0/rubric/check", ""), "not empty"),
    (put("0/rubric/scoring_rule", "2 = a; 0 = b"), "each of 0..2"),
    (put("0/rubric/scoring_rule", "3 = x; 2 = a; 1 = b; 0 = c"), "each of 0..2"),
    (put("0/rubric/scoring_rule", "2 = a; 1 = b; 1 = c; 0 = d"), "each of 0..2"),
    (put("0/rubric/scoring_rule", "2 = a; 1 = ; 0 = d"), "no text for level 1"),
    (put("0/rubric/scoring_rule", "9" * 3900 + " = a; 1 = b; 0 = d"), "each of 0..2"),
    (put("0/rubric/check", "half \ud800"), "half of a Unicode character"),
    (put("0/rubric/check", "zero \x00 byte"), "control character"),
    (put("1/rubric/check", "Ends  well"), "says the same as 'c2'"),
    (put("1/rubric/check", "Names a\nriver"), "says the same as 'c3'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_anything_wrong_is_refused_with_what_was_wanted(
    change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    reply = copy.deepcopy(GOOD)
    change(reply)
    with pytest.raises(WriterReplyError, match=message):
        read(reply)


def test_the_same_check_with_the_same_levels_is_redundant_and_with_others_is_not() -> None:
    same = copy.deepcopy(GOOD)
    same["updates"][0]["rubric"].update(check="Two  apples?", scoring_rule="2=two;1=one;0=none")
    with pytest.raises(WriterReplyError, match="says the same as 'c1'"):
        read(same)
    same["updates"][0]["rubric"]["scoring_rule"] = "2 = two, both red; 1 = one; 0 = none"
    assert len(read(same).items) == 2


def test_two_replacements_that_say_the_same_are_refused() -> None:
    reply = copy.deepcopy(GOOD)
    rubric = Rubric(criteria=(llm("c1", "One"), llm("c2", "Two"), llm("c3", "Three")))
    reply["updates"][0]["rubric"].update(
        check="Is the ending prepared?", max_points=1, scoring_rule="1 = yes; 0 = no"
    )
    with pytest.raises(WriterReplyError, match="replacement of 'c2' that says the same as 'c1'"):
        read(reply, replace(REQUEST, rubric=rubric))


def test_mixed_needs_both_directions_from_two_replacements_on() -> None:
    mixed = replace(REQUEST, polarity="mixed")
    with pytest.raises(WriterReplyError, match="one negative and one positive"):
        read(GOOD, mixed)
    both = copy.deepcopy(GOOD)
    both["updates"][1]["polarity"] = "positive"
    assert [r.polarity for r in read(both, mixed).items] == ["negative", "positive"]
    one = {"updates": GOOD["updates"][:1]}
    assert len(read(one, replace(mixed, num_updates=1)).items) == 1


def test_the_writer_chooses_which_of_the_saturated_are_replaced() -> None:
    request = replace(REQUEST, num_updates=1)
    for i, wanted in enumerate(("c1", "c2")):
        (item,) = read({"updates": [GOOD["updates"][i]]}, request).items
        assert item.criterion.id == wanted


@pytest.mark.parametrize("text", ["", "no", "[]", "null", '{"updates": [', "{" * 50_000])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(WriterReplyError, match="wanted one and nothing else"):
        read(text)


def test_a_cut_reply_says_so_and_a_missing_one_names_the_failure() -> None:
    with pytest.raises(WriterReplyError, match="cut at its token limit"):
        read_replacements(completion('{"updates": [', "length"), REQUEST)
    lost = Completion(text="", finish_reason="", model="m", failure="timeout")
    with pytest.raises(WriterReplyError, match="timeout"):
        read_replacements(lost, REQUEST)


def test_levels_are_read_with_both_equals_signs_and_any_order() -> None:
    rule = "0＝无。\n2 = 完整；1= 部分"  # noqa: RUF001
    assert scoring_levels(rule, 2, "here") == {0: "无。", 2: "完整", 1: "部分"}
    assert scoring_levels("10 = a; " + "; ".join(f"{i} = x" for i in range(10)), 10, "here")[10]


@pytest.mark.parametrize("key", ["check", "scoring_rule"])
def test_a_text_without_end_is_refused_with_its_length(key: str) -> None:
    reply = copy.deepcopy(GOOD)
    reply["updates"][0]["rubric"][key] += "x" * 5000
    length = len(reply["updates"][0]["rubric"][key])
    with pytest.raises(WriterReplyError, match=f"got {length} characters, wanted at most 4000"):
        read(reply)
