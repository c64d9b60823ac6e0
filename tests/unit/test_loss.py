"""The loss by hand-computed numbers."""

import math

import pytest
import torch

from core.config import LearnerConfig
from core.loss import LossInputs, LossSums, grpo_loss, k3, token_mean, truncated_is_weights
from core.mismatch import mismatch_metrics, mismatch_sums

CONFIG = LearnerConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0, kl_coef=0.1)


def one_token(ratio: float, advantage: float, **changes: torch.Tensor) -> LossSums:
    learner = torch.tensor([math.log(ratio)], requires_grad=True)
    values = {
        "learner_logprobs": learner,
        "old_logprobs": torch.zeros(1),
        "advantages": torch.tensor([advantage]),
        "loss_mask": torch.ones(1, dtype=torch.bool),
    }
    return grpo_loss(LossInputs(**{**values, **changes}), CONFIG)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "is_clipped", "is_lower"),
    [
        (1.0, 2.0, -2.0, 0, 0),
        (1.5, 2.0, -2.56, 1, 0),  # above 1 + clip_high with A > 0: -A * 1.28
        (0.5, 2.0, -1.0, 0, 0),  # below 1 - clip_low with A > 0: not clipped
        (0.5, -2.0, 1.6, 1, 0),  # below 1 - clip_low with A < 0: -A * 0.8
        (1.5, -2.0, 3.0, 0, 0),  # above with A < 0: not clipped
        (5.0, -2.0, 6.0, 0, 1),  # dual clip: -A * 3
        (1.5, 0.0, 0.0, 0, 0),
    ],
)
def test_surrogate_is_clipped_on_the_side_that_the_advantage_names(
    ratio: float, advantage: float, loss: float, is_clipped: int, is_lower: int
) -> None:
    sums = one_token(ratio, advantage)
    assert sums.pg_loss.item() == pytest.approx(loss, rel=1e-5)
    assert sums.clipped.item() == is_clipped
    assert sums.clipped_lower.item() == is_lower
    assert sums.ppo_kl.item() == pytest.approx(-math.log(ratio), abs=1e-6)


def test_gradient_is_minus_advantage_times_ratio_and_zero_where_clipped() -> None:
    for ratio, advantage, gradient in [(1.1, 2.0, -2.2), (1.5, 2.0, 0.0), (5.0, -2.0, 0.0)]:
        learner = torch.tensor([math.log(ratio)], requires_grad=True)
        one_token(ratio, advantage, learner_logprobs=learner).loss.backward()
        assert learner.grad is not None
        assert learner.grad.item() == pytest.approx(gradient, abs=1e-5)


def test_k3_is_exp_d_minus_d_minus_1() -> None:
    values = k3(torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.5, -1.0, -1.0]))
    expected = [math.exp(-0.5) + 0.5 - 1, math.e - 1 - 1, 0.0]
    assert values.tolist() == pytest.approx(expected, rel=1e-5)


def test_kl_is_added_with_its_coefficient_also_where_the_advantage_is_zero() -> None:
    sums = one_token(1.0, 0.0, ref_logprobs=torch.tensor([-0.5]))
    kl = math.exp(-0.5) + 0.5 - 1
    assert sums.kl_loss.item() == pytest.approx(kl, rel=1e-5)
    assert sums.loss.item() == pytest.approx(0.1 * kl, rel=1e-5)


def test_importance_weight_is_truncated_and_multiplies_the_surrogate() -> None:
    weights = truncated_is_weights(
        torch.tensor([0.0, 0.0, 0.0]), torch.tensor([math.log(2 / 3), math.log(0.1), 1.0]), 2.0
    )
    assert weights.tolist() == pytest.approx([1.5, 2.0, math.exp(-1.0)], rel=1e-5)
    assert one_token(1.0, 2.0, is_weights=weights[:1]).pg_loss.item() == pytest.approx(-3.0)


def test_masked_tokens_are_in_no_sum_and_their_nan_reaches_no_gradient() -> None:
    learner = torch.tensor([0.0, float("nan")], requires_grad=True)
    sums = grpo_loss(
        LossInputs(
            learner_logprobs=learner,
            old_logprobs=torch.tensor([0.0, float("inf")]),
            advantages=torch.tensor([1.0, 5.0]),
            loss_mask=torch.tensor([True, False]),
            ref_logprobs=torch.tensor([0.0, float("nan")]),
        ),
        CONFIG,
    )
    sums.loss.backward()
    assert sums.loss.item() == -1.0
    assert sums.num_tokens.item() == 1
    assert learner.grad is not None
    assert learner.grad.tolist() == [-1.0, 0.0]


def test_an_empty_batch_has_loss_exactly_zero_and_finite_gradients() -> None:
    learner = torch.zeros(4, requires_grad=True)
    sums = grpo_loss(
        LossInputs(
            learner_logprobs=learner,
            old_logprobs=torch.zeros(4),
            advantages=torch.ones(4),
            loss_mask=torch.zeros(4, dtype=torch.bool),
        ),
        CONFIG,
    )
    loss = token_mean(sums.loss, int(sums.num_tokens))
    loss.backward()
    assert loss.item() == 0.0
    assert learner.grad is not None
    assert learner.grad.tolist() == [0.0] * 4


def test_leaving_out_two_of_four_with_token_loss_1_gives_1() -> None:
    mask = torch.tensor([True] * 8 + [False] * 8 + [True] * 8 + [False] * 8)
    sums = grpo_loss(
        LossInputs(
            learner_logprobs=torch.zeros(32, requires_grad=True),
            old_logprobs=torch.zeros(32),
            advantages=-torch.ones(32),
            loss_mask=mask,
        ),
        CONFIG,
    )
    assert token_mean(sums.loss, int(sums.num_tokens)).item() == 1.0


def test_huge_log_ratios_stay_finite() -> None:
    sums = one_token(1.0, -1.0, old_logprobs=torch.tensor([-1000.0]))
    assert sums.loss.item() == pytest.approx(3.0)


def test_mismatch_metrics_by_hand() -> None:
    learner, rollout = (
        torch.log(torch.tensor([0.5, 0.2, 0.9])),
        torch.log(torch.tensor([0.4, 0.4, 0.1])),
    )
    mask = torch.tensor([True, True, False])
    weights = torch.tensor([1.25, 0.5, 9.0])
    metrics = mismatch_metrics(mismatch_sums(learner, rollout, mask, weights))
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(0.15, rel=1e-4)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(0.2, rel=1e-4)
    assert metrics["training/rollout_probs_diff_std"] == pytest.approx(0.05, rel=1e-3)
    assert metrics["rollout_corr/kl"] == pytest.approx(
        (math.log(0.8) + math.log(2.0)) / 2, rel=1e-4
    )
    # exp(d) - d - 1 with d = learner - rollout: ratios 1.25 and 0.5
    wanted = (1.25 - math.log(1.25) - 1 + 0.5 - math.log(0.5) - 1) / 2
    assert metrics["rollout_corr/k3_kl"] == pytest.approx(wanted, rel=1e-4)
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(0.875)
    assert metrics["rollout_corr/rollout_is_max"] == 1.25
    assert metrics["rollout_corr/rollout_is_eff_sample_size"] == pytest.approx(
        1.75**2 / (2 * (1.25**2 + 0.25))
    )
