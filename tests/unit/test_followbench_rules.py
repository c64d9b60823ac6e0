"""FollowBench's rule checks, on the authors' executed examples and on answers at each edge."""

from typing import Any

import pytest

from core.benchmarks.followbench_rules import (
    fits_template,
    has_word,
    named_entities,
    passes_rule,
    rule_of,
    sentences,
)


def row(source: str, category: str = "content", example_id: int = 1) -> dict[str, Any]:
    return {"source": source, "category": category, "example_id": example_id}


@pytest.mark.parametrize(
    ("rule", "answer", "passed"),
    [
        ("gigaword", "a man was seen in a big park", True),
        ("samsum", "She has stuff to do.", True),
        ("samsum", "She has stuff, to do.", False),
        ("xsum", "Police are running an operation in the town.", True),
        ("arxiv", "We study activations.", True),
        ("cnn_dailymail", "Harry Potter wins. The actor sings. His films have ended.", True),
    ],
)
def test_the_authors_executed_examples_of_level_5_come_out_the_same(
    rule: str, answer: str, passed: bool
) -> None:
    assert passes_rule(rule, answer, "", 5) is passed


@pytest.mark.parametrize(
    ("rule", "answer", "first_failed"),
    [
        ("cnn_dailymail", "One. Two.", 1),
        ("cnn_dailymail", "One. Two. Three. ", 1),
        ("cnn_dailymail", "a b c d e f g h i j k l m n o. Two. Three.", 2),
        ("cnn_dailymail", "Potters win. An actor. The films have it.", 3),
        ("cnn_dailymail", "Potter won. A lavish actor. The films have it.", 4),
        ("cnn_dailymail", "Potter won. An actor. The films had it.", 5),
        ("xsum", "No end! Two", 1),
        ("xsum", "w " * 19 + "w.", 2),
        ("xsum", "They are running at Newton Stewart.", 3),
        ("xsum", "They were running an operation.", 4),
        ("xsum", "They are running operations.", 5),
        ("samsum", "Stuff. And more.", 1),
        ("samsum", "w " * 14 + "w.", 2),
        ("samsum", "She has Stuff to do.", 3),
        ("samsum", "She has stuff, a Procrastinator.", 4),
        ("samsum", "She has stuff", 5),
        ("gigaword", "only seven words in a big park", 1),
        ("gigaword", "a man was seen in a big park.", 2),
        ("gigaword", "A man was seen in a big park", 3),
        ("gigaword", "a bus was seen in a big park", 4),
        ("gigaword", "a man was seen at a big park", 5),
        ("arxiv", "We study. Then", 1),
        ("arxiv", "We " + "w " * 19 + "w.", 2),
        ("arxiv", "Here we study activations.", 3),
        ("arxiv", "Well, an activation.", 4),
        ("arxiv", "We study activations of a transformer.", 5),
    ],
)
def test_an_answer_passes_each_level_before_the_check_that_it_fails(
    rule: str, answer: str, first_failed: int
) -> None:
    passed = [level for level in range(1, 6) if passes_rule(rule, answer, "", level)]
    assert passed == list(range(1, first_failed))


def test_two_spaces_make_an_empty_word_where_the_authors_split_on_spaces() -> None:
    assert passes_rule("gigaword", "seven words  in a big park", "", 5) is False
    assert passes_rule("gigaword", "only seven  words in a park now", "", 5) is True


def test_twenty_words_are_few_enough_for_arxiv_and_too_many_for_xsum() -> None:
    twenty = "We " + "w " * 18 + "activations."
    assert passes_rule("arxiv", twenty, "", 5) is True
    assert passes_rule("xsum", twenty, "", 2) is False


def test_a_space_after_the_last_sentence_counts_as_one_more() -> None:
    assert sentences("One. Two? ") == ["One", " Two", " "]
    assert sentences("One...") == ["One"]


def test_a_word_has_its_own_case_and_borders() -> None:
    assert has_word("the films, ended", "films")
    assert not has_word("the Films", "films")
    assert not has_word("filmsy", "films")


@pytest.mark.parametrize("rule", ["E2E", "text_editing"])
def test_an_exact_target_takes_no_space_more(rule: str) -> None:
    assert passes_rule(rule, "name[The Mill]", "name[The Mill]", 3) is True
    assert passes_rule(rule, "name[The Mill] ", "name[The Mill]", 3) is False


def test_every_line_has_to_be_one_of_the_target() -> None:
    target = "a was hurt\nb was hurt"
    assert passes_rule("WIKIEVENTS", "b was hurt", target, 1) is True
    assert passes_rule("WIKIEVENTS", "b was hurt\n", target, 1) is False
    assert passes_rule("WIKIEVENTS", "b was hurt\na was hurt\nb was hurt", target, 1) is True


def test_a_named_entity_is_one_of_the_list_and_no_part_of_one() -> None:
    assert passes_rule("CONLL2003", "Bonn", "['Bonn', 'France']", 1) is True
    assert passes_rule("CONLL2003", "Bon", "['Bonn', 'France']", 1) is False


@pytest.mark.parametrize("target", ["", "Bonn", "['a', 1]", "('a',)", "['a'", "__import__('os')"])
def test_a_target_that_is_no_list_of_texts_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="wanted a Python list of strings"):
        named_entities(target)


@pytest.mark.parametrize(
    ("rule", "answer", "target", "passed"),
    [
        ("BBH_logical", "Not (A), so (B).", "(B)", True),
        ("BBH_logical", "(B), not (A)", "(B)", False),
        ("BBH_logical", "B", "(B)", False),
        ("BBH_time", "01/02/1999 and then 12/29/1937", "12/29/1937", True),
        ("BBH_time", "12/29/37", "12/29/1937", False),
        ("gsm_8k", "It was $3, now $20.50", "$20", True),
        ("gsm_8k", "20 dollars", "$20", False),
        ("self_made_space", "On the 20th floor.", "20th floor", True),
        ("self_made_space", "On the 20th Floor.", "20th floor", False),
    ],
)
def test_the_last_match_or_the_contained_target_decides(
    rule: str, answer: str, target: str, passed: bool
) -> None:
    assert passes_rule(rule, answer, target, 2) is passed


LONG = " ".join(["word"] * 21)


def paragraphs(*texts: str) -> str:
    return "\n\n".join(texts)


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        (paragraphs("a", "b"), []),
        (paragraphs("a. b. c.", "b", "c"), [1]),
        (paragraphs("a. b.", "b", "c"), [1, 2]),
        (paragraphs(LONG, LONG, LONG), [1, 2, 3]),
        (paragraphs("1. " + LONG, "2. " + LONG, "3. " + LONG), [1, 2]),
        (paragraphs("1. a", "2. b", "3. c", "Those are suggestions"), []),
    ],
)
def test_the_wooden_table_counts_a_number_marker_as_a_short_sentence(
    answer: str, passed: list[int]
) -> None:
    assert [n for n in range(1, 6) if passes_rule("format_22", answer, "", n)] == passed


def speech(point: str, count: int = 5) -> str:
    return " ".join(f"**{i}. Word:** {point}." for i in range(1, count + 1))


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ("* nothing marked", []),
        (speech("short", 4), [1]),
        ("**1.x.y: b\n**2 a: b\n**3 a: b\n**4 a: b\n**5 a: b", [1, 2]),
        ("**1 W: x\n**2 W: x\n**3 W: x\n**4 W: x\n**5 W: x y", [1, 2, 3]),
        ("**1 W: x **2 W: x **3 W: x **4 W: x **5 W: quick-ly", [1, 2, 3, 4]),
        ("**1 W: x **2 W: x **3 W: x **4 W: x **5 W: quickly", [1, 2, 3, 4, 5]),
    ],
)
def test_the_speech_has_five_points_in_sentences_of_ten_to_fifteen_words(
    answer: str, passed: list[int]
) -> None:
    assert [n for n in range(1, 6) if passes_rule("format_30", answer, "", n)] == passed


@pytest.mark.parametrize(
    ("target", "answer", "fits"),
    [
        ("{answer} END", "x END", True),
        ("{answer} END", " x END\n", False),
        ("{instruction}\nBOT: {answer}", "BOT: (a) [b] *", True),
        ("{instruction}\nBOT: {answer}", "bot: a", False),
        ("{instruction}\nBOT: {answer}", "BOT: a\nb", False),
        ("{instruction}\n#Bot#\n{answer}", "#Bot#\n", True),
        ("{instruction}\n{{'bot': '{answer}'}}", "{'bot': 'yes'}", True),
        ("{instruction}\n{{'bot': '{answer}'}}", "{{'bot': 'yes'}}", False),
        ("{instruction}\n[Answer]\n{answer}", "A\nyes", False),
    ],
)
def test_an_example_is_matched_whole_and_on_one_line(target: str, answer: str, fits: bool) -> None:
    assert fits_template(target, answer) is fits
    assert passes_rule("example", answer, target, 4) is fits


@pytest.mark.parametrize(
    ("constraint_type", "of", "rule"),
    [
        ("content", row("E2E"), "E2E"),
        ("content", row("COGNAC"), None),
        ("format", row("helpful_base", "format", 22), "format_22"),
        ("format", row("koala", "format", 30), "format_30"),
        ("format", row("koala", "format", 29), None),
        ("style", row("quora", "style", 22), None),
        ("mixed", row("gigaword", "format", 14), "gigaword"),
        ("example", row("xsum", "example", 39), "example"),
    ],
)
def test_source_category_and_type_say_whether_a_rule_decides(
    constraint_type: str, of: dict[str, Any], rule: str | None
) -> None:
    assert rule_of(constraint_type, of) == rule
