"""The rule-based writer for RARE: exact replies, checks that tell the rollouts apart."""

import json

import pytest

from core.evolution.rare import read_replacements
from core.records import Completion
from core.rubric import Criterion, Rubric, Rule
from core.rules.phrases import rule_from_text, text_from_rule
from core.rules.replacements import scoring_rule, write_replacements
from core.rules.verifiers import decide
from core.writer_requests import ReplacementRequest

PROMPT = "Write two sentences about a mill. Use the words wheel, flour, miller, stream."
RESPONSES = (
    "The stream turns the old wheel all morning. The miller fills sack after sack with flour.",
    "The miller and the miller and the miller and the miller went to see the miller and the",
    "A wheel turns in the stream. A dog barks. It is a fine day for a walk.",
    "Flour, flour, flour, flour and the wheel of the miller, the wheel of the miller",
)
RUBRIC = Rubric(
    criteria=(
        Criterion(id="a", text="It is about a mill."),
        Criterion(id="b", text="It is pleasant.", max=2),
        Criterion(id="v", text="It is calm.", kind="resist"),
        Criterion(id="c", text="It is short.", max=3),
    )
)


def request(polarity="negative", ids=("a", "b", "c"), num=3, responses=RESPONSES, rubric=RUBRIC):
    return ReplacementRequest(
        query_id="q",
        prompt=PROMPT,
        rubric=rubric,
        saturated_ids=ids,
        num_updates=num,
        polarity=polarity,
        responses=responses,
        verdicts=tuple({} for _ in responses),
    )


def read(asked: ReplacementRequest):
    reply = Completion(text=write_replacements(asked), finish_reason="stop", model="rules")
    return read_replacements(reply, asked).items


def scores(criterion: Criterion, responses=RESPONSES) -> list[float]:
    found = [decide(criterion, r, PROMPT).score for r in responses]
    assert None not in found
    return [s for s in found if s is not None]


@pytest.mark.parametrize("polarity", ["negative", "positive", "mixed"])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_a_reply_is_accepted_and_its_checks_tell_the_rollouts_apart(polarity, num):
    items = read(request(polarity, num=num))
    assert [r.criterion.id for r in items] == ["a", "b", "c"][:num]
    for item in items:
        assert rule_from_text(item.criterion.text) is not None
        found = scores(item.criterion)
        assert len(set(found)) > 1, item.criterion.text
        assert {found[i] for i in item.best} == {max(found)}
        assert {found[i] for i in item.weaker} == {min(found)}
    assert len({rule_from_text(r.criterion.text).name for r in items}) == num


def test_polarities_are_the_ones_asked_for_and_mixed_has_both():
    assert {r.polarity for r in read(request("negative"))} == {"negative"}
    assert {r.polarity for r in read(request("positive"))} == {"positive"}
    assert {r.polarity for r in read(request("mixed", num=2))} == {"negative", "positive"}


def test_the_first_check_splits_the_group_in_halves():
    # Rollouts 1 and 3 say the same phrases again, rollouts 0 and 2 do not.
    first = read(request("negative", num=1))[0]
    assert scores(first.criterion) == [1, 0, 1, 0]
    assert rule_from_text(first.criterion.text).name == "no_repeated_ngrams"


def test_a_graded_criterion_gets_a_check_with_levels_in_between():
    item = read(request("positive", ids=("c",), num=1))[0]
    assert item.criterion.max == 3
    assert set(item.criterion.levels) == {0, 1, 2, 3}
    assert len(set(scores(item.criterion))) > 1


def test_the_quotes_of_the_diagnosis_stand_in_the_rollouts():
    for item in read(request("negative")):
        quoted = item.difference.split('"')[1::2]
        assert quoted
        assert all(any(q in r for r in RESPONSES) for q in quoted)


def test_a_rule_that_the_rubric_has_is_not_used_again():
    rule = Rule(name="no_repeated_ngrams", args={"n": 3, "max_frac": 0.5})
    rubric = Rubric(
        criteria=(*RUBRIC.criteria, Criterion(id="d", text=text_from_rule(rule), kind="resist"))
    )
    for item in read(request("mixed", rubric=rubric)):
        assert rule_from_text(item.criterion.text).name != "no_repeated_ngrams"


def test_equal_rollouts_get_an_honest_diagnosis():
    items = read(request("negative", responses=(RESPONSES[0],) * 4))
    assert len(items) == 3
    for item in items:
        assert item.best == item.weaker == ()
        assert "tells these rollouts apart" in item.difference


@pytest.mark.parametrize("polarity", ["negative", "positive", "mixed"])
def test_there_is_always_another_check(polarity):
    rubric = Rubric(criteria=tuple(Criterion(id=f"s{i}", text=f"Old {i}.") for i in range(40)))
    ids = tuple(c.id for c in rubric.criteria)
    items = read(request(polarity, ids=ids, num=40, rubric=rubric))
    assert len({r.criterion.text for r in items}) == 40


def test_a_veto_among_the_ids_is_never_replaced():
    reply = json.loads(write_replacements(request(ids=("v", "a"), num=1)))
    assert [u["id"] for u in reply["updates"]] == ["a"]


def test_levels_say_what_the_scale_does():
    assert scoring_rule(1, "at_most") == "1 = the check holds; 0 = anything else"
    assert scoring_rule(2, "at_least") == (
        "2 = the check holds; 1 = at least 50% of what is asked is there; 0 = anything else"
    )
    assert "a factor of 2.00" in scoring_rule(2, "at_most")


@pytest.mark.parametrize(
    "response", ["", "\ud800\x00\u202e", '"}], "updates": [', "<FINAL_SET>[]</FINAL_SET>" * 50]
)
def test_policy_text_cannot_break_the_reply(response):
    items = read(request("mixed", responses=(response, RESPONSES[0], response, RESPONSES[1])))
    assert len(items) == 3


@pytest.mark.timeout(120)
def test_long_responses_are_answered():
    long = tuple(r + " The wheel turns." * n for r, n in zip(RESPONSES, (9, 99, 999, 9999)))  # noqa: B905
    assert len(read(request("mixed", responses=long))) == 3


def test_the_same_request_gives_the_same_reply():
    assert write_replacements(request("mixed")) == write_replacements(request("mixed"))
