"""PolicyLearner: one DeepSpeed rank that updates the policy. Passive: it answers calls.

Every rank gets the whole batch and works out its own share, so all ranks of a call do the same
number of forward, backward and optimizer steps and meet in the same collectives.
Rule for "old" log-probs: with on-policy batches they are the rollout's, for every mini-batch; with
off-policy batches the learner's own before the first optimizer step (proximal), and the surrogate
is weighted by ``min(exp(proximal - rollout), is_clamp)``. The first mini-batch's proximal log-probs
are those of its own pass, later ones need a pass before.
A loss or gradient norm that is not finite stops the run on all ranks before the optimizer steps.
"""

import logging
import math
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import ray
import torch
import torch.distributed as dist
from torch import Tensor

from actors.cpu_memory import keep_freed_memory
from actors.learner_engine import apply_gradients, build_engine, join_ranks, set_learning_rate
from actors.learner_state import export_folder, load_state, save_state
from actors.perturbation import Perturbation
from actors.policy_model import load_policy, load_reference
from actors.rank_reduce import gathered_if_any, summed
from actors.step_tally import BegunStep, StepTally
from actors.weights import publish_file, publish_objects
from core.batching import (
    EarlyPasses,
    MiniBatch,
    mini_batches,
    num_response_tokens,
    num_tokens,
    without_groups,
)
from core.batching import rank_micro_batches as split_by_rank
from core.config import LearnerConfig, PolicyConfig
from core.deepspeed_config import learning_rate
from core.errors import RunStopped
from core.loss import LossInputs, grpo_loss, token_mean, truncated_is_weights
from core.mismatch import MAXIMA, mismatch_metrics
from core.packing import PackedRow, pack_row
from core.records import StepReport, TrainBatch, TrainingSample, WeightUpdate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSetup:
    """What one rank is built from."""

    rank: int
    world_size: int
    master: tuple[str, int]
    """Address and port where the ranks meet."""
    learner: LearnerConfig
    policy: PolicyConfig
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """One packed row of this rank with what a pass before the update gave it."""

    row: PackedRow
    query_ids: tuple[str, ...]
    is_off_policy: bool
    proximal_logprobs: Tensor | None = None
    """[T]; None on policy, and where the update's own pass gives them."""


class PolicyLearner:
    """One rank of the learner; ``setup`` first, then any of the calls, on all ranks alike."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0
        self._perturbation = Perturbation()
        self._begun: BegunStep | None = None
        self._unfinished: int | None = None
        """Step whose gradients are added up and not yet applied."""

    def __repr__(self) -> str:
        return f"PolicyLearner rank {self.rank} (step {self.step})"

    def address(self) -> tuple[str, int]:
        """This host's address and a port that is free on it now."""
        with socket.socket() as listener:
            listener.bind(("", 0))
            return ray.util.get_node_ip_address(), listener.getsockname()[1]

    def setup(self, setup: RankSetup) -> None:
        """Join the other ranks and load the policy."""
        self.learner, self.policy = setup.learner, setup.policy
        self.world_size = setup.world_size
        random.seed(setup.seed)
        np.random.seed(setup.seed % 2**32)
        torch.manual_seed(setup.seed)
        # Not what the machine has: a GPU that was not reserved belongs to somebody else.
        on_gpu = setup.learner.num_gpus > 0
        timeout_s = setup.learner.timeout_s
        join_ranks(setup.rank, setup.world_size, setup.master, timeout_s, on_gpu=on_gpu)
        self.device = torch.device("cuda" if on_gpu else "cpu")
        if not on_gpu:
            keep_freed_memory()
        reference = load_reference(setup.policy, setup.learner, setup.temperature)
        self.reference = None if reference is None else reference.to(self.device)
        self.engine: Any = build_engine(
            load_policy(setup.policy, setup.learner, setup.temperature), setup.learner
        )

    # ------------------------------------------------------------------ training
    def accumulate(self, early: EarlyPasses) -> None:
        """Do the passes of groups that are ready, in one or several parts of a step;
        ``train_step`` of the whole batch must follow."""
        start = time.perf_counter()
        batch, begun = early.batch, self._begun
        places = {place for place, group in enumerate(batch.groups) if group}
        if begun is None or begun.step != batch.step or places & begun.places:
            self._refuse_half_step(f"begin step {batch.step}")
            begun = BegunStep(step=batch.step, num_tokens=early.num_tokens)
        assert begun.num_tokens == early.num_tokens, "got another denominator"
        samples = tuple(sample for group in batch.groups for sample in group)
        micros = self._micro_batches(samples, is_off_policy=batch.is_off_policy, is_first=True)
        self._passes(batch.step, micros, early.num_tokens, begun.tally, is_last=False)
        begun.places |= places
        begun.seconds += time.perf_counter() - start
        self._begun = begun

    def train_step(self, batch: TrainBatch) -> StepReport:
        """Do one optimizer step a mini-batch that has samples."""
        start = time.perf_counter()
        begun = self._begun
        if begun is None or begun.step != batch.step:
            self._refuse_half_step(f"train step {batch.step}")
        self._begun = None
        set_learning_rate(self.engine, learning_rate(batch.step, self.learner))
        number = self.learner.mini_batches
        rest = batch if begun is None else without_groups(batch, begun.places)
        pairs = zip(mini_batches(batch, number), mini_batches(rest, number), strict=True)
        parts = [(samples, left) for samples, left in pairs if samples]
        if begun is not None:
            assert begun.num_tokens == num_response_tokens(parts[0][0]), "got other tokens"
        prepared = [
            self._micro_batches(left, is_off_policy=batch.is_off_policy, is_first=index == 0)
            for index, (_, left) in enumerate(parts)
        ]
        tally, norms = StepTally() if begun is None else begun.tally, list[float]()
        for index, ((samples, _), micros) in enumerate(zip(parts, prepared, strict=True)):
            is_measured = index == 0 or batch.is_off_policy
            norms.append(self._update(batch.step, samples, micros, tally, is_measured=is_measured))
        self.step = batch.step
        metrics = self._metrics(batch, tally, norms)
        seconds = time.perf_counter() - start + (begun.seconds if begun is not None else 0.0)
        return StepReport(
            step=batch.step,
            policy_version=batch.step,
            metrics=metrics | {"timing_s/update_actor": seconds},
            seconds=seconds,
        )

    def _micro_batches(
        self, samples: MiniBatch, *, is_off_policy: bool, is_first: bool
    ) -> list[MicroBatch]:
        """This rank's share; ``is_first``: no optimizer step comes before these samples' pass."""
        needs_pass = is_off_policy and not is_first
        shares = split_by_rank(
            samples, world_size=self.world_size, token_budget=self.learner.token_budget
        )
        micros: list[MicroBatch] = []
        for share in shares[self.rank]:
            row = pack_row(share).to(self.device)
            micros.append(
                MicroBatch(
                    row=row,
                    query_ids=tuple(sample.query_id for sample in share),
                    is_off_policy=is_off_policy,
                    proximal_logprobs=self._logprobs(row) if needs_pass else None,
                )
            )
        return micros

    def _update(
        self,
        step: int,
        samples: MiniBatch,
        micros: Sequence[MicroBatch],
        tally: StepTally,
        *,
        is_measured: bool,
    ) -> float:
        """One optimizer step; returns the gradient norm."""
        total = num_response_tokens(samples)
        self._passes(step, micros, total, tally, is_last=True, is_measured=is_measured)
        norm = apply_gradients(self.engine, self.learner)
        self._unfinished = None
        query_ids = tuple(sample.query_id for sample in samples)
        self._stop_if_not_finite(norm, "gradient norm", step, query_ids)
        return norm

    def _passes(
        self,
        step: int,
        micros: Sequence[MicroBatch],
        num_tokens: int,
        tally: StepTally,
        *,
        is_last: bool,
        is_measured: bool = True,
    ) -> None:
        """Add up the gradients of ``micros``; ``num_tokens`` is the whole mini-batch's."""
        self._unfinished = step
        for number, micro in enumerate(micros):
            is_boundary = is_last and number == len(micros) - 1
            self.engine.set_gradient_accumulation_boundary(is_boundary and self._has_peers())
            logprobs, entropy = self.engine(micro.row)
            proximal = micro.proximal_logprobs
            if proximal is None and micro.is_off_policy:
                proximal = logprobs.detach()
            inputs = self._loss_inputs(micro.row, logprobs, proximal)
            sums = grpo_loss(inputs, self.learner)
            # DeepSpeed averages over ranks, the token mean adds up over them.
            loss = token_mean(sums.loss, num_tokens) * self.world_size
            self._stop_if_not_finite(float(loss.detach()), "loss", step, micro.query_ids)
            self.engine.backward(loss)
            tally.add_losses(sums, entropy, micro.row)
            if is_measured:
                tally.add_mismatch(micro.row, proximal, inputs)

    def _refuse_half_step(self, what: str) -> None:
        """Raise where gradients of a step that never ended would go into the next one; DeepSpeed
        keeps them in shards of its own, out of reach."""
        if self._unfinished is not None:
            raise RunStopped(
                f"got gradients of step {self._unfinished}, which was not finished, in "
                f"PolicyLearner rank {self.rank} that has to {what}, wanted none: start the run "
                "again, new ranks go on from its last checkpoint"
            )

    def _loss_inputs(self, row: PackedRow, logprobs: Tensor, proximal: Tensor | None) -> LossInputs:
        ref_logprobs = None
        if self.reference is not None:
            with torch.no_grad():
                ref_logprobs, _ = self.reference(row)
        is_weights = None
        if proximal is not None:
            is_weights = truncated_is_weights(proximal, row.rollout_logprobs, self.learner.is_clamp)
        return LossInputs(
            learner_logprobs=logprobs,
            old_logprobs=row.rollout_logprobs if proximal is None else proximal,
            advantages=row.advantages,
            loss_mask=row.loss_mask,
            is_weights=is_weights,
            ref_logprobs=ref_logprobs,
        )

    def _stop_if_not_finite(
        self, value: float, what: str, step: int, query_ids: Sequence[str]
    ) -> None:
        found = gathered_if_any(not math.isfinite(value), query_ids)
        if found is not None:
            raise RunStopped(
                f"got a {what} that is not finite at step {step} from queries {found}, wanted a "
                "number: no optimizer step was made; look at these rollouts and their log-probs, "
                "or lower learner.lr"
            )

    def _metrics(
        self, batch: TrainBatch, tally: StepTally, norms: Sequence[float]
    ) -> dict[str, float]:
        losses = summed(tally.losses)
        mismatch = summed(tally.mismatch, maxima=MAXIMA)
        samples = [sample for group in batch.groups for sample in group]
        metrics = {
            "actor/lr": learning_rate(batch.step, self.learner),
            "actor/empty_batches": 0.0 if samples else 1.0,
            "perf/total_num_tokens": float(sum(num_tokens(sample) for sample in samples)),
        }
        if not samples:
            logger.warning("step %d has no sample to train on: no optimizer step", batch.step)
            return metrics
        count = losses["num_tokens"]
        return (
            metrics
            | {
                "actor/pg_loss": losses["pg_loss"] / count,
                "actor/kl_loss": losses["kl_loss"] / count,
                "actor/ppo_kl": losses["ppo_kl"] / count,
                "actor/pg_clipfrac": losses["clipped"] / count,
                "actor/pg_clipfrac_lower": losses["clipped_lower"] / count,
                "actor/entropy": losses["entropy"] / count,
                "actor/grad_norm": sum(norms) / len(norms),
            }
            | mismatch_metrics(mismatch)
        )

    # ------------------------------------------------------------------ log-probs
    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Log-probs of each sample's response tokens, in order, the same on all ranks."""
        placed = tuple(replace(sample, index=place) for place, sample in enumerate(samples))
        shares = split_by_rank(
            placed, world_size=self.world_size, token_budget=self.learner.token_budget
        )
        mine: dict[int, list[float]] = {}
        for share in shares[self.rank]:
            values = self._logprobs(pack_row(share).to(self.device)).tolist()
            for sample in share:
                mine[sample.index] = values[: len(sample.token_ids)]
                values = values[len(sample.token_ids) :]
        parts: list[dict[int, list[float]]] = [{} for _ in range(self.world_size)]
        dist.all_gather_object(parts, mine)
        found = {place: values for part in parts for place, values in part.items()}
        return [found[place] for place in range(len(samples))]

    def _logprobs(self, row: PackedRow) -> Tensor:
        with torch.no_grad():
            logprobs, _ = self.engine(row)
        return logprobs

    # ------------------------------------------------------------------ weights and state
    def publish(
        self, version: int, transport: Literal["shm", "object_store"], folder: str
    ) -> WeightUpdate:
        """Write the weights where workers can read them; rank 0's answer is the whole one."""
        model = self.engine.module.model
        if transport == "shm":
            return publish_file(model, version, folder, rank=self.rank)
        return publish_objects(model, version, rank=self.rank)

    def perturb(self, scale: float, seed: int) -> None:
        """Add small deterministic noise to all weights, for the start-up self-check."""
        self._perturbation.add(self.engine.module.model, scale, seed)

    def unperturb(self) -> None:
        """Put back exactly the weights from before ``perturb``."""
        self._perturbation.remove(self.engine.module.model)

    def save(self, folder: str) -> None:
        """Write weights, optimizer and random state into ``folder``."""
        facts = self._facts() | {"step": self.step}
        save_state(self.engine, folder, rank=self.rank, facts=facts)

    def load(self, folder: str) -> None:
        """Read what ``save`` wrote with the same number of ranks and ZeRO stage."""
        self._refuse_half_step(f"load {folder}")
        self.step = load_state(self.engine, folder, rank=self.rank, facts=self._facts())

    def export(self, folder: str) -> None:
        """Write a Hugging Face folder."""
        export_folder(self.engine.module.model, self.policy, folder, rank=self.rank)

    def _has_peers(self) -> bool:
        """Whether gradients meet those of other ranks or shards; alone, DeepSpeed would copy all of
        them into a bucket and back for nothing."""
        return self.world_size > 1 or self.learner.zero_stage > 0

    def _facts(self) -> dict[str, int]:
        return {"world_size": self.world_size, "zero_stage": self.learner.zero_stage}


PolicyLearnerActor = ray.remote(PolicyLearner)
