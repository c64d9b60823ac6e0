"""Recipes as files: a dry run in seconds, a source beside each value, and texts that name them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from drivers import offline
from drivers.config_file import dump_config, load_config, load_offline_config
from drivers.train import main
from tests.unit.paper_recipes import (
    BASES,
    CONFIGS,
    OFFLINE,
    PAPER,
    RECIPES,
    ROOT,
    offline_recipe,
    recipe,
)


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


@pytest.mark.parametrize("name", OFFLINE)
def test_the_dry_run_of_an_offline_recipe_says_what_is_missing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert offline.main(["--config", name, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"name: {name}\n" in shown
    assert offline_recipe(name).data.train in shown.split("# missing\n")[1]


@pytest.mark.parametrize("name", OFFLINE)
def test_an_offline_recipe_is_refused_by_train_which_says_what_to_use(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", name, "--dry-run"]) == 2
    assert f"use `ratchet offline --config {name}`" in capsys.readouterr().err


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


def test_a_base_model_without_a_chat_template_ends_with_exit_code_2_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    model, data = tmp_path / "base", tmp_path / "queries.jsonl"
    words = Tokenizer(WordLevel({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(model)
    (model / "config.json").write_text("{}")
    data.write_text('{"prompt": "Say hello.", "rubrics": ["Greets"]}\n')
    changed = [
        f"policy.model={model}",
        f"data.train={data}",
        f"runs_dir={tmp_path}",
        "loop.groups_per_step=1",
        "learner.mini_batches=1",
    ]
    assert main(["--config", "rubric_rl", *changed]) == 2
    assert "without a chat template, wanted one: set policy.chat_template" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_resolved_recipe_can_be_given_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(recipe(name)))
    assert load_config(str(path)) == recipe(name)


@pytest.mark.parametrize("name", OFFLINE)
def test_a_resolved_offline_recipe_can_be_given_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(offline_recipe(name)))
    assert load_offline_config(str(path)) == offline_recipe(name)


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


@pytest.mark.parametrize("name", [*PAPER, *OFFLINE])
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
    if file != "README.md":
        assert [n for n in OFFLINE if f"offline --config {n}`" not in text] == []


@pytest.mark.parametrize("file", ["README.md", "docs/methods.md", *(
    f"drivers/configs/{name}.yaml" for name in (*RECIPES, *OFFLINE)
)])  # fmt: skip
def test_every_command_in_the_texts_names_a_recipe_that_exists(file: str) -> None:
    text = (ROOT / file).read_text()
    named = re.findall(r"--config\s+([\w./]+)", text)
    own = {"my_run.yaml", "NAME"}
    unknown = {n for n in named if Path(n).stem not in (*RECIPES, *OFFLINE) and n not in own}
    assert unknown == set()
