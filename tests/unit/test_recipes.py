"""The shipped recipes: each resolves, says where its values come from, and is what its paper ran.

The table below was written by hand from the papers; it is not read from the recipes.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from core.config import RunConfig
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
from drivers.config_file import dump_config, load_config
from drivers.train import main

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "drivers" / "configs"
RECIPES = sorted(p.stem for p in CONFIGS.glob("*.yaml"))
BASES = ("care", "rare_negative", "rler", "online_rubrics", "mpo", "ratchet")
"""Recipes that stand alone; all others extend one of them."""


@dataclass(frozen=True)
class Expected:
    """What the paper says about one recipe."""

    method: str
    steps: int
    groups: int
    group_size: int
    lr: float
    kl: float
    mini_batches: int
    template: str
    scope: str = "query"


CARE = (96, 16, 1e-6, 0.001, 2, "verbatim")
RARE = (32, 8, 1e-6, 0.001, 1, "ids")

PAPER: dict[str, Expected] = {
    "care": Expected("care", 281, *CARE),
    "care_300": Expected("care", 300, *CARE),
    "care_adaptive": Expected("care", 281, *CARE),
    "care_chase": Expected("care", 281, *CARE),
    "care_adaptive_no_veto": Expected("care", 281, *CARE),
    "care_adaptive_no_anchor": Expected("care", 281, *CARE),
    "care_no_veto": Expected("care", 281, *CARE),
    "rubric_rl": Expected("static", 281, *CARE),
    "rubric_rl_universal": Expected("static", 281, *CARE),
    "care_online": Expected("online_rubrics", 281, *CARE),
    "rare_negative": Expected("rare", 132, *RARE),
    "rare_positive": Expected("rare", 132, *RARE),
    "rare_mixed": Expected("rare", 132, *RARE),
    "rare_task": Expected("rare", 132, *RARE, scope="task"),
    "sample_static": Expected("static", 132, *RARE),
    "task_static": Expected("static", 132, *RARE, scope="task"),
    "rare_rler": Expected("rler", 132, *RARE),
    "rare_mpo": Expected("mpo", 132, *RARE, scope="task"),
    "chasing_tail_rare": Expected("rare", 308, *RARE),
    "writingbench_rare": Expected("rare", 200, *RARE),
    "rler": Expected("rler", 650, 32, 8, 5e-7, 0.001, 1, "ids"),
    "online_rubrics": Expected("online_rubrics", 60, 96, 16, 5e-6, 0.01, 1, "ids"),
    "mpo": Expected("mpo", 117, 8, 8, 3e-6, 0.02, 1, "ids", scope="task"),
    "ratchet": Expected("ratchet", 300, 32, 8, 1e-6, 0.001, 1, "ids"),
}

CARE_SWITCHES = {  # adaptive, chase, veto, anchor
    "care": (True, True, True, True),
    "care_300": (True, True, True, True),
    "care_adaptive": (True, False, True, True),
    "care_chase": (False, True, True, True),
    "care_adaptive_no_veto": (True, False, False, True),
    "care_adaptive_no_anchor": (True, False, True, False),
    "care_no_veto": (True, True, False, True),
}

POLARITY = {
    "rare_negative": "negative",
    "rare_positive": "positive",
    "rare_mixed": "mixed",
    "chasing_tail_rare": "negative",
    "writingbench_rare": "negative",
}


def recipe(name: str) -> RunConfig:
    return load_config(str(CONFIGS / f"{name}.yaml"))


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
    steps = [round(i * config.loop.steps / (task.revisions + 1)) for i in range(1, 6)]
    assert steps == [22, 44, 66, 88, 110]


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


# ------------------------------------------------------------------ what a person sees
@pytest.mark.parametrize("name", RECIPES)
def test_the_dry_run_of_a_recipe_ends_well_and_says_what_is_missing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["--config", str(CONFIGS / f"{name}.yaml"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    missing = shown.split("# missing\n")[1].strip().splitlines()
    assert f"name: {name}\n" in shown
    if name == "quickstart":
        assert missing == ["nothing"]
    else:
        assert recipe(name).data.train in "\n".join(missing)


@pytest.mark.parametrize("name", ["care_adaptive_no_veto", "rare_task"])
def test_a_dry_run_by_name_takes_seconds_and_loads_neither_torch_nor_vllm_nor_ray(
    name: str,
) -> None:
    code = (
        "import sys\n"
        "from drivers.train import main\n"
        f"code = main(['--config', '{name}', '--dry-run'])\n"
        "heavy = sorted({'torch', 'vllm', 'ray', 'deepspeed', 'transformers'} & set(sys.modules))\n"
        "print('heavy', heavy)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "heavy []" in done.stdout
    assert "# missing" in done.stdout


@pytest.mark.parametrize("name", RECIPES)
def test_a_resolved_recipe_can_be_given_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(recipe(name)))
    assert load_config(str(path)) == recipe(name)


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in (*BASES, "quickstart")])
def test_a_derived_recipe_states_only_what_differs(name: str) -> None:
    tree = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    parent = yaml.safe_load(dump_config(recipe(tree["extends"].removesuffix(".yaml"))))
    assert tree["extends"].removesuffix(".yaml") in BASES
    same = [
        path
        for path, value in _leaves(tree)
        if path[0] != "evolution" and _at(parent, path) == value
    ]
    known = {
        ("sampling", "max_new_tokens"),  # WritingBench: said again, because the source is another
    }
    assert set(same) <= known


def _leaves(tree: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if not isinstance(tree, dict):
        return [(path, tree)]
    return [leaf for key, value in tree.items() for leaf in _leaves(value, (*path, str(key)))]


def _at(tree: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


@pytest.mark.parametrize("name", PAPER)
def test_every_value_of_a_recipe_names_its_source(name: str) -> None:
    bare = []
    for line in (CONFIGS / f"{name}.yaml").read_text().splitlines():
        value = re.match(r"\s*[\w-]+:\s+(?!#)(\S.*)$", line)
        if value is None or line.startswith(("name:", "extends:")):
            continue
        comment = value.group(1).partition(" # ")[2].strip()
        if len(comment) < 3:
            bare.append(line)
    assert bare == []


def test_recipes_that_stand_alone_set_every_value_that_decides_a_result() -> None:
    """A default that changes later must not change what a paper's recipe runs."""
    wanted = {
        "sampling": {"group_size", "max_new_tokens", "temperature"},
        "learner": {"lr", "warmup_steps", "mini_batches", "dual_clip", "kl_coef", "betas",
                    "weight_decay", "max_grad_norm", "clip_low", "clip_high"},
        "advantage": {"ddof", "eps", "should_scale", "drop_flat_groups"},
        "reward": {"weights", "normaliser"},
        "judge": {"backend", "model", "template", "temperature", "max_tokens"},
        "loop": {"steps", "groups_per_step", "max_policy_age"},
    }  # fmt: skip
    for name in BASES:
        if name == "ratchet":
            continue
        tree = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
        absent = {part: keys - set(tree[part]) for part, keys in wanted.items()}
        assert not any(absent.values()), (name, absent)


# ------------------------------------------------------------------ the texts about recipes
@pytest.mark.parametrize("file", ["README.md", "docs/methods.md"])
def test_the_table_of_methods_names_every_recipe(file: str) -> None:
    text = (ROOT / file).read_text()
    assert [n for n in PAPER if f"--config {n}`" not in text] == []


@pytest.mark.parametrize("file", ["README.md", "docs/methods.md", *(
    f"drivers/configs/{name}.yaml" for name in RECIPES
)])  # fmt: skip
def test_every_command_in_the_texts_names_a_recipe_that_exists(file: str) -> None:
    text = (ROOT / file).read_text()
    named = re.findall(r"--config\s+([\w./]+)", text)
    own = {"my_run.yaml", "NAME"}
    unknown = {n for n in named if Path(n).stem not in RECIPES and n not in own}
    assert unknown == set()
