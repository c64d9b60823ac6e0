"""SFT and DPO by TRL on a tiny policy: two epochs of two steps, stopped or killed, gone on with.

In this process, since loading torch and TRL takes longer than all the steps. The unstopped run of
each method is what a resumed one must repeat to the last digit: same rows in the same order, same
optimizer state, same learning rate.
"""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.offline_rows import Demonstration
from drivers import offline, offline_recorder
from drivers.config_file import load_offline_config
from drivers.offline_data import load_offline_data
from drivers.offline_signals import StopSignals
from tests.tiny_policy import write_tiny_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
LR = 0.01
Row = dict[str, Any]


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it is done."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_policy(tmp_path_factory.mktemp("model"))


def words(first: int, number: int) -> str:
    return " ".join(f"w{(first + i) % 290 + 3}" for i in range(number))


def command(folder: Path, model: str, method: str, name: str) -> list[str]:
    """A run of 8 rows and 2 held-out ones in steps of 4."""
    rows = [{"prompt": words(7 * i, 3), "response": words(11 * i, 4 + i)} for i in range(10)]
    pairs = [
        {"prompt": r["prompt"], "chosen": r["response"], "rejected": words(5 * i, 3 + i)}
        for i, r in enumerate(rows)
    ]
    data = folder / f"{method}.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in (rows if method == "sft" else pairs)))
    recipe = {"sft": "sft_scripts", "dpo": "dpo_rlcf"}[method]
    return [
        *("--config", recipe, f"name={name}", f"runs_dir={folder / 'runs'}"),
        *(f"data.train={data}", "data.val_frac=0.2"),
        *(f"policy.model={model}", f"policy.chat_template={TEMPLATE}", "policy.max_model_len=64"),
        *("learner.deepspeed=null", "learner.bf16=false", "learner.gradient_checkpointing=false"),
        *(f"learner.lr={LR}", "learner.warmup_frac=0", "learner.min_lr_frac=0.5"),
        *("learner.batch_size=4", "learner.micro_batch_size=2", "loop.epochs=2"),
    ]


def lines(folder: Path, name: str) -> list[Row]:
    return [json.loads(x) for x in (folder / "runs" / name / "metrics.jsonl").open()]


def figures(rows: list[Row]) -> list[Row]:
    """What does not depend on the clock."""
    return [{k: v for k, v in r.items() if k not in ("time", "timing_s/step")} for r in rows]


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    policy = AutoModelForCausalLM.from_pretrained(folder / "runs" / name / "policy")
    return policy.state_dict()


def response_loss(model: str, folder: Path) -> float:
    """Mean loss over the tokens of the held-out responses and of the ends of their turns."""
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)
    config = load_offline_config("sft_scripts", command(folder, model, "sft", "x")[2:])
    losses: list[torch.Tensor] = []
    for example in load_offline_data(config).val:
        assert isinstance(example, Demonstration)
        asked = f"user {example.prompt[0].content} <eos> assistant "
        prompt, answer = (tokenizer(t)["input_ids"] for t in (asked, f"{example.response} <eos>"))
        with torch.no_grad():
            logits = policy(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        losses += [*cross_entropy(logits, torch.tensor(answer), reduction="none")]
    return float(torch.stack(losses).mean())


def assert_same_weights(folder: Path, one: str, other: str) -> None:
    first, second = weights(folder, one), weights(folder, other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_sft_is_stopped_by_a_signal_amid_an_epoch_and_ends_as_if_it_had_not_been(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offline.main(command(tmp_path, model, "sft", "whole")) == 0
    whole = lines(tmp_path, "whole")
    assert [row["step"] for row in whole] == [0, 1, 2, 3, 4]
    assert ["val/loss" in row for row in whole] == [True, False, True, False, True]
    assert whole[0]["val/loss"] == pytest.approx(response_loss(model, tmp_path), rel=1e-4)
    assert whole[-1]["loss"] < whole[1]["loss"]
    rates = [LR * (0.5 + 0.25 * (1 + math.cos(math.pi * s / 4))) for s in range(4)]
    assert [row["actor/lr"] for row in whole[1:]] == pytest.approx(rates)

    with monkeypatch.context() as patch:
        patch.setattr(StopSignals, "agreed", lambda self: signal.SIGTERM)
        assert offline.main(command(tmp_path, model, "sft", "cut")) == 128 + signal.SIGTERM
    run = tmp_path / "runs" / "cut"
    assert [row["step"] for row in lines(tmp_path, "cut")] == [0, 1]
    assert not (run / "policy").exists()
    assert offline.main(command(tmp_path, model, "sft", "cut")) == 0
    assert figures(lines(tmp_path, "cut")) == figures(whole)
    assert_same_weights(tmp_path, "cut", "whole")

    summary = json.loads((run / "summary.json").read_bytes())
    assert (summary["method"], summary["steps"], summary["resumed"]) == ("sft", 4, True)
    assert (summary["num_train"], summary["num_val"], summary["num_at_limit"]) == (8, 2, 0)
    assert summary["val_loss_last"] == whole[-1]["val/loss"]
    assert_a_policy(run / "policy", model)


def test_dpo_is_killed_while_it_writes_a_checkpoint_and_goes_on_from_the_one_before(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert offline.main(command(tmp_path, model, "dpo", "whole")) == 0
    whole = lines(tmp_path, "whole")
    assert whole[0]["val/loss"] == pytest.approx(math.log(2))  # policy and reference are the same
    assert whole[1]["loss"] == pytest.approx(math.log(2))
    assert whole[-1]["rewards/margins"] > 0
    assert whole[-1]["val/loss"] != whole[0]["val/loss"]

    mark = offline_recorder.mark_whole

    def killed(folder: Path, step: int, wall_s: float, fingerprint: str) -> None:
        if step == 4:
            raise Killed
        mark(folder, step, wall_s, fingerprint)

    with monkeypatch.context() as patch:
        patch.setattr(offline_recorder, "mark_whole", killed)
        with pytest.raises(Killed):
            offline.main(command(tmp_path, model, "dpo", "cut"))
    assert [row["step"] for row in lines(tmp_path, "cut")] == [0, 1, 2, 3, 4]
    assert offline.main(command(tmp_path, model, "dpo", "cut")) == 0
    assert figures(lines(tmp_path, "cut")) == figures(whole)
    assert_same_weights(tmp_path, "cut", "whole")

    before = (tmp_path / "runs" / "cut" / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert offline.main(command(tmp_path, model, "dpo", "cut")) == 0
    assert "is finished" in capsys.readouterr().out
    assert (tmp_path / "runs" / "cut" / "metrics.jsonl").read_bytes() == before


def assert_a_policy(folder: Path, model: str) -> None:
    """The folder has bf16 weights that moved, the template, and an end of the template's turns."""
    config = json.loads((folder / "config.json").read_bytes())
    assert config["dtype"] == "bfloat16"
    policy = AutoModelForCausalLM.from_pretrained(folder)
    before = AutoModelForCausalLM.from_pretrained(model)
    assert not torch.equal(
        policy.get_input_embeddings().weight.float(), before.get_input_embeddings().weight.float()
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == TEMPLATE
    ends = policy.generation_config.eos_token_id
    assert tokenizer.eos_token_id in (ends if isinstance(ends, list) else [ends])
