"""The shipped recipes are what their papers ran."""

import pytest

from core.config_evolution import (
    CareEvolution,
    MpoEvolution,
    OnlineRubricsEvolution,
    RareEvolution,
    RatchetEvolution,
    RlerEvolution,
    StaticEvolution,
    rubric_scope,
)
from core.config_offline import DpoMethod, SftMethod
from core.evolution.mpo import mpo_steps
from core.evolution.rare_task import revision_steps
from tests.unit.paper_recipes import (
    CARE_SWITCHES,
    PAPER,
    POLARITY,
    RECIPES,
    Expected,
    offline_recipe,
    recipe,
)


def test_every_recipe_stands_in_the_table_and_the_other_way_round() -> None:
    assert set(RECIPES) == {*PAPER, "quickstart"}


@pytest.mark.parametrize("name", PAPER)
def test_a_recipe_is_what_its_paper_ran(name: str) -> None:
    config, paper = recipe(name), PAPER[name]
    assert config.name == name
    assert Expected(
        method=config.evolution.method,
        steps=config.loop.steps,
        groups=config.loop.groups_per_step,
        group_size=config.sampling.group_size,
        lr=config.learner.lr,
        kl=config.learner.kl_coef,
        mini_batches=config.learner.mini_batches,
        template=config.judge.template,
        scope=rubric_scope(config.evolution),
    ) == (paper)


@pytest.mark.parametrize("name", [n for n in PAPER if n != "ratchet"])
def test_paper_recipes_are_synchronous(name: str) -> None:
    assert recipe(name).loop.max_policy_age == 0


@pytest.mark.parametrize("name", CARE_SWITCHES)
def test_the_switches_of_care_are_those_of_its_ablation(name: str) -> None:
    config = recipe(name)
    method = config.evolution
    assert isinstance(method, CareEvolution)
    care = method.care
    assert (care.adaptive, care.chase, care.veto, care.anchor) == CARE_SWITCHES[name]
    assert config.reward.veto is care.veto
    assert config.reward.weights == "none"
    assert config.reward.resist_in_mean
    assert config.needs_anchor is care.anchor
    assert method.apply == "next_visit"
    assert method.trigger.when == "always"
    assert not method.gates.is_any_on


def test_the_prompt_and_the_response_of_care_share_8192_tokens() -> None:
    config = recipe("care")
    assert config.policy.max_model_len == 8192
    prompt = config.data.max_prompt_tokens
    assert prompt is not None
    assert prompt + config.sampling.max_new_tokens == 8192
    assert config.learner.warmup_steps > 0
    assert (config.judge.model, config.writer.model) == ("Qwen/Qwen2.5-72B-Instruct",) * 2


def test_static_recipes_differ_from_each_other_by_the_universal_criteria_only() -> None:
    plain, universal = recipe("rubric_rl").evolution, recipe("rubric_rl_universal").evolution
    assert plain == StaticEvolution()
    assert universal == StaticEvolution(universal=True)
    assert recipe("sample_static").evolution == StaticEvolution()
    assert recipe("task_static").evolution == StaticEvolution(scope="task")


@pytest.mark.parametrize("name", [n for n in PAPER if PAPER[n].method == "static"])
def test_a_fixed_rubric_needs_neither_a_writers_model_nor_its_key(name: str) -> None:
    config = recipe(name)
    assert config.writer.backend == "rules"
    assert not config.needs_anchor


@pytest.mark.parametrize("name", POLARITY)
def test_sample_level_rare_replaces_at_most_three_in_its_direction(name: str) -> None:
    method = recipe(name).evolution
    assert isinstance(method, RareEvolution)
    rare = method.rare
    assert (rare.polarity, rare.budget, rare.max_attempts) == (POLARITY[name], 3, 5)


def test_task_level_rare_revises_five_times_from_12_to_16_groups_of_three_steps() -> None:
    config = recipe("rare_task")
    method = config.evolution
    assert isinstance(method, RareEvolution)
    task = method.task
    assert (task.revisions, task.evidence_steps) == (5, 3)
    assert (task.min_groups, task.max_groups, task.max_mean_shift) == (12, 16, 0.35)
    assert list(config.data.task_rubrics) == ["2d_animation"]
    assert revision_steps(config.loop.steps, task.revisions) == (22, 44, 66, 88, 110)


@pytest.mark.parametrize("name", [n for n in PAPER if PAPER[n].steps == 132])
def test_the_script_runs_of_rare_share_judge_writer_and_grpo(name: str) -> None:
    config = recipe(name)
    judge, writer = config.judge, config.writer
    assert (judge.model, judge.temperature, judge.max_tokens) == ("qwen3.7-plus", 0.0, 4096)
    assert (judge.max_concurrency, judge.per_criterion) == (12, False)
    assert (writer.model, writer.temperature, writer.max_tokens) == ("gpt-5.4", 0.2, 8192)
    assert writer.max_concurrency == 16
    assert config.policy.model == "Qwen/Qwen3-4B-Instruct-2507"
    assert (config.data.max_prompt_tokens, config.sampling.max_new_tokens) == (4096, 8192)
    learner = config.learner
    assert learner.warmup_steps == 0
    assert (learner.clip_low, learner.clip_high, learner.dual_clip) == (0.2, 0.2, 3.0)
    assert (config.advantage.ddof, config.advantage.eps) == (1, 1e-6)
    assert config.reward.weights == "none"


@pytest.mark.parametrize(
    ("name", "prompt"), [("chasing_tail_rare", 4096), ("writingbench_rare", 24567)]
)
def test_the_text_tasks_of_rare_are_judged_by_gpt_4_1_mini(name: str, prompt: int) -> None:
    config = recipe(name)
    assert (config.judge.model, config.judge.base_url) == ("gpt-4.1-mini", None)
    assert config.judge.api_key_env == "OPENAI_API_KEY"
    assert (config.seed, config.data.max_prompt_tokens) == (1, prompt)
    assert config.policy.max_model_len >= prompt + config.sampling.max_new_tokens


def test_the_baselines_of_rare_are_its_adaptations() -> None:
    rler, mpo = recipe("rare_rler").evolution, recipe("rare_mpo").evolution
    assert isinstance(rler, RlerEvolution)
    assert (rler.rler.max_new, rler.rler.max_active, rler.rler.negative) == (5, 5, False)
    assert isinstance(mpo, MpoEvolution)
    assert (mpo.mpo.every_steps, mpo.mpo.revisions) == (None, 5)
    assert mpo_steps(mpo.mpo, recipe("rare_mpo").loop.steps) == (22, 44, 66, 88, 110)


def test_rler_has_the_settings_of_its_own_paper() -> None:
    config = recipe("rler")
    assert (config.reward.weights, config.reward.normaliser) == ("checklist", "pos_sum_floor1")
    assert (config.advantage.ddof, config.advantage.eps) == (0, 1e-8)
    assert config.judge.per_criterion
    method = config.evolution
    assert isinstance(method, RlerEvolution)
    assert (method.rler.max_active, method.rler.negative, method.rler.max_points) == (5, True, 2)


def test_online_rubrics_has_the_settings_of_its_own_paper() -> None:
    config = recipe("online_rubrics")
    assert (config.reward.weights, config.reward.normaliser) == ("checklist", "pos_sum")
    assert config.learner.warmup_steps * 10 == config.loop.steps
    assert config.sampling.max_new_tokens == 3584
    for name in ("online_rubrics", "care_online"):
        method = recipe(name).evolution
        assert isinstance(method, OnlineRubricsEvolution)
        assert (method.online.control, method.online.control_group_size) == ("reference", 8)


def test_mpo_has_the_settings_of_its_own_paper() -> None:
    config = recipe("mpo")
    method = config.evolution
    assert isinstance(method, MpoEvolution)
    mpo = method.mpo
    assert (mpo.every_steps, mpo.revisions, mpo.num_samples, mpo.max_points) == (20, None, 16, 5)
    assert config.judge.per_criterion
    assert config.judge.temperature == config.writer.temperature == 0.02
    assert (config.sampling.max_new_tokens, config.learner.clip_low) == (1000, 0.2)


def test_ratchet_has_every_gate_the_triggers_a_reference_judge_and_a_budget() -> None:
    config = recipe("ratchet")
    method = config.evolution
    assert isinstance(method, RatchetEvolution)
    assert method == RatchetEvolution(deadline_s=method.deadline_s)
    gates = method.gates
    assert gates.anchor_passes
    assert gates.discriminates
    assert gates.not_redundant
    assert gates.max_active == 16
    assert config.reference_judge is not None
    assert config.reference_judge.model != config.judge.model
    assert config.budget.tokens is not None


# ------------------------------------------------------------------ offline baselines
def test_sft_on_scripts_has_the_settings_of_rare() -> None:
    config = offline_recipe("sft_scripts")
    learner = config.learner
    assert isinstance(config.offline, SftMethod)
    assert config.offline.target == "script"
    assert config.policy.model == "Qwen/Qwen3-4B-Instruct-2507"
    assert (config.loop.epochs, learner.batch_size, config.policy.max_model_len) == (3, 32, 8192)
    assert (learner.lr, learner.schedule, learner.min_lr_frac) == (1e-5, "cosine", 0.0)
    assert learner.warmup_frac == 0.03
    assert config.data.val_frac > 0  # a validation loss


def test_sft_on_anchors_trains_on_the_data_of_care() -> None:
    config, care = offline_recipe("sft_anchor"), recipe("care")
    assert isinstance(config.offline, SftMethod)
    assert config.offline.target == "anchor"
    assert config.data.train == care.data.train
    assert config.policy.model == care.policy.model
    assert config.policy.max_model_len == care.policy.max_model_len


def test_dpo_has_the_settings_of_rlcf() -> None:
    config = offline_recipe("dpo_rlcf")
    learner = config.learner
    assert isinstance(config.offline, DpoMethod)
    assert config.offline.beta == 0.1
    assert (learner.lr, learner.min_lr_frac, learner.schedule) == (3e-6, 0.75, "cosine")
    assert (config.loop.epochs, learner.batch_size, config.policy.max_model_len) == (2, 1024, 2048)
