"""``ratchet offline`` up to where training begins: config, data, dry run, refusals, resuming.

No torch: a model is a folder with the files that are looked at.
"""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from core.deepspeed_config import trainer_deepspeed_config
from core.errors import ConfigError
from drivers import offline, offline_plan
from drivers.offline_data import load_offline_data, trl_row
from tests.unit.offline_rig import anchors, config_of, scripts, small_command, write_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a small run; TRL need not be there."""
    monkeypatch.setattr(offline_plan, "find_spec", lambda name: object())
    return small_command(tmp_path)


# ------------------------------------------------------------------ config
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("learner.lrr=1", "got the unknown key `learner.lrr`"),
        ("offline.beta=0.1", "`beta` belongs to dpo"),
        ("offline.method=ppo", "got offline="),
        ("offline=dpo", "wanted: a section with its method"),
        ("offline={}", "got `offline` without a method, wanted `method` to be one of sft, dpo"),
        ("offline.target=rubric", "got offline.target='rubric'"),
        ("learner.micro_batch_size=3", "wanted a multiple of it"),
        ("loop.keep_checkpoints=1", "greater than or equal to 2"),
        ("loop.steps=3", "got the unknown key `loop.steps`"),
        ("evolution.method=care", "got the unknown key `evolution`"),
        ("name=../x", "got name='../x'"),
    ],
)
def test_a_wrong_key_is_exit_code_2_with_one_sentence(
    command: list[str], capsys: pytest.CaptureFixture[str], changed: str, message: str
) -> None:
    assert offline.main([*command, changed]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert message in shown
    assert shown.count("\n") == 1


def test_an_override_of_the_method_leaves_nothing_of_another_ones_section(
    command: list[str],
) -> None:
    config = config_of(command, "offline.beta=0.2", "offline.method=dpo")
    assert config.offline.model_dump() == {
        "method": "dpo",
        "beta": 0.2,
        "precompute_reference": False,
    }


def test_only_a_cosine_has_a_floor(command: list[str]) -> None:
    with pytest.raises(ConfigError, match="wanted schedule=cosine"):
        config_of(command, "learner.schedule=linear", "learner.min_lr_frac=0.1")


def test_a_recipe_with_rollouts_is_sent_to_train(capsys: pytest.CaptureFixture[str]) -> None:
    assert offline.main(["--config", "care", "--dry-run"]) == 2
    assert "`ratchet train --config care`" in capsys.readouterr().err


def test_a_short_last_batch_is_a_step_of_its_own(command: list[str]) -> None:
    assert config_of(command).num_steps(9) == 9  # three epochs of 4 + 4 + 1


def test_the_stages_of_deepspeed_are_left_to_the_trainers_arguments() -> None:
    two, three = trainer_deepspeed_config(2), trainer_deepspeed_config(3)
    assert two["gradient_accumulation_steps"] == "auto"
    assert (two["zero_optimization"]["stage"], three["zero_optimization"]["stage"]) == (2, 3)
    assert three["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"]


# ------------------------------------------------------------------ data
def test_rows_of_one_video_are_on_one_side_and_all_are_used(command: list[str]) -> None:
    data = load_offline_data(config_of(command))
    assert (len(data.train), len(data.val)) == (10, 2)
    assert {e.group for e in data.train} & {e.group for e in data.val} == set()
    assert trl_row(data.train[0])["completion"][0]["role"] == "assistant"


def test_a_query_without_anchor_is_refused_or_counted(command: list[str], tmp_path: Path) -> None:
    path = write_rows(tmp_path / "queries.jsonl", anchors(9))
    changed = [f"data.train={path}", "offline.target=anchor"]
    with pytest.raises(ConfigError, match=r"row 2: no_anchor.*data.missing_target=skip"):
        load_offline_data(config_of(command, *changed))
    data = load_offline_data(config_of(command, *changed, "data.missing_target=skip"))
    assert data.skipped == {"no_anchor": 3}
    assert len(data.train) + len(data.val) == 6


def test_an_anchor_is_enough_a_rubric_is_not_asked_for(command: list[str], tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {i}.", "anchor": {"model": "m", "response": "x"}} for i in range(4)]
    path = write_rows(tmp_path / "queries.jsonl", rows)
    data = load_offline_data(config_of(command, f"data.train={path}", "offline.target=anchor"))
    assert len(data.train) + len(data.val) == 4


def test_a_broken_row_is_refused_with_its_line_even_where_rows_may_be_left_out(
    command: list[str], tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [*scripts(3), {"response": "x"}])
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 4: empty_prompt"):
        load_offline_data(config_of(command, f"data.train={path}", "data.missing_target=skip"))


def test_pairs_without_a_preference_are_counted(command: list[str], tmp_path: Path) -> None:
    rows = [
        {"prompt": f"P{i}", "chosen": "a", "rejected": "b", "chosen_score": 1, "rejected_score": s}
        for i, s in enumerate([0, 0.5, 1, 2])
    ]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    changed = [f"data.train={path}", "offline.method=dpo", "data.missing_target=skip"]
    data = load_offline_data(config_of(command, *changed))
    assert data.skipped == {"no_preference": 2}
    assert set(trl_row(data.train[0])) == {"prompt", "chosen", "rejected"}


def test_a_file_without_any_target_is_refused_with_the_counts(
    command: list[str], tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "answer": ""}] * 2)
    with pytest.raises(ConfigError, match=r"no row to learn from .2 with no_response."):
        load_offline_data(config_of(command, f"data.train={path}", "data.missing_target=skip"))


def test_a_validation_file_may_not_hold_what_is_trained_on(
    command: list[str], tmp_path: Path
) -> None:
    apart = write_rows(tmp_path / "val.jsonl", [{"prompt": "Other.", "response": "x"}])
    data = load_offline_data(config_of(command, f"data.eval={apart}"))
    assert (len(data.train), len(data.val)) == (12, 1)
    mixed = write_rows(tmp_path / "mixed.jsonl", scripts(14)[11:])
    with pytest.raises(ConfigError, match="1 of 3 validation rows"):
        load_offline_data(config_of(command, f"data.eval={mixed}"))


def test_other_rows_or_another_split_are_another_fingerprint(
    command: list[str], tmp_path: Path
) -> None:
    first = load_offline_data(config_of(command)).fingerprint
    assert load_offline_data(config_of(command)).fingerprint == first
    assert load_offline_data(config_of(command, "seed=3")).fingerprint != first
    write_rows(tmp_path / "rows.jsonl", scripts(13))
    assert load_offline_data(config_of(command)).fingerprint != first


# ------------------------------------------------------------------ dry run and refusals
def test_the_dry_run_loads_no_torch_and_counts_rows_tokens_and_steps(command: list[str]) -> None:
    code = (
        "import sys\n"
        "from drivers.offline import main\n"
        f"code = main([*{command!r}, '--dry-run'])\n"
        "heavy = sorted({'torch', 'trl', 'transformers', 'vllm', 'ray'} & set(sys.modules))\n"
        "print('heavy', heavy)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "heavy []" in done.stdout
    assert "training: 10 rows of 5 prompts or source groups, roughly 22 tokens" in done.stdout
    assert "validation: 2 rows of 1 prompts" in done.stdout
    assert "steps: 9 (3 epochs of 4 rows a step)" in done.stdout


def test_a_dry_run_names_everything_that_is_missing(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_plan, "find_spec", lambda name: None)
    monkeypatch.setenv("WORLD_SIZE", "3")
    changed = ["data.train=absent.jsonl", "policy.max_model_len=1024", "learner.deepspeed=absent"]
    assert offline.main([*command, *changed, "--dry-run"]) == 0
    shown = capsys.readouterr().out.split("# missing\n")[1]
    for part in (
        "absent.jsonl: got no such file",
        "run `pip install 'trl==",
        "the model's context of 512",
        "wanted zero2, zero3 or a file",
        "got learner.batch_size=4 for 3 processes",
    ):
        assert part in shown


def test_a_base_model_without_a_chat_template_is_refused_before_anything_is_written(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    assert offline.main(command) == 2
    assert "without a chat template, wanted one: set policy.chat_template" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "runs").exists()


def test_a_missing_trl_is_refused_with_what_to_install(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_plan, "find_spec", lambda name: None)
    assert offline.main(command) == 2
    assert "got no package 'trl'" in capsys.readouterr().err


def test_the_word_pairs_goes_to_the_command_that_makes_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[str]] = []
    module = types.ModuleType("drivers.offline_pairs")
    module.main = lambda argv: given.append(argv) or 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "drivers.offline_pairs", module)
    assert offline.main(["pairs", "build", "--out", "x"]) == 7
    assert given == [["build", "--out", "x"]]
