"""What one rank adds up over the micro-batches of a training step, for the step's metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from core.loss import LossInputs, LossSums
from core.mismatch import MAXIMA, SUMS, mismatch_sums
from core.packing import PackedRow

LOSS_SUMS: tuple[str, ...] = (
    "pg_loss",
    "kl_loss",
    "ppo_kl",
    "clipped",
    "clipped_lower",
    "num_tokens",
)


class StepTally:
    """Sums (and maxima) over the samples of one training step on this rank."""

    def __init__(self) -> None:
        self.losses = dict.fromkeys((*LOSS_SUMS, "entropy"), 0.0)
        self.mismatch = dict.fromkeys((*SUMS, *MAXIMA), 0.0)

    def add_losses(self, sums: LossSums, entropy: Tensor, row: PackedRow) -> None:
        """Add a micro-batch's loss terms and entropies."""
        for name in LOSS_SUMS:
            self.losses[name] += float(getattr(sums, name))
        self.losses["entropy"] += float(entropy[row.loss_mask].sum())

    def add_mismatch(self, row: PackedRow, proximal: Tensor | None, inputs: LossInputs) -> None:
        """Add a micro-batch's gap between the rollout's log-probs and the learner's."""
        learner = inputs.learner_logprobs.detach() if proximal is None else proximal
        values: Mapping[str, float] = mismatch_sums(
            learner, row.rollout_logprobs, row.loss_mask, inputs.is_weights
        )
        for name, value in values.items():
            old = self.mismatch[name]
            self.mismatch[name] = max(old, value) if name in MAXIMA else old + value


@dataclass(kw_only=True, slots=True)
class BegunStep:
    """Passes of a step's first mini-batch that were done before the step was complete."""

    step: int
    num_tokens: int
    """What their losses were divided by."""
    places: set[int] = field(default_factory=set[int])
    """Of the groups whose gradients are accumulated already."""
    tally: StepTally = field(default_factory=StepTally)
    seconds: float = 0.0
