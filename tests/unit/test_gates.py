"""Gates on texts, rules and scores, each against values worked out by hand."""

import pytest

from core.evolution.gates import (
    contrary,
    discriminates,
    near_duplicate,
    retired,
    score_deviation,
    without_refused,
)
from core.evolution.rare import Replaced
from core.evolution.rule_limits import excludes
from core.records import Evolution, GradedRollout, RubricEdit, Verdict
from core.rubric import Cap, Criterion, Rubric, Rule
from core.rules.phrases import text_from_rule
from tests.unit.method_builders import graded_group, llm, resist, verdict


def ruled(
    criterion_id: str, rule_name: str, /, *, weight: float = 1.0, **args: object
) -> Criterion:
    """A criterion that code decides, under a text of its own."""
    rule = Rule.model_validate({"name": rule_name, "args": args})
    return Criterion(id=criterion_id, text=f"Text of {criterion_id}", rule=rule, weight=weight)


# ------------------------------------------------------------------ near duplicates
def test_the_same_text_is_a_duplicate_whatever_its_kind_case_and_period() -> None:
    old = llm("c1", "Names the price of each item")
    assert near_duplicate(resist("a1", "names the  price of each item."), [old], 0.9) is old


def test_texts_are_duplicates_from_the_configured_share_of_words_on() -> None:
    # Content words: {name, price, date, place} and these plus {clearly}: 4 of 5 are common.
    old = llm("c1", "Names price, date and place")
    new = llm("a1", "Clearly names price, date and place")
    assert near_duplicate(new, [old], 0.8) is old
    assert near_duplicate(new, [old], 0.81) is None


def test_other_numbers_make_another_criterion() -> None:
    old = llm("c1", "Lists exactly 3 reasons for the decline of the trade")
    new = llm("a1", "Lists exactly 5 reasons for the decline of the trade")
    assert near_duplicate(new, [old], 0.5) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The response uses no slang", "The response avoids slang"),
        ("The response doesn't contain slang", "Is the response free of slang?"),
        ("The response gives the price", "The response mentions the price"),
    ],
)
def test_the_same_statement_of_the_same_polarity_is_a_duplicate(old: str, new: str) -> None:
    first = llm("c1", old.rstrip("?"))
    assert near_duplicate(llm("a1", new.rstrip("?")), [first], 1.0) is first


def test_rules_are_duplicates_only_when_name_and_arguments_are_the_same() -> None:
    old = ruled("c1", "max_words", n=20)
    assert near_duplicate(ruled("a1", "max_words", n=20), [old], 0.9) is old
    assert near_duplicate(ruled("a1", "max_words", n=21), [old], 0.1) is None
    # Left out arguments have their defaults: n=3 of no_repeated_ngrams.
    old = ruled("c1", "no_repeated_ngrams", max_frac=0.1)
    assert near_duplicate(ruled("a1", "no_repeated_ngrams", n=3, max_frac=0.1), [old], 0.9) is old


def test_a_canonical_sentence_is_compared_by_the_rule_that_it_states() -> None:
    stated = llm("a1", text_from_rule(Rule(name="max_words", args={"n": 20})))
    old = ruled("c1", "max_words", n=20)
    assert near_duplicate(stated, [old], 0.9) is old
    # Almost the same words, but another rule.
    other = llm("c2", "These words are mentioned at least 4 times in all: oven, bread, flour.")
    more = llm("a1", "These words are mentioned at least 6 times in all: oven, bread, flour.")
    assert near_duplicate(more, [other], 0.5) is None


def test_the_first_duplicate_is_named_and_unlike_texts_are_none() -> None:
    others = [llm("c1", "Is it short"), llm("c2", "Is it kind"), llm("c3", "is it kind")]
    found = near_duplicate(llm("a1", "Is it kind."), others, 0.9)
    assert found is others[1]
    assert near_duplicate(llm("a1", "Names a source"), others, 0.9) is None


# ------------------------------------------------------------------ contraries
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The response must mention the price", "The response must not mention the price"),
        ("Include a table of results", "Avoid a table of results"),
        ("The answer has citations", "The answer has no citations"),
        ("The text contains emojis", "The text doesn\u2019t contain emojis"),
        ("The text contains emojis", "The text is free of emojis"),
        ("Uses at least one metaphor", "Uses no metaphor"),
        ("The answer never addresses the reader", "The answer addresses the reader"),
        ("Ends without a summary", "Ends with a summary"),
    ],
)
def test_the_same_statement_of_the_other_polarity_is_contrary(old: str, new: str) -> None:
    first, second = llm("c1", old), llm("a1", new)
    assert contrary(second, [first]) is first
    assert contrary(first, [second]) is second
    assert near_duplicate(second, [first], 0.9) is None


def test_what_is_about_something_else_is_not_contrary() -> None:
    old = llm("c1", "The response mentions the price")
    assert contrary(llm("a1", "The response does not mention the delivery"), [old]) is None
    assert contrary(llm("a1", "The response mentions free delivery"), [old]) is None


def test_a_penalty_wants_the_opposite_of_its_text() -> None:
    penalty = llm("p1", "The response contains emojis", weight=-1.0)
    assert contrary(llm("a1", "The text contains emojis"), [penalty]) is penalty
    assert contrary(llm("a1", "The text has no emojis"), [penalty]) is None
    assert near_duplicate(llm("a1", "The text has no emojis"), [penalty], 1.0) is penalty


def test_a_rule_and_a_penalty_on_the_same_rule_are_contrary() -> None:
    penalty = ruled("p1", "question_mark", weight=-1.0)
    assert contrary(ruled("a1", "question_mark"), [penalty]) is penalty


WORDS = ["oven", "bread"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ruled("a", "max_words", n=20), ruled("b", "min_words", n=50)),
        (ruled("a", "max_sentences", n=2), ruled("b", "min_sentences", n=3)),
        # Three sentences of three words or more have nine words.
        (ruled("a", "max_words", n=8), ruled("b", "min_sentences", n=3)),
        (ruled("a", "bullets", n=1), ruled("b", "no_list")),
        (ruled("a", "contains_all", words=WORDS), ruled("b", "no_words", words=["Bread"])),
        (ruled("a", "contains_any", words=WORDS, at_least=2), ruled("b", "no_words", words=WORDS)),
        (ruled("a", "mentions", words=WORDS), ruled("b", "no_words", words=[*WORDS, "tea"])),
        (ruled("a", "keyword_in_sentences", words=WORDS), ruled("b", "no_words", words=["oven"])),
        (ruled("a", "script", name="latin"), ruled("b", "script", name="greek")),
        (ruled("a", "starts_with", text="Dear"), ruled("b", "starts_with", text="Hello")),
        (ruled("a", "ends_with", text="End."), ruled("b", "ends_with", text="Bye.")),
    ],
)
def test_rules_whose_limits_exclude_each_other_are_contrary(
    first: Criterion, second: Criterion
) -> None:
    assert contrary(first, [second]) is second
    assert contrary(second, [first]) is first


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ruled("a", "max_words", n=50), ruled("b", "min_words", n=50)),
        (ruled("a", "max_words", n=9), ruled("b", "min_sentences", n=3)),
        (ruled("a", "contains_any", words=WORDS), ruled("b", "no_words", words=["oven"])),
        (ruled("a", "mentions", words=WORDS), ruled("b", "no_words", words=["oven"])),
        (ruled("a", "contains_all", words=["ovenproof"]), ruled("b", "no_words", words=["oven"])),
        (
            ruled("a", "script", name="latin", min_frac=0.5),
            ruled("b", "script", name="greek", min_frac=0.5),
        ),
        (ruled("a", "starts_with", text="Dear"), ruled("b", "starts_with", text="dear friend")),
        (ruled("a", "ends_with", text="you."), ruled("b", "ends_with", text="Thank you.")),
        (ruled("a", "max_words", n=20), ruled("b", "min_words", n=50, weight=-1.0)),
        (ruled("a", "max_words", n=20), llm("b", "Names a source")),
    ],
)
def test_rules_that_one_response_can_satisfy_are_not(first: Criterion, second: Criterion) -> None:
    assert contrary(first, [second]) is None
    assert not excludes(second, first)


# ------------------------------------------------------------------ discrimination
def column(*scores: float | None, max: int = 1) -> list[Verdict]:
    return [verdict("a1", s, max) for s in scores]


@pytest.mark.parametrize(
    ("verdicts", "top", "tells"),
    [
        (column(1, 0, 1), 0, True),  # two scores
        (column(1, 1, 1), 1, False),  # all alike, and the top one passes
        (column(0, 0, 0), 2, True),  # all alike, and the top one fails
        (column(1, 1, max=2), 0, True),  # without full score it is failed
        (column(2, 2, max=2), 0, False),
        (column(1, None, 1), 0, False),  # one without a score is none of two
        (column(1, None, 0), 1, True),
        (column(1, None), 1, False),  # the top one has none: not failed
        (column(None, None), 0, False),
    ],
)
def test_a_criterion_tells_rollouts_apart_or_is_failed_by_the_top_one(
    verdicts: list[Verdict], top: int, tells: bool
) -> None:
    assert discriminates(verdicts, top) is tells


# ------------------------------------------------------------------ retirement
SCORES = {
    "c1": (1, 1, 1, 1),  # deviation 0
    "c2": (1, 0, 1, 0),  # 1/2
    "c3": (1, 1, 1, 0),  # sqrt(3)/4 = 0.433
    "c4": (0, 0, 0, 0),  # 0
    "r1": (1, 1, 1, 1),
}


def rollouts(**scores: tuple[float | None, ...]) -> tuple[GradedRollout, ...]:
    """Four rollouts with these scores by criterion id."""
    rubric = Rubric(criteria=tuple(llm(i) for i in scores))
    rows = [{i: values[place] for i, values in scores.items()} for place in range(4)]
    return graded_group(rubric, rows).rollouts


def rubric_of(*criteria: Criterion, caps: tuple[Cap, ...] = ()) -> Rubric:
    return Rubric(criteria=criteria, caps=caps)


FIVE = (llm("c1"), llm("c2"), llm("c3"), llm("c4"), resist("r1"))


def test_the_deviation_is_of_the_shares_of_the_maximum() -> None:
    seen = rollouts(**SCORES)
    assert score_deviation("c3", seen) == pytest.approx(3**0.5 / 4)
    rubric = Rubric(criteria=(llm("c1", max=4),))
    group = graded_group(rubric, [{"c1": 4}, {"c1": 0}, {"c1": None}])
    assert score_deviation("c1", group.rollouts) == pytest.approx(0.5)
    assert score_deviation("unknown", seen) is None


def test_the_least_telling_go_first_and_of_equals_the_oldest() -> None:
    rubric, seen = rubric_of(*FIVE), rollouts(**SCORES)
    assert retired(rubric, seen, 5, ()) == ()
    assert retired(rubric, seen, 4, ()) == ("c1",)
    assert retired(rubric, seen, 3, ()) == ("c1", "c4")
    assert retired(rubric, seen, 2, ()) == ("c1", "c4", "c3")


def test_a_veto_a_new_one_and_one_with_a_cap_stay() -> None:
    seen = rollouts(**SCORES)
    assert retired(rubric_of(*FIVE), seen, 4, {"c1"}) == ("c4",)
    cap = Cap(criterion_id="c1", score_lte=0, max_normalized_score=0.5)
    assert retired(rubric_of(*FIVE, caps=(cap,)), seen, 3, {"c4"}) == ("c3", "c2")


def test_the_last_positive_llm_criterion_stays() -> None:
    seen = rollouts(**SCORES)
    assert retired(rubric_of(*FIVE), seen, 1, ()) == ("c1", "c4", "c3")
    penalty = llm("c1", weight=-1.0)
    assert retired(rubric_of(penalty, llm("c2"), resist("r1")), seen, 1, ()) == ("c1",)
    # A new positive criterion is one to keep, so the old one may go.
    rubric = rubric_of(llm("c2"), llm("a1"), resist("r1"))
    assert retired(rubric, seen, 1, {"a1"}) == ("c2",)


def test_criteria_that_were_never_measured_go_last() -> None:
    seen = rollouts(c2=SCORES["c2"], c3=(None, None, None, None))
    assert retired(rubric_of(llm("c3"), llm("c2"), llm("c9")), seen, 2, ()) == ("c2",)


# ------------------------------------------------------------------ replacements
def replaced_group() -> tuple[Replaced, Replaced]:
    """A group before and after c1 and c2, which it satisfied, were replaced."""
    rubric = rubric_of(llm("c1"), llm("c2"), llm("c3"))
    before = graded_group(rubric, [{"c1": 1, "c2": 1, "c3": 0}, {"c1": 1, "c2": 1, "c3": 1}])
    new = (llm("c1", "New check one"), llm("c2", "New check two"))
    after = graded_group(
        rubric.with_criteria((*new, llm("c3"))),
        [{"c1": 0, "c2": 0, "c3": 0}, {"c1": 0, "c2": 1, "c3": 1}],
    )
    edits = tuple(
        RubricEdit(
            method="ratchet",
            branch="replacement",
            status="accepted",
            old=rubric.criterion(c.id),
            new=c,
        )
        for c in new
    )
    evolution = Evolution(rubric=after.rubric, edits=edits)
    unchanged = Replaced(group=before, evolution=Evolution(rubric=rubric))
    return unchanged, Replaced(group=after, evolution=evolution)


def scores(made: Replaced) -> list[dict[str, float | None]]:
    return [{i: v.score for i, v in r.verdicts.items()} for r in made.group.rollouts]


def test_a_refused_replacement_leaves_its_criterion_and_scores_as_they_were() -> None:
    before, after = replaced_group()
    made = without_refused(before.group, after, {"c1": "tells nothing"})
    assert made.group.rubric == made.evolution.rubric
    assert made.group.rubric.version == 1
    assert [c.text for c in made.group.rubric.criteria] == ["Check c1", "New check two", "Check c3"]
    assert scores(made) == [{"c1": 1, "c2": 0, "c3": 0}, {"c1": 1, "c2": 1, "c3": 1}]
    assert [(e.status, e.reason) for e in made.evolution.edits] == [
        ("refused", "tells nothing"),
        ("accepted", ""),
    ]


def test_when_all_replacements_are_refused_nothing_changes_but_the_record() -> None:
    before, after = replaced_group()
    made = without_refused(before.group, after, {"c1": "no", "c2": "neither"})
    assert made.group is before.group
    assert made.evolution.rubric.version == 0
    assert [e.status for e in made.evolution.edits] == ["refused", "refused"]
    assert without_refused(before.group, after, {}) is after
