"""The prefix cache's benchmark: its arithmetic, its prompts and its replies are the product's."""

import json
from dataclasses import replace

import pytest

from core.config_served import GradingConfig
from core.grading.prompt import judge_prompt
from core.records import Completion
from drivers.bench.prefix_cache import rows
from drivers.bench.prefix_cache_blocks import BlockCache, Tokens
from drivers.bench.prefix_cache_routing import smallest
from drivers.bench.prefix_cache_work import (
    GROUP_SIZE,
    joint_prompts,
    make_groups,
    scoring_prompts,
    single_prompts,
    template,
    words,
)
from serve.backends.base import CompletionRequest
from serve.judge import Judge
from serve.prompts import load_prompt


def test_a_prompt_finds_the_full_blocks_that_it_shares_and_never_its_last_token() -> None:
    cache = BlockCache(4)
    assert cache.admit(range(10)).cached == 0
    assert cache.admit([*range(8), 99, 99]).cached == 8
    assert cache.admit(range(8)).cached == 4
    assert cache.admit([99, *range(1, 10)]).cached == 0  # the same blocks after another first one
    assert Tokens(calls=1, prompt=8, cached=4) + Tokens(calls=1, prompt=8) == Tokens(
        calls=2, prompt=16, cached=4
    )


def test_a_cache_that_is_full_forgets_the_blocks_longest_unused_last_ones_first() -> None:
    cache = BlockCache(4, capacity=3)
    cache.admit(range(12))
    cache.admit([50, 51, 52, 53])
    assert cache.admit(range(13)).cached == 8


def test_groups_are_the_same_in_every_run_and_as_large_as_said() -> None:
    groups = make_groups(10, 0)
    assert groups == make_groups(10, 0)
    assert len({g.request for g in groups}) == 10
    for group in groups:
        assert 6 <= len(group.criteria) <= 8
        assert len(group.responses) == GROUP_SIZE
        assert all(150 <= n <= 400 for n in words(group.responses))


def test_the_layouts_differ_only_in_where_the_response_stands() -> None:
    (group,) = make_groups(1, 0)
    own, other = (
        scoring_prompts(group, "criteria_first")[0],
        scoring_prompts(group, "response_first")[0],
    )
    assert template("criteria_first") == load_prompt("judge_ids")
    assert own == judge_prompt(load_prompt("judge_ids"), group.judge_requests()[0], style="ids")
    assert sorted(own.split("\n\n")) == sorted(other.split("\n\n"))
    assert own.index("The criteria, one") < own.index(group.responses[0])
    assert other.index("The criteria, one") > other.index(group.responses[0])
    assert len(single_prompts(group, "criteria_first")) == GROUP_SIZE * len(group.criteria)
    assert all(text in joint_prompts(group)[0] for text in group.responses)


class _Smallest:
    """A backend that gives what the schema allows."""

    num_calls = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.num_calls += 1
        text = json.dumps(smallest(request.schema or {}))
        return Completion(text=text, finish_reason="stop", model="m")

    async def check_health(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_the_replies_of_the_model_without_a_model_are_read_without_a_second_call() -> None:
    backend = _Smallest()
    judge = Judge(GradingConfig(backend="vllm", model="m"), backend)
    (group,) = make_groups(1, 0)
    reply = await judge.grade(group.judge_requests()[0])
    joint = await judge.rescore(group.rescore_request())
    verdicts = [*reply.verdicts, *(v for row in joint.verdicts for v in row)]
    assert len(verdicts) == len(group.criteria) + 2 * GROUP_SIZE
    assert all(v.failure is None for v in verdicts)
    assert backend.num_calls == 2


def test_replaced_criteria_keep_their_ids() -> None:
    (group,) = make_groups(1, 0)
    assert [c.id for c in group.replaced()] == [c.id for c in group.criteria[-2:]]
    assert replace(group, criteria=group.replaced()).criteria[0].text != group.criteria[-2].text


def test_the_table_shows_layouts_routers_and_how_far_the_arithmetic_is_off() -> None:
    scored = {"criteria_first": {"score": {"share": 0.5}}}
    arm = {"score_share": 0.4, "computed_largest_over_mean": 1.1}
    result = {
        "layouts": scored,
        "engine": scored,
        "engine_by_arithmetic": {"criteria_first": {"score": {"share": 0.49}}},
        "routing": {"affinity": {"8": arm}},
    }
    shown = {row.name: row.value for row in rows(result)}
    assert shown["criteria_first score, share"] == 0.5
    assert shown["engine less arithmetic, share"] == pytest.approx(0.01)
    assert shown["affinity over 8, largest over mean"] == 1.1
