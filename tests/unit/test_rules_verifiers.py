"""Each rule on texts whose value is counted by hand."""

import pytest

from core.rubric import Criterion, Rule
from core.rules.gold import compression_ratio
from core.rules.registry import GOLD, REWARDABLE, RULES
from core.rules.spec import Measure, case
from core.rules.verifiers import check_rule, decide, is_decidable, measure
from core.rules.words import Text, count_phrase, words_of

WORDS = ["lamp", "river", "old coat"]
TWO = "The lamp stood by the river. You saw an old coat there!"


def score(rule_name: str, response: str, top: int = 1, /, prompt: str = "", **args: object) -> int:
    rule = Rule.model_validate({"name": rule_name, "args": args})
    verdict = decide(Criterion(id="c", text="x", rule=rule, max=top), response, prompt)
    assert verdict.failure is None, verdict.reason
    assert verdict.score == int(verdict.score)
    assert verdict.reason
    return int(verdict.score)


BINARY = [
    ("max_words", {"n": 12}, TWO, TWO + " More."),
    ("min_words", {"n": 12}, TWO, "The lamp stood by the river."),
    ("max_sentences", {"n": 2}, TWO, TWO + " And so on"),
    ("min_sentences", {"n": 2}, TWO, "The lamp stood by the river. You saw an old"),
    ("sentence_length", {"max_words": 6}, TWO, "The lamp stood by the old river."),
    ("starts_with", {"text": "the lamp"}, TWO, "A lamp"),
    ("ends_with", {"text": "THERE!"}, TWO, "there"),
    ("ends_sentence", {}, 'She said "stop."', "She said stop"),
    ("question_mark", {}, "Is it on?", "It is on."),
    ("no_list", {}, "One - two.", "Here:\n- one\n- two"),
    ("bullets", {"n": 2}, "- one\n2. two", "- one\ntwo"),
    ("max_list_lines", {"max_frac": 0.5}, "# Title\nText\nText", "# Title\n- a\nText"),
    ("script", {"name": "latin"}, "Only letters 123", "Только letters"),
    ("script", {"name": "cjk"}, "灯は川のそば", "lamp"),
    ("script", {"name": "arabic"}, "المصباح", "lamp المصباح"),
    ("valid_json", {}, '{"a": [1]}', "{'a': 1}"),
    ("regex", {"pattern": r"\blamp\b.*river"}, TWO, "river lamp"),
    ("mentions", {"words": WORDS, "at_least": 3}, "lamp, lamps, Lamp's", "lamp, lamp"),
    ("contains_all", {"words": WORDS}, TWO, "lamp river coat"),
    ("contains_any", {"words": WORDS, "at_least": 2}, "lamp and river", "lamp lamp lamp"),
    ("no_words", {"words": ["coat"]}, "The lamp.", "The coat."),
    (
        "keyword_in_sentences",
        {"words": ["lamp", "river"], "context": 3},
        "The lamp stood here. The river ran by.",
        "The lamp stood by the river.",
    ),
    (
        "connected_prose",
        {"min_frac": 0.4},
        "The lamp is by the river",
        "lamp river coat by the door tree",
    ),
    ("no_placeholder", {}, "Dear Ann, what a todo.", "Dear [Your Name], hello"),
    ("no_placeholder", {}, "Use [1] as source.", "Hello {user_name}!"),
    ("no_placeholder", {}, "a < b > c", "TODO: write"),
    ("no_placeholder", {}, "Lorem means little.", "Lorem ipsum dolor"),
    ("no_self_praise", {}, "This answer is 4.", "This response comprehensively covers it."),
    ("no_self_praise", {}, "I hope it rains.", "I hope this helps!"),
    ("no_self_praise", {}, "She requested tea.", "Here it is, as requested."),
    ("second_person", {}, "Take your coat.", "Take a coat."),
    ("no_first_person", {}, "It is mineral.", "It is mine."),
    (
        "no_repeated_ngrams",
        {"n": 3, "max_frac": 0.2},
        "a b c d e f g",
        "a b c a b c",  # abc bca cab abc: 1 of 4 repeats
    ),
    (
        "max_word_share",
        {"share": 0.2, "min_len": 3},
        "the lamp and the lamp by the old river bank",  # 2 of 10
        "the lamp and the lamp by the old lamp here",  # 3 of 10
    ),
    (
        "max_list_share",
        {"words": ["lamp", "river"], "share": 0.2},
        "the lamp by the old river ran on and on",  # 2 of 10
        "lamp river the lamp by the old oak ran on",  # 3 of 10
    ),
    ("distinct_words", {"min_frac": 0.75}, "a b c a", "a b a a"),
    ("length_band", {"min": 2, "max": 3}, "one two three", "one two three four"),
    ("finished_ending", {}, "It ends here.", "It ends with the."),
    ("finished_ending", {}, "“It ends.”", "It (ends here."),
    ("readable", {}, "The lamp stood, the river ran.", "lamp, river, coat, door."),
]


@pytest.mark.parametrize(("name", "args", "good", "bad"), BINARY)
def test_a_rule_holds_on_the_good_text_and_not_on_the_bad_one(name, args, good, bad):
    assert score(name, good, **args) == 1
    assert score(name, bad, **args) == 0


def test_every_rule_is_tried_on_two_texts():
    tried = {name for name, *_ in BINARY}
    assert set(RULES) - tried == {"mention_points", "coverage", "compressibility", "no_prompt_copy"}


def test_mention_points_counts_every_mention_up_to_the_maximum():
    words = ["lamp", "river"]
    assert score("mention_points", "lamp lamp river", 10, words=words) == 3
    assert score("mention_points", "lamp " * 40, 10, words=words) == 10
    assert score("mention_points", "", 10, words=words) == 0


def test_copying_counts_four_word_sequences_of_the_prompt():
    prompt = "Write two sentences about a harbor."
    copy = "Write two sentences about a harbor now yes"  # 5 sequences, 3 of the prompt
    assert score("no_prompt_copy", copy, prompt=prompt, n=4, max_frac=0.6) == 1
    assert score("no_prompt_copy", copy, prompt=prompt, n=4, max_frac=0.59) == 0


def test_graded_scores_are_the_share_of_what_is_asked():
    assert score("min_words", "one two three", 4, n=6) == 2  # 4 * 3 / 6
    assert score("max_words", "a b c d e f g h", 4, n=6) == 3  # 4 * 6 / 8
    assert score("contains_all", "lamp river", 3, words=WORDS) == 2
    assert score("contains_all", TWO, 3, words=WORDS) == 3
    assert score("no_words", "coat", 3, words=["coat"]) == 0


@pytest.mark.parametrize(
    ("value", "limit", "direction", "max_score", "expected"),
    [
        (0.1, 0.1, "at_most", 1, 1),
        (0.11, 0.1, "at_most", 1, 0),
        (0.2, 0.1, "at_most", 2, 1),
        (0.21, 0.1, "at_most", 2, 0),
        (3, 0, "at_most", 5, 0),
        (0, 0, "at_most", 5, 5),
        (0, 4, "at_least", 5, 0),
        (1 / 3 * 3, 1, "at_least", 3, 3),
        (7, 4, "at_least", 3, 3),
    ],
)
def test_one_formula_scores_every_measure(value, limit, direction, max_score, expected):
    found = Measure(value=value, limit=limit, direction=direction, seen="")
    assert found.score(max_score) == expected


def test_coverage_counts_different_words_in_clauses_of_their_own():
    words = ["lamp", "river", "coat", "door"]
    args = {"words": words, "context": 2, "per_clause": 1}
    assert score("coverage", "lamp " * 30, 4, **args) == 0
    assert score("coverage", "lamp, river, coat, door.", 4, **args) == 0
    assert score("coverage", "The old lamp and river and coat and door.", 4, **args) == 1
    text = "The old lamp shone; the wide river ran. A red coat hung, the door stood open."
    assert score("coverage", text, 4, **args) == 4


def test_coverage_finds_the_largest_matching():
    # The first clause fits both words, the second only "lamp": a greedy choice would lose one.
    args = {"words": ["lamp", "river"], "context": 2, "per_clause": 1}
    assert score("coverage", "The lamp lit the river. The lamp went out.", 2, **args) == 2


def test_coverage_of_a_text_that_compresses_too_well_is_zero():
    text = "The lamp lit the river there. " * 20
    args = {"words": ["lamp", "river"], "context": 2, "per_clause": 2}
    assert score("coverage", text, 2, **args, min_ratio=0.0) == 2
    assert score("coverage", text, 2, **args, min_ratio=0.3) == 0


def test_repetition_compresses_and_prose_does_not():
    assert compression_ratio("") == 0.0
    assert compression_ratio("lamp " * 50) < 0.1
    assert compression_ratio(TWO) > 0.7
    assert score("compressibility", TWO, min_ratio=0.6) == 1
    assert score("compressibility", "lamp river " * 20, min_ratio=0.6) == 0


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ({"name": "max_word"}, "max_words"),
        ({"name": "max_words"}, "n: Field required"),
        ({"name": "max_words", "args": {"n": 0}}, "greater than or equal to 1"),
        ({"name": "max_words", "args": {"n": "4"}}, "n:"),
        ({"name": "max_words", "args": {"n": 4, "m": 1}}, "m:"),
        ({"name": "mentions", "args": {"words": []}}, "words"),
        ({"name": "mentions", "args": {"words": ["!"]}}, "letter or digit"),
        ({"name": "contains_any", "args": {"words": ["a"], "at_least": 2}}, "at most that"),
        ({"name": "regex", "args": {"pattern": "("}}, "does not compile"),
        ({"name": "script", "args": {"name": "klingon"}}, "name"),
        ({"name": "no_repeated_ngrams", "args": {"max_frac": 2}}, "less than or equal to 1"),
        ({"name": "length_band", "args": {"min": 5, "max": 4}}, "min <= max"),
    ],
)
def test_a_bad_rule_is_found_at_load_with_what_was_wanted(rule, part):
    error = check_rule(Rule.model_validate(rule), 1)
    assert error is not None
    assert part in error


def test_a_good_rule_has_no_error():
    assert check_rule(Rule(name="max_words", args={"n": 4}), 3) is None


def test_a_criterion_without_rule_is_decided_by_its_canonical_text():
    plain = Criterion(id="c", text="the response has at most 2   words")
    assert is_decidable(plain)
    assert decide(plain, "one two", "").score == 1
    assert decide(plain, "one two three", "").score == 0


def test_what_code_cannot_decide_is_a_failure_not_a_score():
    verdict = decide(Criterion(id="c", text="It is funny."), "ha", "")
    assert (verdict.score, verdict.failure) == (None, "undecidable")
    bad = Criterion(id="c", text="It is funny.", rule=Rule(name="funny"))
    verdict = decide(bad, "ha", "")
    assert verdict.failure == "undecidable"
    assert "'funny'" in verdict.reason
    assert not is_decidable(bad)


def test_a_catastrophic_pattern_ends_as_a_failure(monkeypatch):
    monkeypatch.setattr("core.rules.form._PATTERN_TIMEOUT_S", 0.05)
    slow = Rule(name="regex", args={"pattern": r"(.*)*(.*)*(.*)*\d$"})
    verdict = decide(Criterion(id="c", text="x", rule=slow), "word " * 5000, "")
    assert verdict.failure == "undecidable"
    assert "longer than" in verdict.reason


def test_reasons_quote_what_was_seen():
    rule = Rule(name="max_words", args={"n": 2})
    verdict = decide(Criterion(id="c", text="x", rule=rule), "one two three", "")
    assert verdict.reason == "number of words: got 3, wanted at most 2"
    rule = Rule(name="no_placeholder")
    verdict = decide(Criterion(id="c", text="x", rule=rule), "Dear [Your Name],", "")
    assert "[Your Name]" in verdict.reason


def test_invisible_marks_and_glue_hide_no_word():
    assert words_of("la\u200bmp la\u200fmp LAMP lamp_lamp lamp-lamp") == ["lamp"] * 7
    assert words_of("don\u2019t don't") == ["don't", "don't"]
    assert words_of("हिन्दी русский 漢字") == ["हिन्दी", "русский", "漢", "字"]
    assert count_phrase(words_of("the old coat, old coats, old"), "old coat") == 2


def test_sentences_survive_abbreviations_numbers_and_missing_ends():
    assert len(Text("Dr. Lee paid 3.50 today. She left").sentences) == 2
    assert Text("She left. Now").complete_sentences == []
    assert len(Text("你好。再见\uff01").sentences) == 2


def test_an_empty_response_is_scored_by_every_rule():
    for name in RULES:
        rule = Rule.model_validate({"name": name, "args": _some_args(name)})
        found = measure(rule, case("", "", 3))
        assert 0 <= found.score(3) <= 3


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "text",
    ["lamp " * 200_000, "The old lamp lit it. " * 50_000, "a" * 10**6, "." * 10**6, "[" * 10**6,
     "{a" * 500_000, "\n-" * 500_000, "\u200f" * 10**6, "漢" * 500_000],
    ids=["words", "sentences", "letters", "dots", "brackets", "braces", "lines", "marks", "han"],
)  # fmt: skip
def test_a_megabyte_is_scored_by_every_rule(text):
    looked_at = case(text, "lamp", 4)
    for name in RULES:
        rule = Rule.model_validate({"name": name, "args": _some_args(name)})
        assert 0 <= measure(rule, looked_at).score(4) <= 4


def test_gold_rules_are_apart_from_rewardable_ones():
    assert not set(GOLD.specs) & set(REWARDABLE)
    assert set(GOLD.specs) | set(REWARDABLE) == set(RULES)


def _some_args(name: str) -> dict[str, object]:
    known: dict[str, object] = {
        "n": 3, "max_frac": 0.1, "min_frac": 0.6, "share": 0.2, "words": ["lamp", "coat"],
        "max_words": 20, "text": "The", "name": "latin", "pattern": "lamp", "min": 2, "max": 9,
        "min_ratio": 0.5,
    }  # fmt: skip
    fields = RULES[name].args.model_fields
    return {f: known[f] for f, info in fields.items() if info.is_required()}
