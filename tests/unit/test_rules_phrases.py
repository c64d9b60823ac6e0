"""Canonical sentences: one for each rule, and back."""

import pytest

from core.evolution.similarity import is_near_duplicate
from core.rubric import Rule
from core.rules.phrases import TEMPLATES, canonical, rule_from_text, text_from_rule
from core.rules.registry import RULES

ARGS: dict[str, dict[str, object]] = {
    "max_words": {"n": 40},
    "min_words": {"n": 1},
    "max_sentences": {"n": 3},
    "min_sentences": {"n": 2},
    "sentence_length": {"max_words": 30},
    "starts_with": {"text": "Dear Bob,"},
    "ends_with": {"text": "Bye now."},
    "max_list_lines": {"max_frac": 0.5},
    "script": {"name": "latin", "min_frac": 0.85},
    "regex": {"pattern": r"\bchapter \d+"},
    "bullets": {"n": 1},
    "mentions": {"words": ["lamp", "old river"], "at_least": 3},
    "mention_points": {"words": ["lamp", "river"]},
    "contains_all": {"words": ["lamp"]},
    "contains_any": {"words": ["lamp", "coat"], "at_least": 2},
    "no_words": {"words": ["Äpfel", "well-known", "it's"]},
    "keyword_in_sentences": {"words": ["lamp", "river"], "context": 5},
    "connected_prose": {"min_frac": 0.25},
    "no_repeated_ngrams": {"n": 3, "max_frac": 0.1},
    "max_word_share": {"share": 0.125, "min_len": 4},
    "max_list_share": {"words": ["a", "b"], "share": 0.3},
    "distinct_words": {"min_frac": 0.6},
    "no_prompt_copy": {"n": 5, "max_frac": 0.07},
    "coverage": {"words": ["lamp", "coat"], "context": 1, "per_clause": 3, "min_ratio": 0.5},
    "length_band": {"min": 10, "max": 40},
    "compressibility": {"min_ratio": 0.55},
}
ALL = [Rule.model_validate({"name": name, "args": ARGS.get(name, {})}) for name in sorted(RULES)]


def test_every_rule_has_a_sentence():
    assert set(TEMPLATES) == set(RULES)


@pytest.mark.parametrize("rule", ALL, ids=lambda r: r.name)
def test_a_rule_comes_back_from_its_sentence(rule):
    text = text_from_rule(rule)
    assert text.endswith(".")
    assert rule_from_text(text) == canonical(rule)


@pytest.mark.parametrize("rule", ALL, ids=lambda r: r.name)
def test_a_sentence_survives_case_spacing_and_the_final_period(rule):
    text = text_from_rule(rule)
    changed = " " + text.lower().replace(" ", "\n  ").removesuffix(".") + " "
    found = rule_from_text(changed)
    assert found is not None
    assert found.name == rule.name
    assert rule_from_text(" ".join(text.split())) == canonical(rule)


def test_sentences_read_like_criteria():
    rule = Rule(name="no_repeated_ngrams", args={"n": 3, "max_frac": 0.1})
    assert text_from_rule(rule) == (
        "Phrases are not repeated: at most 10% of the three-word sequences repeat an earlier one."
    )
    assert text_from_rule(Rule(name="max_words", args={"n": 1})).endswith("at most 1 word.")


@pytest.mark.parametrize(
    "word", ["e.g.", "a, b", 'say "hi"', "C++", "naïve", "semi;colon", "x.", "back\\slash 1"]
)
def test_a_listed_word_with_odd_characters_comes_back(word):
    rule = Rule(name="contains_all", args={"words": [word, "lamp", word + "2"]})
    assert rule_from_text(text_from_rule(rule)) == canonical(rule)


@pytest.mark.parametrize("text", ['He said "no".', "a\\b", "two  spaces", "русский", "ends."])
def test_a_text_argument_comes_back(text):
    for name in ("starts_with", "ends_with"):
        rule = Rule(name=name, args={"text": text})
        assert rule_from_text(text_from_rule(rule)) == canonical(rule)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.005, 0.333, 0.07, 0.29, 0.57, 1.0])
def test_shares_come_back_exactly(share):
    rule = Rule(name="distinct_words", args={"min_frac": share})
    assert rule_from_text(text_from_rule(rule)) == canonical(rule)


@pytest.mark.parametrize(
    "text",
    [
        "The response is funny.",
        "",
        "The response has at most many words.",
        "The response has at most 0 words.",
        "Word choice varies: in each stretch of fifty words at least 400% are different words on "
        "average.",
        "The response uses at least 3 of these words: a, b.",
        "The response has at most 40 words. It is also funny.",
        "x" * 10**6,
        "The response uses every one of these words: " + "a," * 2900,
    ],
)
def test_any_other_text_has_no_rule(text):
    assert rule_from_text(text) is None


def test_no_sentence_states_two_rules():
    texts = {text_from_rule(rule) for rule in ALL}
    assert len(texts) == len(ALL)


def test_no_two_rules_pass_for_near_duplicates():
    words = {"words": ["lamp", "river", "coat", "door", "oven", "gate"]}
    rules = [
        Rule.model_validate({"name": r.name, "args": {**r.args, **words}})
        if "words" in r.args
        else r
        for r in ALL
    ]
    texts = [text_from_rule(r) for r in rules]
    pairs = [(a, b) for i, a in enumerate(texts) for b in texts[:i]]
    assert [pair for pair in pairs if is_near_duplicate(*pair)] == []
