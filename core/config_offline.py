"""The config of offline training: SFT on anchors or scripts, DPO on preference pairs.

The papers' baselines without rollouts, judge or writer. Like ``core/config.py``: frozen, unknown
keys refused, checked once at load, importable without torch. ``offline.method`` is what tells such
a config from one of ``drivers.train``; ``drivers/config_file.py`` reads both.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from core.config import PolicyConfig
from core.config_values import Beta, Part, RunName, Seed


class OfflineDataConfig(Part):
    """What is trained on, and what the validation loss is measured on."""

    train: str
    """Query file with anchors, query-script pairs, or preference pairs (by ``offline``)."""
    eval: str | None = None
    """Validation file of the same kind; None takes ``val_frac`` out of the training file."""
    val_frac: float = Field(default=0.05, ge=0.0, le=0.5)
    """Share of the source groups (or queries) held out where there is no ``eval``; 0 is none."""
    missing_target: Literal["error", "skip"] = "error"
    """What to do with a row that has nothing to learn from: no anchor, no script, no preference."""


class OfflineLearnerConfig(Part):
    """Optimizer and batch of the trainer."""

    lr: float = Field(gt=0.0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """What follows the warm-up; linear ends at 0, cosine at ``min_lr_frac`` of ``lr``."""
    min_lr_frac: float = Field(default=0.0, ge=0.0, le=1.0)
    warmup_frac: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of all steps in which the rate rises linearly from 0."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: float = Field(default=0.0, ge=0.0)
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    batch_size: int = Field(default=32, ge=1)
    """Rows (or pairs) a step over all processes."""
    micro_batch_size: int = Field(default=1, ge=1)
    """Rows (or pairs) in one forward pass of one process."""
    bf16: bool = True
    """bf16 autocast over fp32 master weights."""
    gradient_checkpointing: bool = False
    deepspeed: str | None = None
    """``zero2``, ``zero3``, or a file with DeepSpeed's JSON; None trains without DeepSpeed."""

    @model_validator(mode="after")
    def _only_cosine_has_a_floor(self) -> Self:
        if self.min_lr_frac > 0 and self.schedule != "cosine":
            raise ValueError(
                f"got min_lr_frac={self.min_lr_frac:g} with schedule={self.schedule}, wanted "
                "schedule=cosine: no other one ends above 0"
            )
        return self


class SftMethod(Part):
    """Supervised fine-tuning; the loss is the mean over the response's tokens only."""

    method: Literal["sft"] = "sft"
    target: Literal["anchor", "script"]
    """``anchor``: the queries' anchors (CARE section 4.1); ``script``: query-script pairs (RARE
    section 4.1.2)."""


class DpoMethod(Part):
    """Direct preference optimisation (Rafailov et al. 2023, equation 7) on pairs."""

    method: Literal["dpo"] = "dpo"
    beta: float = Field(default=0.1, gt=0.0)
    precompute_reference: bool = False
    """Score all pairs with the reference policy before training, so that it need not stay in
    memory."""


OfflineMethod = Annotated[SftMethod | DpoMethod, Field(discriminator="method")]


class OfflineLoopConfig(Part):
    """How long, and what is kept. Every epoch ends with a validation and a checkpoint."""

    epochs: int = Field(default=3, ge=1, le=1000)
    keep_checkpoints: int = Field(default=2, ge=2)
    """At least two: a run that is killed while it writes one goes on from the other."""


class OfflineConfig(Part):
    """The whole config of ``drivers.offline``."""

    name: RunName
    seed: Seed = 0
    """Decides the order of the rows and which ones are held out."""
    runs_dir: str | None = None
    """Where runs are kept; None is RATCHET_RUNS_DIR or ./runs, in a Ray job ~/.ratchet/runs."""
    fresh: bool = False
    """Start over, even if a run of this name exists."""
    trackers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Where metrics are shown beside TensorBoard; each must be installed."""
    offline: OfflineMethod
    data: OfflineDataConfig
    policy: PolicyConfig
    """``max_model_len`` is the longest row; what is longer is cut at its end."""
    learner: OfflineLearnerConfig
    loop: OfflineLoopConfig = OfflineLoopConfig()

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        learner = self.learner
        if learner.batch_size % learner.micro_batch_size:
            raise ValueError(
                f"got learner.batch_size={learner.batch_size} with "
                f"learner.micro_batch_size={learner.micro_batch_size}, wanted a multiple of it"
            )
        return self

    def num_steps(self, num_rows: int) -> int:
        """Optimizer steps of the whole run; an epoch's last batch may be a short one."""
        return -(-num_rows // self.learner.batch_size) * self.loop.epochs
