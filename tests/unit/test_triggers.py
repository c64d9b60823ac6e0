"""When a group is contrasted: each sign, and what is none since prompt or anchor share it."""

# ruff: noqa: RUF001

import time

import pytest

from core.config import RewardConfig
from core.config_evolution import TriggerConfig
from core.evolution.triggers import contrast_reason
from core.records import GradedGroup, GradedRollout
from core.rubric import Rubric
from tests.unit.method_builders import graded_group, llm, resist

SIGNALS = TriggerConfig(when="signals")
PLAIN = (
    "The tide pulls an old boat until its rope creaks. A gull rests on the stones and watches the "
    "water rise, and another one cries above them."
)
"""27 words, no phrase twice."""


def group(
    top: str, *, anchor: str | None = PLAIN, prompt: str = "Write about a harbor.", score: float = 0
) -> tuple[GradedGroup, GradedRollout]:
    """A group of one rollout, ``score`` of it full on one criterion of two."""
    made = graded_group(
        Rubric(criteria=(llm("c1"), llm("c2"))),
        [{"c1": score, "c2": 0}],
        responses=[top],
        anchor=anchor,
    )
    message = made.query.messages[0].model_copy(update={"content": prompt})
    query = made.query.model_copy(update={"messages": (message,)})
    made = GradedGroup(
        draw=made.draw, query=query, rubric=made.rubric, rollouts=made.rollouts, judge="j"
    )
    return made, made.rollouts[0]


def sign(
    top: str, *, anchor: str | None = PLAIN, prompt: str = "Write about a harbor.", **trigger: float
) -> str:
    made, rollout = group(top, anchor=anchor, prompt=prompt)
    config = TriggerConfig.model_validate({"when": "signals", **trigger})
    return contrast_reason(made, rollout, config, RewardConfig())


def at_step(step: int, every: int) -> str:
    made, rollout = group(PLAIN)
    draw = type(made.draw)(query_id="q1", step=step, position=0, visit=0)
    made = GradedGroup(
        draw=draw, query=made.query, rubric=made.rubric, rollouts=made.rollouts, judge="j"
    )
    config = TriggerConfig(when="every", every_steps=every)
    return contrast_reason(made, rollout, config, RewardConfig())


# ------------------------------------------------------------------ when
def test_always_needs_no_sign() -> None:
    made, rollout = group(PLAIN)
    assert contrast_reason(made, rollout, TriggerConfig(), RewardConfig()) == "always"


def test_every_fourth_step_and_no_other_is_due() -> None:
    assert [s for s in range(1, 13) if at_step(s, 4)] == [4, 8, 12]
    assert at_step(8, 4) == "step 8 is a multiple of 4"
    assert all(at_step(s, 1) for s in range(1, 4))


def test_a_top_reward_at_the_ceiling_is_a_sign() -> None:
    # One of two criteria is satisfied: the reward is 0.5.
    made, rollout = group(PLAIN, score=1)
    near = TriggerConfig(when="signals", reward_ceiling=0.5)
    below = TriggerConfig(when="signals", reward_ceiling=0.51)
    assert contrast_reason(made, rollout, near, RewardConfig()) == "top reward 0.5 >= 0.5"
    assert contrast_reason(made, rollout, below, RewardConfig()) == ""


def test_a_vetoed_top_is_far_from_the_ceiling_unless_the_veto_is_off() -> None:
    rubric = Rubric(criteria=(*(llm(f"c{i}") for i in range(1, 10)), resist("r1")))
    scores = {**{f"c{i}": 1.0 for i in range(1, 10)}, "r1": 0.0}
    made = graded_group(rubric, [scores], responses=[PLAIN], anchor=PLAIN)
    top = made.rollouts[0]
    assert contrast_reason(made, top, SIGNALS, RewardConfig()) == ""
    # 9 of 10 without the product.
    assert contrast_reason(made, top, SIGNALS, RewardConfig(veto=False)) == "top reward 0.9 >= 0.9"


# ------------------------------------------------------------------ repetition
def test_prose_like_the_anchor_shows_no_sign() -> None:
    assert (
        sign("A fisher mends the torn net by lamp light while the fog lifts from the pier.") == ""
    )
    assert sign(PLAIN) == ""


def test_phrases_said_again_are_a_sign() -> None:
    # 15 words are 12 sequences of four, 2 of them (one two three four, two three four five) again:
    # 2/12 = 0.17, from 0.1 on.
    text = "one two three four five six seven one two three four five eight nine ten"
    assert sign(text) == "repeated 4-grams"


def test_a_refrain_that_the_anchor_has_too_is_no_sign() -> None:
    song = (
        "Sail away with me tonight my love, over dark water we go. "
        "Sail away with me tonight my love, under pale stars we row. "
    )
    other = (
        "Roll along the river with me dear, morning comes to the mill. "
        "Roll along the river with me dear, evening falls on the hill. "
    )
    assert sign(song) == "repeated 4-grams"
    assert sign(song, anchor=other) == ""
    assert sign(song, anchor=None, prompt=f"Write one more song like this: {other}") == ""


def test_one_word_all_over_is_a_sign() -> None:
    # "wheel" is 3 of 17 words, 0.18; wanted 0.125, and 0.05 over the anchor's share (0: each once).
    text = "A wheel turns, the old wheel sings near dark houses while one more wheel waits in rain."
    assert sign(text) == "repeated words"
    # The anchor says "wheel" 3 times in 21 words, 0.14: 0.18 is not 0.05 above it.
    anchor = (
        "My wheel broke on a stone, so I found a second wheel and a third wheel behind the shed."
    )
    assert sign(text, anchor=anchor) == ""


def test_the_same_few_words_are_a_sign() -> None:
    # 20 words, 10 different ones: 0.5, which is the limit, and under the anchor's 24/27 - 0.1. No
    # content word of three letters stands twice, and no sequence of four.
    assert sign("We go as you go, and you go where we do: so go with me and do as we do.") == (
        "repeated words"
    )
    # 11 of 20.
    assert sign("We go where you go and you go as we do, so go with me and do as I do.") == ""


def test_a_dozen_words_are_too_few_for_a_habit() -> None:
    assert sign("ball ball ball ball ball ball ball ball ball ball ball") == ""


# ------------------------------------------------------------------ placeholders and praise
def test_a_placeholder_is_a_sign_unless_prompt_or_anchor_have_one() -> None:
    text = "Dear [Your Name], the harbor is calm and the boats are in."
    assert sign(text) == "placeholder text"
    assert sign(text, prompt="Fill in: Dear {name}, ...") == ""
    assert sign(text, anchor="Dear [Name], the harbor was quiet today and the boats came in.") == ""


def test_praise_of_itself_is_a_sign_unless_prompt_or_anchor_have_it() -> None:
    text = "Boats came in at noon. This response fully covers the harbor."
    assert sign(text) == "praise of itself"
    assert sign(text, anchor="Boats left. I hope this helps.") == ""
    assert sign(text, prompt="Say of a text that this answer perfectly meets the request.") == ""


def test_what_a_policy_thinks_is_not_looked_at() -> None:
    assert sign(f"<think>This response fully covers it. TODO</think>{PLAIN}") == ""


# ------------------------------------------------------------------ scripts
CHINESE = "潮水把旧船拉向岸边，绳子吱吱作响。一只海鸥停在石头上，看着水慢慢涨起来。"
RUSSIAN = "Прилив тянет старую лодку к берегу, и канат скрипит. Чайка сидит на камне и смотрит."


@pytest.mark.parametrize("text", [CHINESE, RUSSIAN])
def test_another_script_than_prompt_and_anchor_is_a_sign(text: str) -> None:
    assert sign(text) == "foreign script"
    assert sign(text, anchor=text) == ""
    assert sign(text, prompt=f"Answer like this one: {text}") == ""


def test_a_mixed_text_is_a_sign_from_a_fifth_of_the_words_on() -> None:
    # 3 of 15 words are foreign, then 3 of 16.
    fifth = "the boat лежит on a берег where seven men wait under grey clouds for канат"
    assert len(fifth.split()) == 15
    assert sign(fifth) == "foreign script"
    assert sign(f"{fifth} again") == ""


def test_names_in_latin_letters_do_not_make_a_chinese_answer_foreign() -> None:
    prompt = "请用中文介绍注意力机制。"
    anchor = "注意力机制让模型在处理每个词时参考其他所有词，从而更好地理解整个句子的意思。"
    text = "Transformer 用注意力代替循环，GPT 和 BERT 都建立在它上面，因此训练可以同时进行。"
    assert sign(text, prompt=prompt, anchor=anchor) == ""


def test_chinese_prose_has_no_signs_of_repetition_and_padding_has() -> None:
    prompt = "写一写港口的早晨。"
    anchor = "早晨的港口很安静，渔船准备出海，工人们把网装上船。"
    assert sign(CHINESE, prompt=prompt, anchor=anchor) == ""
    padded = "港口的早晨真美丽啊真美丽。" * 4
    assert sign(padded, prompt=prompt, anchor=CHINESE) == "repeated 10-grams"


def test_a_text_without_letters_has_no_script() -> None:
    assert sign("1 2 3 4 5 6 7 8 9 10 11 12 13 14") == ""
    # Where prompt and anchor have none, nothing is known about the right one.
    assert sign("It is forty two.", prompt="12 + 30 = ?", anchor="42") == ""


# ------------------------------------------------------------------ length
def words(count: int) -> str:
    return " ".join(f"word{chr(97 + i % 26)}{i}" for i in range(count))


def test_a_length_far_from_the_anchors_is_a_sign() -> None:
    assert sign(words(120), anchor=words(40)) == "3 times the anchor's length"
    assert sign(words(119), anchor=words(40)) == ""
    assert sign(words(40), anchor=words(120)) == "0.33 times the anchor's length"
    assert sign(words(80), anchor=words(40), length_ratio=1.9) == "2 times the anchor's length"


def test_between_a_few_words_lengths_say_nothing() -> None:
    assert sign(words(19), anchor="word") == ""
    assert sign(words(21), anchor="word") == "21 times the anchor's length"


def test_lengths_in_characters_and_in_words_are_not_compared() -> None:
    # The prompt has both scripts, so that neither is foreign; the anchor has 34 words that are
    # characters, the rollout 8 words.
    prompt = f"Translate: {CHINESE}"
    text = "Water pulls one old boat to the shore."
    assert sign(text, prompt=prompt, anchor=CHINESE) == ""


def test_without_an_anchor_there_is_no_length_to_hold_against() -> None:
    assert sign(words(400), anchor=None) == ""


# ------------------------------------------------------------------ cost
@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "x y " * 250_000, "字" * 300_000, "{{" * 500_000]
)
def test_a_megabyte_of_text_is_judged_in_seconds(text: str) -> None:
    started = time.monotonic()
    sign(text)
    assert time.monotonic() - started < 20
