"""The learner's benchmark: its batch, TRL's form of it, and the GPU script on tiny shapes."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from drivers.bench import learner
from drivers.bench.learner_data import BatchSetup, response_lengths, standardised
from drivers.bench.learner_gpu import (
    TINY,
    build_policy,
    chunked_logprobs,
    matmul_peak,
    measure_shape,
    naive_logprobs,
    packed_row,
)
from drivers.bench.learner_trl import padded_batch
from tests.tiny_policy import tiny_samples

ROOT = Path(__file__).parents[2]


def test_response_lengths_have_a_long_tail_within_their_limits() -> None:
    setup = BatchSetup(model="none", group_size=4000, longest=192, seed=0)
    lengths = sorted(response_lengths(setup, random.Random(0)))
    assert lengths[0] == 8
    assert lengths[-1] == 192
    assert lengths[2000] == pytest.approx(64, abs=4)
    assert sum(lengths) / 4000 > 70


def test_advantages_are_standardised() -> None:
    values = standardised([1.0, 2.0, 6.0])
    assert sum(values) == pytest.approx(0.0, abs=1e-9)
    assert sum(value**2 for value in values) == pytest.approx(3.0)


def test_trl_gets_prompts_on_the_right_and_responses_on_the_left_of_their_grids() -> None:
    samples = tiny_samples(2, 3)[1]
    batch = padded_batch(samples, pad_token_id=1)
    for row, sample in enumerate(samples):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        response = batch["completion_ids"][row][batch["completion_mask"][row].bool()]
        assert prompt.tolist() == list(sample.prompt_token_ids)
        assert response.tolist() == list(sample.token_ids)
        assert batch["prompt_ids"][row, -1] == sample.prompt_token_ids[-1]
        assert batch["completion_ids"][row, 0] == sample.token_ids[0]
    assert batch["num_items_in_batch"] == sum(len(sample.token_ids) for sample in samples)


def test_the_gpu_script_gives_figures_for_both_ways_and_both_ways_agree() -> None:
    shape = measure_shape(TINY, "cpu", matmul_peak("cpu", 64), num_steps=1)
    assert set(shape["modes"]) == {"chunked", "naive"}
    assert all(figures["tokens_per_s"] > 0 for figures in shape["modes"].values())
    assert len(learner.rows({"shapes": [shape]})) == 6
    policy, row = build_policy(TINY, torch.device("cpu")), packed_row(TINY)
    policy.use_bf16 = False
    torch.testing.assert_close(chunked_logprobs(policy, row), naive_logprobs(policy, row))


def test_a_miss_shows_in_the_table() -> None:
    result = {
        "train_tokens_per_s": 300.0,
        "trl_train_tokens_per_s": 100.0,
        "train_tokens_per_s_ratio": 3.0,
        "peak_memory_ratio": 0.7,
        "peak_memory_ratio_both_checkpointing": 0.7,
        "gradient_error": {
            "float32": 1e-5,
            "bf16": 0.04,
            "plain_bf16": 0.04,
            "float32_tolerance": 1e-4,
            "bf16_factor": 1.5,
        },
    }
    assert [row.is_met for row in learner.rows(result)] == [
        None,
        None,
        True,
        False,
        None,
        True,
        True,
    ]


def test_the_gpu_script_needs_torch_and_transformers_only() -> None:
    """Everything else that the project installs is refused while the script is imported."""
    refused = "ray deepspeed vllm trl accelerate pydantic psutil yaml httpx openai fastapi"
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused.split()!r} and not asked_by_libraries():
            raise ImportError("refused: " + name)
def asked_by_libraries():
    frame = sys._getframe()
    while frame is not None:
        if "site-packages" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
sys.meta_path.insert(0, Refuse())
from drivers.bench.command import load_part
import drivers.bench.learner_gpu
assert load_part("learner").name == "learner"
loaded = sorted(set({refused.split()!r}[:4]) & set(sys.modules))
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
