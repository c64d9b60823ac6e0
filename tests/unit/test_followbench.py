"""FollowBench: rows become tasks, replies become outcomes, outcomes become the authors' numbers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks.base import Task
from core.benchmarks.followbench import CALL_KEY, FollowBench, Satisfied, read_reply
from core.errors import ConfigError
from serve.prompts import load_prompt

Row = dict[str, Any]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "followbench"
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "followbench"
BENCH = FollowBench(
    template=load_prompt("bench_followbench"), one_template=load_prompt("bench_followbench_one")
)


def files(folder: Path = FIXTURES) -> dict[str, list[Row]]:
    return {p.name: json.loads(p.read_text(encoding="utf-8")) for p in folder.glob("*.json")}


TASKS = {task.id: task for task in BENCH.load(files()).tasks}


def prompt_of(task: Task, answer: str = "the answer") -> str:
    (call,) = BENCH.next_calls(task, answer, {})
    (message,) = call.call.messages
    return message.content


# ------------------------------------------------------------------ loading
def test_only_levels_above_0_are_tasks_and_no_row_is_dropped() -> None:
    loaded = BENCH.load(files())
    assert loaded.dropped == {}
    assert Counter(t.row["type"] for t in loaded.tasks) == {
        "content": 10, "situation": 10, "style": 5, "format": 10, "mixed": 5, "example": 5,
    }  # fmt: skip
    assert {t.row["level"] for t in loaded.tasks} == {1, 2, 3, 4, 5}
    assert TASKS["style-1-1"].messages[0].content == "Describe a rainy street. Sound cheerful."


def test_a_file_that_is_not_there_is_named_and_can_be_done_without() -> None:
    rest = {name: rows for name, rows in files().items() if not name.startswith("mixed")}
    with pytest.raises(ConfigError, match=r"wanted \['mixed_constraints.json'\] too"):
        BENCH.load(rest)
    bench = FollowBench(template="", one_template="", types=("style",))
    assert len(bench.load(rest).tasks) == 5


def test_files_without_a_usable_row_are_refused() -> None:
    bench = FollowBench(template="", one_template="", types=("style",))
    with pytest.raises(ConfigError, match=r"style_constraints.json row 1.*example_id=None"):
        bench.load({"style_constraints.json": [{"level": 1}]})


def test_a_row_that_cannot_be_used_is_dropped_with_its_reason() -> None:
    rows = files()
    style = rows["style_constraints.json"]
    style[5]["level"] = 6
    style.append({**style[1], "instruction": "Again."})
    rows["content_constraints.json"][6 + 3]["target"] = None
    rows["mixed_constraints.json"][2]["instruction"] = " "
    dropped = BENCH.load(rows).dropped
    assert dropped == {
        "style_constraints.json row 6": "got level 6, wanted 0 to 5",
        "style_constraints.json row 7": "example_id 1 has level 1 already",
        "content_constraints.json row 10": "got target=None, wanted str",
        "mixed_constraints.json row 3": "got a blank instruction, wanted one",
    }


def test_a_judged_level_needs_the_levels_below_it_and_a_rule_does_not() -> None:
    rows = files()
    for name in ("style_constraints.json", "mixed_constraints.json"):
        rows[name] = [r for r in rows[name] if r["level"] != 2]
    loaded = BENCH.load(rows)
    assert sorted(loaded.dropped) == [f"style_constraints.json row {n}" for n in (3, 4, 5)]
    assert "got no row of level [2]" in loaded.dropped["style_constraints.json row 3"]
    assert sum(t.row["type"] == "mixed" for t in loaded.tasks) == 4


def test_rows_are_joined_by_group_and_level_whatever_their_order() -> None:
    rows = {name: list(reversed(own)) for name, own in files().items()}
    assert {t.id: t for t in BENCH.load(rows).tasks} == TASKS


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/followbench")
def test_the_authors_files_give_820_tasks_and_their_numbers_of_groups() -> None:
    loaded = BENCH.load(files(SHARED))
    assert loaded.dropped == {}
    assert len(loaded.tasks) == 820
    assert len({t.id for t in loaded.tasks}) == 820
    groups = Counter(
        (t.row["type"], "rule" if t.row["rule"] else "judge")
        for t in loaded.tasks
        if t.row["level"] == 1
    )
    assert groups == {
        ("content", "rule"): 12, ("content", "judge"): 13,
        ("situation", "rule"): 8, ("situation", "judge"): 14,
        ("style", "judge"): 30,
        ("format", "rule"): 2, ("format", "judge"): 28,
        ("mixed", "rule"): 8, ("mixed", "judge"): 9,
        ("example", "rule"): 40,
    }  # fmt: skip


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/followbench")
def test_the_authors_targets_pass_their_own_rules() -> None:
    tasks = [t for t in BENCH.load(files(SHARED)).tasks if t.row["type"] != "example"]
    with_target = [t for t in tasks if t.row["target"] and t.row["rule"] != "CONLL2003"]
    assert len(with_target) == 5 * (5 + 2 + 3 + 5 + 1 + 1 + 1)
    assert all(BENCH.outcome(t, t.row["target"], {})["hard"] == 1 for t in with_target)


# ------------------------------------------------------------------ the judge
def test_the_judge_sees_every_version_up_to_the_level_and_the_fenced_answer() -> None:
    prompt = prompt_of(TASKS["style-1-3"], "YES\n['YES', 'YES', 'YES']\n# What to do")
    places = [
        prompt.index(text)
        for text in (
            "\nDescribe a rainy street.\n",
            "\nDescribe a rainy street. Sound cheerful.\n",
            "\nDescribe a rainy street. Sound cheerful. Write like a sailor.\n",
            "Write like a sailor. Use short sentences.\n",
            "<answer ",
            "['YES', 'YES', 'YES']",
            "</answer ",
            "list of 3 elements",
        )
    ]
    assert places == sorted(places)
    assert "3 style constraints were added" in prompt
    assert "Be formal" not in prompt


def test_one_constraint_is_asked_about_in_the_singular() -> None:
    prompt = prompt_of(TASKS["content-1-1"])
    assert "one content constraint was added" in prompt
    assert "list of one element" in prompt


def test_a_situation_is_explained_and_the_type_of_a_mixed_row_is_not_told() -> None:
    assert "situation constraints (facts about" in prompt_of(TASKS["situation-2-2"])
    mixed = Task(id="m", messages=(), row={**TASKS["style-1-2"].row, "type": "mixed"})
    assert "2 constraints were added" in prompt_of(mixed)


def test_the_judge_is_greedy_and_a_question_asked_again_has_another_seed() -> None:
    (first,) = BENCH.next_calls(TASKS["style-1-2"], "a", {})
    (again,) = BENCH.next_calls(TASKS["style-1-2"], "a", {CALL_KEY: ("what?",)})
    assert (first.key, again.key) == (CALL_KEY, CALL_KEY)
    assert first.call.sampling.temperature == 0.0
    assert first.call.sampling.max_tokens == 1024
    assert first.call.sampling.seed != again.call.sampling.seed
    assert first.call.messages == again.call.messages


def test_a_rule_decides_without_a_call() -> None:
    for task_id in ("content-2-1", "situation-1-4", "format-22-5", "mixed-1-1", "example-1-2"):
        assert BENCH.next_calls(TASKS[task_id], "x", {}) == []
    passed = BENCH.outcome(TASKS["content-2-1"], "name[The Old Mill]", {})
    failed = BENCH.outcome(TASKS["content-2-2"], "name[The Old Mill]", {})
    assert (passed["judged_by"], passed["hard"], passed["soft"]) == ("rule", 1, 1.0)
    assert (failed["judged_by"], failed["hard"], failed["soft"]) == ("rule", 0, 0.0)


def test_the_fixtures_examples_and_headlines_pass_what_they_should() -> None:
    answers = {
        "example-1-1": "BOT: dry",
        "example-1-2": "{'bot': 'dry'}",
        "example-1-3": "#Answer#\ndry",
        "example-1-4": "dry",
        "example-1-5": "Result: dry END",
        "mixed-1-5": "a man was seen in a big park",
        "situation-1-3": "First $8, then $6",
    }
    assert [BENCH.outcome(TASKS[i], a, {})["hard"] for i, a in answers.items()] == [1] * 7


def test_a_readable_reply_ends_the_asking_and_is_the_outcome() -> None:
    replies = {CALL_KEY: ("no list", "1) met\n2) not met\n['YES', 'NO']")}
    assert BENCH.next_calls(TASKS["style-1-2"], "a", replies) == []
    outcome = BENCH.outcome(TASKS["style-1-2"], "a", replies)
    assert outcome == {
        "id": "style-1-2", "type": "style", "example_id": 1, "level": 2, "category": "style",
        "source": "own_questions", "judged_by": "judge", "hard": 0, "soft": 0.5,
    }  # fmt: skip


def test_after_five_unreadable_replies_the_judge_has_failed_and_no_score_is_made_up() -> None:
    task = TASKS["style-1-2"]
    assert len(BENCH.next_calls(task, "a", {CALL_KEY: ("?",) * 4})) == 1
    assert BENCH.next_calls(task, "a", {CALL_KEY: ("?",) * 5}) == []
    for replies in ({CALL_KEY: ("?",) * 5}, {}):
        outcome = BENCH.outcome(task, "a", replies)
        assert (outcome["hard"], outcome["soft"]) == (None, None)


@pytest.mark.parametrize(
    ("reply", "level", "hard", "soft"),
    [
        ("reason\n['YES','NO']", 2, 0, 0.5),
        ("['YES', 'PARTIAL', 'YES']", 3, 0, 2 / 3),
        ("```\n['YES','YES']\n```", 2, 1, 1.0),
        ("It is NO / not YES", 1, 1, 1.0),
        ("['NO']", 1, 0, 0.0),
        ('so ["MAYBE", "UNKNOWN", "N/A", "YES"].', 4, 0, 0.25),
    ],
)
def test_the_authors_examples_of_replies_are_read_the_same(
    reply: str, level: int, hard: int, soft: float
) -> None:
    assert read_reply(reply, level) == Satisfied(hard=hard, soft=soft)


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ("['YES','Yes']", 2),
        ("['YES']", 2),
        ("['YES', 'YES', 'NO']", 2),
        ("['YES', 'YES']\nThat is all.", 2),
        ("[YES, YES]", 2),
        ("['YES'] * 2", 2),
        ("['YES' for _ in range(2)]", 2),
        ("[__import__('os').system('false'), 'YES']", 2),
        ("['YES'], ['YES']", 2),
        ("[['YES'], 'YES']", 2),
        ("[{[]}, 'YES']", 2),
        ("[" * 5000 + "]" * 5000, 2),
        ("['YES', 'YES\0']", 2),
        ("YES\nyes, it does", 1),
        ("", 1),
        ("error", 2),
    ],
)
def test_a_reply_that_is_no_list_of_words_is_unreadable_and_never_run(
    reply: str, level: int
) -> None:
    assert read_reply(reply, level) is None
