"""The shipped quickstart: its config loads, and its queries say honestly what they claim to say."""

from pathlib import Path

import pytest

from core.config import RunConfig
from core.config_evolution import RatchetEvolution
from core.query import Query
from core.records import Verdict
from core.rubric import Criterion
from core.rules.detectors import VETO_RULES
from core.rules.registry import REWARDABLE
from core.rules.verifiers import decide
from drivers.config_file import load_config
from drivers.data_files import load_queries

CONFIGS = Path(__file__).parents[2] / "drivers" / "configs"
TRAIN, EVAL = "quickstart.jsonl", "quickstart_eval.jsonl"


def queries_of(name: str) -> tuple[Query, ...]:
    return tuple(load_queries(CONFIGS / "data" / name).queries)


def verdicts_on(query: Query, criteria: tuple[Criterion, ...], response: str) -> list[Verdict]:
    return [decide(c, response, query.prompt_text) for c in criteria]


def gold_of(query: Query, response: str) -> float:
    scores = [v.score or 0.0 for v in verdicts_on(query, query.gold, response)]
    return sum(scores) / sum(c.max for c in query.gold)


def config() -> RunConfig:
    return load_config(str(CONFIGS / "quickstart.yaml"))


def test_config_trains_by_ratchet_and_visits_every_query_five_times() -> None:
    run = config()
    assert isinstance(run.evolution, RatchetEvolution)
    assert run.loop.steps * run.loop.groups_per_step == 5 * len(queries_of(TRAIN))
    assert run.judge.backend == run.writer.backend == "rules"


def test_there_are_24_training_and_8_held_out_queries_without_overlap() -> None:
    train, held_out = queries_of(TRAIN), queries_of(EVAL)
    assert (len(train), len(held_out)) == (24, 8)
    assert not {q.id for q in train} & {q.id for q in held_out}
    assert not {q.prompt_text for q in train} & {q.prompt_text for q in held_out}


@pytest.mark.parametrize("name", [TRAIN, EVAL])
def test_every_anchor_passes_its_rubric_and_gold_in_full(name: str) -> None:
    for query in queries_of(name):
        assert query.anchor is not None
        verdicts = verdicts_on(query, (*query.rubric.criteria, *query.gold), query.anchor.response)
        assert [v.criterion_id for v in verdicts if not v.is_full] == [], query.id


@pytest.mark.parametrize("name", [TRAIN, EVAL])
def test_gold_rules_can_be_neither_rewarded_nor_a_veto(name: str) -> None:
    for query in queries_of(name):
        rules = {c.rule.name for c in query.gold if c.rule is not None}
        assert len(rules) == len(query.gold)
        assert "finished_ending" in rules
        assert not rules & (set(REWARDABLE) | VETO_RULES)


def test_repeating_one_word_passes_the_whole_rubric_but_not_gold() -> None:
    for query in queries_of(TRAIN):
        listed = query.rubric.criteria[0].rule
        assert listed is not None
        words = listed.args["words"]
        assert isinstance(words, list)
        response = " ".join([f"The {words[0]} is the {words[0]}."] * 5)
        assert all(v.is_full for v in verdicts_on(query, query.rubric.criteria, response))
        assert gold_of(query, response) < 0.5


def test_an_unfinished_answer_without_the_words_earns_its_length_only() -> None:
    for query in queries_of(TRAIN):
        response = "This is a nice thing that many people like to see"
        assert sum(v.score or 0.0 for v in verdicts_on(query, query.rubric.criteria, response)) == 1
        assert gold_of(query, response) < 0.5
