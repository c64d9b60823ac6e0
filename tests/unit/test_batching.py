"""Batches, micro-batches, packed rows and log-probs against plain references."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from actors.policy_model import PolicyModel, load_policy
from core.batching import (
    early_passes,
    following_pass,
    mini_batches,
    num_response_tokens,
    num_row_tokens,
    rank_micro_batches,
    train_batch,
)
from core.config import LearnerConfig, PolicyConfig
from core.deepspeed_config import deepspeed_config, learning_rate
from core.logprobs import chunked_logprobs
from core.packing import pack_row
from core.query import Message, Query
from core.records import (
    Draw,
    GradedRollout,
    Rollout,
    ScoredGroup,
    ScoredRollout,
    TrainBatch,
    TrainingSample,
)
from core.rubric import Criterion, Rubric
from tests.tiny_policy import tiny_batch, tiny_samples, write_tiny_policy

RUBRIC = Rubric(criteria=(Criterion(id="c1", text="is short"),))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_policy(tmp_path_factory.mktemp("tiny"))


def scored(
    index: int, reward: float | None, advantage: float, tokens: int = 2, *, is_cut: bool = False
) -> ScoredRollout:
    rollout = Rollout(
        query_id="q",
        visit=0,
        index=index,
        response="text",
        finish_reason="length" if is_cut else "stop",
        prompt_token_ids=(5, 6),
        token_ids=tuple(range(tokens)),
        rollout_logprobs=(-1.0,) * tokens,
        policy_version_first=0,
        policy_version_last=0,
    )
    graded = GradedRollout(rollout=rollout, verdicts={})
    return ScoredRollout(graded=graded, reward=reward, is_vetoed=False, advantage=advantage)


def group(position: int, *rollouts: ScoredRollout, is_masked: bool = False) -> ScoredGroup:
    query = Query(id="q", messages=(Message(role="user", content="hello"),), rubric=RUBRIC)
    draw = Draw(query_id="q", step=1, position=position, visit=0)
    return ScoredGroup(
        draw=draw, query=query, rubric=RUBRIC, rollouts=rollouts, is_masked=is_masked
    )


def test_batch_keeps_draw_order_and_leaves_out_ungraded_rollouts_and_masked_groups() -> None:
    groups = [
        group(2, scored(0, 1.0, 0.7), scored(1, None, 0.0), scored(2, 0.0, -0.7)),
        group(0, scored(0, None, 0.0), scored(1, 1.0, 0.0), is_masked=True),
        group(1, scored(0, 0.5, 0.0), scored(1, 0.5, 0.0), scored(2, 0.5, 0.0, tokens=0)),
    ]
    batch = train_batch(3, groups, is_off_policy=False, drop_flat_groups=False)
    assert [[s.index for s in samples] for samples in batch.groups] == [[], [0, 1], [0, 2]]
    assert [s.advantage for s in batch.groups[2]] == [0.7, -0.7]
    dropped = train_batch(3, groups, is_off_policy=True, drop_flat_groups=True)
    assert [len(samples) for samples in dropped.groups] == [0, 0, 2]
    assert dropped.is_off_policy


def test_truncated_rollouts_train_unless_they_are_to_be_left_out() -> None:
    groups = [
        group(0, scored(0, 1.0, 0.7), scored(1, 0.0, -0.7, is_cut=True)),
        group(1, scored(0, 1.0, 0.7, is_cut=True), scored(1, 0.0, -0.7, is_cut=True)),
    ]
    for is_dropped, wanted in ((False, [[0, 1], [0, 1]]), (True, [[0], []])):
        batch = train_batch(
            1,
            groups,
            is_off_policy=False,
            drop_flat_groups=False,
            drop_truncated=is_dropped,
        )
        assert [[s.index for s in samples] for samples in batch.groups] == wanted


def test_groups_train_early_where_the_late_ones_of_their_mini_batch_are_sure_to_train() -> None:
    pair = (scored(0, 1.0, 0.7), scored(1, 0.0, -0.7, tokens=5))
    groups = {p: group(p, *pair) for p in range(4)}
    early = early_passes(
        6, {p: groups[p] for p in (0, 2, 3)}, {1: groups[1]}, is_off_policy=True, num_mini_batches=2
    )
    assert early is not None
    assert [len(samples) for samples in early.batch.groups] == [2, 0, 0, 0]
    assert early.num_tokens == 2 * (2 + 5)
    assert (early.batch.step, early.batch.is_off_policy) == (6, True)


def test_late_groups_follow_one_by_one_the_shortest_first_and_the_last_stays_for_the_step() -> None:
    def sized(position: int, tokens: int) -> ScoredGroup:
        return group(position, scored(0, 1.0, 0.7), scored(1, 0.0, -0.7, tokens=tokens))

    late = {1: sized(1, 9), 2: sized(2, 3), 3: sized(3, 5)}
    ready = {0: sized(0, 2)}
    early = early_passes(6, ready, late, is_off_policy=True, num_mini_batches=1)
    assert early is not None
    assert early.following == (2, 3)
    part = following_pass(early, 2, late[2])
    assert [len(samples) for samples in part.batch.groups] == [0, 0, 2, 0]
    assert part.num_tokens == early.num_tokens == 4 * 2 + 2 + 9 + 3 + 5
    assert part.following == ()


@pytest.mark.parametrize(
    ("late", "number"),
    [([], 1), ([0, 1], 2), ([2], 2), ([0, 1, 2, 3], 1)],
    ids=["none is late", "a mini-batch is all late", "a later mini-batch", "all are late"],
)
def test_nothing_trains_early_where_no_group_could_wait_for_another(
    late: list[int], number: int
) -> None:
    groups = {p: group(p, scored(0, 1.0, 0.7), scored(1, 0.0, -0.7)) for p in range(4)}
    ready = {p: g for p, g in groups.items() if p not in late}
    late_groups = {p: groups[p] for p in late}
    assert early_passes(1, ready, late_groups, is_off_policy=False, num_mini_batches=number) is None


def test_a_late_group_with_an_ungraded_rollout_lets_nothing_train_early() -> None:
    """Its edit could give that rollout a reward, and the denominator another value."""
    whole = group(0, scored(0, 1.0, 0.7), scored(1, 0.0, -0.7))
    torn = group(1, scored(0, 1.0, 0.7), scored(1, 0.0, -0.7), scored(2, None, 0.0))
    assert early_passes(1, {0: whole}, {1: torn}, is_off_policy=False, num_mini_batches=1) is None


def test_mini_batches_split_by_query_in_order_and_evenly() -> None:
    batch = tiny_batch(num_groups=5, group_size=2)
    parts = mini_batches(batch, 2)
    assert [sorted({s.query_id for s in part}) for part in parts] == [
        ["q0", "q1"],
        ["q2", "q3", "q4"],
    ]
    assert sum(len(part) for part in parts) == 10
    empty = TrainBatch(step=1, groups=((), ()), is_off_policy=False)
    assert mini_batches(empty, 2) == ((), ())


def sized(index: int, size: int, *, prompt: int = 1) -> TrainingSample:
    return TrainingSample(
        query_id="q",
        index=index,
        prompt_token_ids=(prompt,),
        token_ids=(2,) * (size - 1),
        rollout_logprobs=(0.0,) * (size - 1),
        advantage=0.0,
    )


def test_packing_is_first_fit_decreasing_and_gives_a_long_sample_a_row_alone() -> None:
    samples = tuple(sized(i, n, prompt=i) for i, n in enumerate([3, 6, 4, 12, 5, 2]))
    (packed,) = rank_micro_batches(samples, world_size=1, token_budget=10)
    assert [[s.index for s in part] for part in packed] == [[3], [1, 2], [4, 0, 5]]


def test_samples_of_one_prompt_share_a_row_and_its_tokens_count_once() -> None:
    """Five samples of two tokens and a prompt of one are a row of eleven tokens, not of fifteen."""
    group = tuple(sized(i, 3) for i in range(5))
    (packed,) = rank_micro_batches(group, world_size=1, token_budget=11)
    assert packed == (group,)
    assert num_row_tokens(group) == pack_row(group).input_ids.shape[0] == 11
    (packed,) = rank_micro_batches(group, world_size=1, token_budget=10)
    assert [num_row_tokens(row) for row in packed] == [9, 3]


def test_a_row_holds_no_more_sequences_than_attention_can_lay_out() -> None:
    """Forty samples of a token and a prompt of 99 are a row of 139 tokens and a grid of 4,000."""
    samples = [sized(i, 2) for i in range(40)]
    group = tuple(replace(sample, prompt_token_ids=(1,) * 99) for sample in samples)
    (packed,) = rank_micro_batches(group, world_size=1, token_budget=200)
    assert [len(row) for row in packed] == [8] * 5


def test_the_samples_of_few_prompts_are_spread_evenly_over_ranks() -> None:
    samples = tuple(sized(i, 20, prompt=i // 24) for i in range(48))
    shares = rank_micro_batches(samples, world_size=4, token_budget=10_000)
    loads = [sum(num_row_tokens(row) for row in share) for share in shares]
    assert max(loads) <= 1.1 * sum(loads) / 4


def test_ranks_do_the_same_number_of_micro_batches_and_lose_no_sample() -> None:
    samples = tuple(sample for part in tiny_samples(4, 4) for sample in part)
    for world_size in (1, 2, 3):
        shares = rank_micro_batches(samples, world_size=world_size, token_budget=30)
        assert len({len(share) for share in shares}) == 1
        seen = [s for share in shares for micro in share for s in micro]
        assert sorted((s.query_id, s.index) for s in seen) == sorted(
            (s.query_id, s.index) for s in samples
        )
        assert all(num_row_tokens(micro) <= 30 for share in shares for micro in share)
    assert rank_micro_batches(samples[:1], world_size=2, token_budget=30) == (
        ((samples[0],),),
        ((),),
    )


def test_mask_comes_from_lengths_so_an_eos_that_is_the_padding_token_trains() -> None:
    eos = 1
    sample = TrainingSample(
        query_id="q",
        index=0,
        prompt_token_ids=(7, eos),
        token_ids=(3, 4, eos),
        rollout_logprobs=(-1.0, -2.0, -3.0),
        advantage=0.5,
    )
    row = pack_row([sized(0, 2), sample])
    assert row.targets.tolist() == [2, 3, 4, eos]
    assert row.predicts.tolist() == [0, 3, 4, 5]
    assert row.position_ids.tolist() == [0, 1, 0, 1, 2, 3, 4]
    assert row.sources.tolist() == [0, 1, 1, 1, 1, 2, 3, 4, 5, 6]
    assert row.slots.tolist() == [0, 1, 5, 6, 7, 8, 9]
    assert row.loss_mask.all()
    assert row.advantages.tolist() == [0.0, 0.5, 0.5, 0.5]
    assert num_response_tokens([sized(0, 2), sample]) == 4


def test_a_prompt_that_samples_share_stands_in_the_row_once() -> None:
    row = pack_row([sized(0, 3), sized(1, 2), sized(2, 2, prompt=9)])
    assert row.input_ids.tolist() == [1, 2, 2, 2, 9, 2]
    assert row.position_ids.tolist() == [0, 1, 2, 1, 0, 1]
    assert row.sources.tolist() == [0, 1, 2, 0, 3, 3, 4, 5, 5]
    assert row.slots.tolist() == [0, 1, 2, 4, 6, 7]
    assert row.predicts.tolist() == [0, 1, 0, 4]


def test_an_empty_micro_batch_is_one_masked_token() -> None:
    row = pack_row([])
    assert row.loss_mask.tolist() == [False]
    assert row.input_ids.shape == (1,)


def full_logprobs(hidden: Tensor, targets: Tensor, head: nn.Linear, temperature: float) -> Tensor:
    rows = torch.log_softmax(head(hidden) / temperature, dim=-1)
    return rows.gather(-1, targets[:, None])[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk", [4, 1000])
def test_chunked_logprobs_equal_the_full_matrix_in_value_and_gradient(
    temperature: float, chunk: int
) -> None:
    """Float32 on both sides, tolerance 1e-5."""
    torch.manual_seed(0)
    head = nn.Linear(8, 50, bias=False)
    hidden = torch.randn(11, 8, requires_grad=True)
    targets = torch.randint(0, 50, (11,))
    weights = torch.randn(11)
    result = chunked_logprobs(hidden, targets, head, temperature=temperature, chunk=chunk)
    (result.logprobs * weights).sum().backward()
    assert hidden.grad is not None
    assert head.weight.grad is not None
    got = [hidden.grad.clone(), head.weight.grad.clone()]
    hidden.grad = head.weight.grad = None
    expected = full_logprobs(hidden, targets, head, temperature)
    (expected * weights).sum().backward()
    torch.testing.assert_close(result.logprobs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[0], hidden.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[1], head.weight.grad, atol=1e-5, rtol=1e-5)
    probs = torch.softmax(head(hidden) / temperature, -1)
    entropy = -(probs * probs.log()).sum(-1)
    torch.testing.assert_close(result.entropy, entropy, atol=1e-5, rtol=1e-5)
    assert not result.entropy.requires_grad


def tiny_model(folder: str, *, temperature: float = 0.7, use_bf16: bool = False) -> PolicyModel:
    learner = LearnerConfig(logprob_chunk=7, bf16=use_bf16)
    return load_policy(PolicyConfig(model=folder), learner, temperature)


def one_by_one(folder: str, sample: TrainingSample, temperature: float) -> tuple[Tensor, nn.Module]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[*sample.prompt_token_ids, *sample.token_ids]])
    logits = model(input_ids=ids).logits[0, len(sample.prompt_token_ids) - 1 : -1]
    rows = torch.log_softmax(logits / temperature, -1)
    return rows.gather(-1, torch.tensor(sample.token_ids)[:, None])[:, 0], model


def test_a_packed_row_gives_what_each_sequence_gives_alone(tiny: str) -> None:
    """No sequence sees another, also of the same prompt: values and gradients in float32."""
    samples = [sample for group in tiny_samples(2, 3) for sample in group]
    model = tiny_model(tiny)
    logprobs, _ = model(pack_row(samples))
    alone = [one_by_one(tiny, sample, 0.7) for sample in samples]
    expected = torch.cat([values for values, _ in alone])
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    logprobs.sum().backward()
    expected.sum().backward()
    for name, param in model.model.named_parameters():
        total = sum(reference.get_parameter(name).grad for _, reference in alone)
        torch.testing.assert_close(param.grad, total, atol=1e-4, rtol=1e-4, msg=name)


def test_bf16_autocast_stays_near_float32_and_keeps_float32_gradients(tiny: str) -> None:
    samples = tiny_samples(1, 4)[0]
    model = tiny_model(tiny, use_bf16=True)
    logprobs, _ = model(pack_row(samples))
    exact, _ = tiny_model(tiny)(pack_row(samples))
    assert logprobs.dtype == torch.float32
    assert (logprobs - exact).abs().mean() < 0.1
    logprobs.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


def test_an_empty_row_runs_forward_and_backward_through_every_parameter(tiny: str) -> None:
    model = tiny_model(tiny)
    logprobs, _ = model(pack_row([]))
    (logprobs * 0.0).sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_learning_rate_warms_up_linearly_then_stays() -> None:
    learner = LearnerConfig(lr=1e-3, warmup_steps=4)
    assert [learning_rate(step, learner) for step in (1, 2, 4, 9)] == pytest.approx(
        [2.5e-4, 5e-4, 1e-3, 1e-3]
    )
    assert learning_rate(1, LearnerConfig(lr=1e-3)) == 1e-3


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_deepspeed_config_names_the_stage_and_clips_only_under_zero(stage: int) -> None:
    config = deepspeed_config(LearnerConfig(zero_stage=stage, max_grad_norm=0.5))
    assert config["zero_optimization"]["stage"] == stage
    assert config["gradient_clipping"] == (0.0 if stage == 0 else 0.5)


def test_a_model_whose_logits_are_changed_after_the_head_is_refused(tmp_path: Path) -> None:
    folder = Path(write_tiny_policy(tmp_path))
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("{", '{"final_logit_softcapping": 30.0,', 1))
    with pytest.raises(ValueError, match=r"final_logit_softcapping=30\.0"):
        tiny_model(str(folder))
