"""InfoBench: one conversation a row, stopped where the authors stop, counted in three ways."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.infobench import InfoBench, Main, read_answer
from core.errors import ConfigError
from serve.prompts import load_prompt

Row = dict[str, Any]

FIXTURE = Path(__file__).parents[1] / "fixtures" / "infobench" / "InfoBench.json"
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "infobench" / "sample_row.json"
TEMPLATE = load_prompt("bench_infobench")
BENCH = InfoBench(template=TEMPLATE)


def rows() -> list[Row]:
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


NOTE, MILL = BENCH.load({"InfoBench.json": rows()}).tasks


def asked(task: Task, *replies: str, bench: InfoBench = BENCH) -> list[tuple[str, str]]:
    """The next conversation after these replies to the questions in order, one each."""
    kept = {f"question {i}": (text,) for i, text in enumerate(replies, start=1)}
    calls = bench.next_calls(task, "Thanks,\ndear neighbour.", kept)
    return [(m.role, m.content) for call in calls for m in call.call.messages]


# ------------------------------------------------------------------ loading
def test_the_prompt_is_the_instruction_and_the_input_on_a_line_of_its_own() -> None:
    assert NOTE.messages[0].content == "Write a two-line note that thanks a neighbour."
    assert MILL.messages[0].content == (
        "Rewrite the sentence as a question in plain words.\nThe mill burned down in 1820."
    )


def test_rlcf_puts_a_colon_after_an_input() -> None:
    note, mill = InfoBench(template=TEMPLATE, prompt="rlcf").load({"f": rows()}).tasks
    assert mill.messages[0].content.endswith("words.\nThe mill burned down in 1820.:")
    assert note.messages == NOTE.messages


def test_subset_names_count_in_any_case() -> None:
    assert (NOTE.row["subset"], MILL.row["subset"]) == ("easy", "hard")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subset": "Medium_set"}, "got subset 'Medium_set', wanted Easy_set or Hard_set"),
        ({"input": None}, "got input=None, wanted a text"),
        ({"id": ""}, "got a blank id or instruction, wanted both"),
        ({"decomposed_questions": []}, "got decomposed_questions=[], wanted a list of texts"),
        ({"question_label": [["Format"]]}, "got 1 question_label for 3 questions, wanted as many"),
        ({"question_label": "Format"}, "got question_label='Format', wanted a list of lists"),
        ({"id": "own_task_2"}, "id 'own_task_2' is there already"),
    ],
)
def test_a_row_that_cannot_be_used_is_dropped_with_its_reason(change: Row, reason: str) -> None:
    note, mill = rows()
    loaded = BENCH.load({"f.json": [mill, {**note, **change}]})
    assert [t.id for t in loaded.tasks] == ["own_task_2"]
    assert loaded.dropped["f.json row 2"].startswith(reason)


def test_no_usable_row_is_an_error_that_names_the_file_wanted() -> None:
    with pytest.raises(ConfigError, match=r"InfoBench\.json of the data set"):
        BENCH.load({"x.json": [{"id": "a"}]})


@pytest.mark.skipif(not SHARED.is_file(), reason="needs ../shared/data/infobench")
def test_the_row_of_the_data_card_loads() -> None:
    (task,) = BENCH.load({"f": [json.loads(SHARED.read_text(encoding="utf-8"))]}).tasks
    assert (len(task.row["questions"]), task.row["subset"]) == (11, "hard")


# ------------------------------------------------------------------ the conversation
def test_the_first_message_shows_the_text_and_asks_the_first_question() -> None:
    ((role, text),) = asked(NOTE)
    assert role == "user"
    assert "Thanks,\ndear neighbour.\n</generated_text " in text
    assert text.rstrip().endswith("Question:\nIs the text a note?")
    assert "<input " not in text


def test_an_input_is_shown_before_the_text() -> None:
    ((_, text),) = asked(MILL)
    assert text.index("The mill burned down in 1820.") < text.index("<generated_text ")


def test_later_questions_stand_bare_after_all_earlier_answers() -> None:
    conversation = asked(NOTE, "Yes, it is.", "NO: three lines")
    assert [role for role, _ in conversation] == ["user", "assistant"] * 2 + ["user"]
    assert [text for _, text in conversation[1:]] == [
        "Yes, it is.",
        "Does it have two lines?",
        "NO: three lines",
        "Does it thank a neighbour?",
    ]


def test_a_row_is_judged_when_its_last_question_is_answered() -> None:
    assert asked(NOTE, "YES", "NO", "YES") == []


def test_an_unreadable_answer_is_asked_for_again_and_is_in_no_conversation() -> None:
    kept = {"question 1": ("YES",), "question 2": ("Perhaps.",)}
    (again,) = BENCH.next_calls(NOTE, "a", kept)
    assert again.key == "question 2"
    assert again.call.messages[-1].content == "Does it have two lines?"
    assert "Perhaps." not in [m.content for m in again.call.messages]
    (after,) = BENCH.next_calls(NOTE, "a", {**kept, "question 2": ("Perhaps.", "NO")})
    assert (after.key, after.call.messages[-2].content) == ("question 3", "NO")


def test_a_row_stops_where_an_answer_stays_unreadable() -> None:
    kept = {"question 1": ("YES",), "question 2": ("Perhaps.",) * 3}
    assert BENCH.next_calls(NOTE, "a", kept) == []
    assert BENCH.outcome(NOTE, "a", kept)["eval"] == [True, None]
    once = InfoBench(template=TEMPLATE, attempts=1)
    assert asked(NOTE, "Perhaps.", bench=once) == []


def test_an_outcome_holds_the_answers_that_there_are() -> None:
    kept = {"question 1": ("Hm.", "YES"), "question 2": ("NO",)}
    outcome = BENCH.outcome(NOTE, "a", kept)
    assert outcome == {
        "id": "own_task_1",
        "subset": "easy",
        "eval": [True, False],
        "num_questions": 3,
        "labels": [["Format"], ["Format", "Number"], ["Content"]],
    }
    assert BENCH.outcome(NOTE, "a", {})["eval"] == []


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("YES", True),
        ("yes, but NO", True),
        ("Yesterday", True),
        ("No.", False),
        ("Not sure", False),
        ("None", False),
        ("The answer is YES.", True),
        ("The answer is NO.", False),
        (" yes", None),
        (" YES", True),
        ("The answer is yes.", None),
        ("It is YES and NO.", None),
        ("It is NOT so.", False),
        ("", None),
    ],
)
def test_replies_are_read_as_the_authors_read_them(reply: str, answer: bool | None) -> None:
    assert read_answer(reply) is answer


# ------------------------------------------------------------------ numbers
def outcome(
    row_id: str,
    subset: str,
    answers: list[bool | None],
    num: int,
    labels: list[list[str]] | None = None,
) -> Row:
    return {
        "id": row_id, "subset": subset, "eval": answers, "num_questions": num,
        "labels": labels or [],
    }  # fmt: skip


OUTCOMES = [
    outcome("a", "easy", [True, True, False, True], 4),
    outcome("b", "hard", [True, None], 4),
    outcome("c", "hard", [False, False], 2),
]


def test_the_three_counts_are_as_counted_by_hand() -> None:
    scores = BENCH.scores(OUTCOMES)
    overall = scores["overall"]
    assert overall["official"] == pytest.approx(100 * 4 / 8)
    assert overall["strict"] == pytest.approx(100 * 4 / 10)
    assert overall["answered"] == pytest.approx(100 * 4 / 7)
    assert (overall["n_questions"], overall["n_missing"], scores["missing"]) == (10, 3, 3)
    assert scores["easy"]["official"] == pytest.approx(75.0)
    assert scores["hard"]["official"] == pytest.approx(100 * 1 / 4)
    assert scores["hard"]["strict"] == pytest.approx(100 * 1 / 6)
    assert scores["rows"] == 3


def test_a_question_that_was_never_asked_of_the_judge_counts_in_the_strict_number_only() -> None:
    overall = BENCH.scores([outcome("a", "easy", [], 2), *OUTCOMES[2:]])["overall"]
    assert (overall["official"], overall["strict"], overall["n_missing"]) == (0.0, 0.0, 2)
    assert BENCH.scores([outcome("a", "easy", [], 2)])["overall"]["official"] is None


@pytest.mark.parametrize(
    ("main", "value"), [("official", 50.0), ("strict", 40.0), ("answered", 100 * 4 / 7)]
)
def test_any_count_can_be_the_headline(main: Main, value: float) -> None:
    score = InfoBench(template=TEMPLATE, main=main).scores(OUTCOMES)["main"]
    assert (score["name"], score["n"]) == (f"drfr_{main}", 3)
    assert score["value"] == pytest.approx(value)
    assert score["low"] <= value <= score["high"]


def test_the_interval_draws_whole_rows() -> None:
    # Two rows of three questions, all met and none met: a replicate is 0, 50 or 100, the outer
    # two in a quarter of the draws each. Single questions would give a narrower interval.
    whole = [outcome("a", "easy", [True] * 3, 3), outcome("b", "easy", [False] * 3, 3)]
    score = BENCH.scores(whole)["main"]
    assert (score["value"], score["low"], score["high"]) == (50.0, 0.0, 100.0)


def test_a_headline_that_cannot_be_had_is_none() -> None:
    score = BENCH.scores([])["main"]
    assert (score["value"], score["low"], score["high"], score["n"]) == (None, None, None, 0)
    assert BENCH.scores([])["easy"]["official"] is None


def test_a_question_counts_for_each_of_its_labels() -> None:
    labels = [["Format"], ["Format", "Number"]]
    scores = BENCH.scores([outcome("a", "easy", [True, False], 2, labels)])
    assert {k: v["official"] for k, v in scores["labels"].items()} == {
        "Format": 50.0,
        "Number": 0.0,
    }


def test_the_scores_are_json() -> None:
    scores = BENCH.scores(OUTCOMES)
    assert json.loads(json.dumps(scores)) == scores
