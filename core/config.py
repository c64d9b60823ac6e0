"""The config of a run: one typed tree, checked once at load, handed out in parts.

Frozen, unknown keys refused, importable without torch, vLLM or Ray. Derived limits are properties
beside the numbers they come from. ``core/config_evolution.py`` holds the methods,
``core/config_served.py`` judge and writer; ``drivers/config_file.py`` reads YAML and ``key=value``
overrides into ``RunConfig``; a component gets its own part only.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from core.config_evolution import (
    CareEvolution,
    EvolutionConfig,
    RatchetEvolution,
    StaticEvolution,
)
from core.config_served import (
    BudgetConfig,
    JudgeConfig,
    ReferenceJudgeConfig,
    ServedModelConfig,
    WriterConfig,
)
from core.config_values import Amount, Beta, Gate, Part, Processes, RunName, Seed
from core.formats.names import FormatName


class DataConfig(Part):
    """Query files."""

    train: str
    """JSONL (or a format that the loaders know) of training queries."""
    eval: str | None = None
    """Held-out queries, answered every ``loop.eval_every`` steps under their initial rubric."""
    format: FormatName = "auto"
    """What the rows of both files are; ``auto`` tells it by their content (``ratchet data check``).
    Rows in the project's own format are always read as such."""
    missing_anchor: Literal["error", "skip"] = "error"
    """What to do with a query without anchor under a method that needs one."""
    task_rubrics: dict[str, str] = Field(default_factory=dict)
    """Rubric file (JSON) of each task, for methods whose rubric is shared by a task; without one
    all queries of the task must carry the same rubric."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    overlong_prompt: Literal["error", "skip"] = "error"
    """What to do with a training query whose prompt has more tokens than that."""


class PolicyConfig(Part):
    """The model being trained."""

    model: str
    """Hugging Face folder or hub name; ``packaged:smollm2-135m-instruct`` is the quickstart's."""
    max_model_len: int = Field(default=8192, ge=16)
    """Tokens of prompt plus response."""
    chat_template: str | None = None
    """Jinja template text or file, for a model that has none."""
    trust_remote_code: bool = False


class SamplingConfig(Part):
    """How the policy answers."""

    group_size: int = Field(default=8, ge=2)
    eval_group_size: int = Field(default=1, ge=1)
    """Rollouts of each held-out query."""
    max_new_tokens: int = Field(default=1024, ge=1)
    temperature: float = Field(default=1.0, gt=0.0)


class RolloutConfig(Part):
    """Rollout workers, each one vLLM engine."""

    num_workers: Processes = 1
    num_cpus: Amount = 1.0
    num_gpus: Amount = 0.0
    tensor_parallel_size: int = Field(default=1, ge=1)
    gpu_memory_utilization: float = Field(default=0.9, gt=0.0, le=1.0)
    max_num_seqs: int = Field(default=64, ge=1)
    weight_transport: Literal["shm", "object_store"] = "shm"
    """How weights reach the workers: a file in /dev/shm (one host) or Ray's object store (several
    hosts)."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Longest wait for one rollout."""
    start_timeout_s: float = Field(default=900.0, gt=0.0)
    logprob_gate: tuple[Gate, Gate] = (0.07, 0.35)
    """Start-up self-check: largest mean and p99 of |rollout - learner| log-probs."""


class LearnerConfig(Part):
    """The policy learner: one DeepSpeed engine over ``num_ranks`` actors; GRPO's numbers."""

    num_ranks: Processes = 1
    num_cpus: Amount = 1.0
    num_gpus: Amount = 0.0
    zero_stage: Literal[0, 2, 3] = 0
    bf16: bool = True
    """bf16 autocast over fp32 master weights."""
    gradient_checkpointing: bool = False
    lr: float = Field(default=1e-6, gt=0.0)
    warmup_steps: int = Field(default=0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: float = Field(default=0.01, ge=0.0)
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    mini_batches: int = Field(default=1, ge=1)
    """Optimizer steps a training step; the batch is split by query."""
    token_budget: int = Field(default=8192, ge=16)
    """Most tokens in one packed micro-batch; a prompt that several responses share counts once."""
    logprob_chunk: int = Field(default=1024, ge=1)
    """Positions whose vocabulary row exists at one time."""
    clip_low: float = Field(default=0.2, ge=0.0)
    clip_high: float = Field(default=0.2, ge=0.0)
    dual_clip: float = Field(default=3.0, gt=1.0)
    kl_coef: float = Field(default=0.001, ge=0.0)
    """0 leaves the reference model out."""
    is_clamp: float = Field(default=2.0, gt=1.0)
    """Truncation of the importance weight when rollouts can be off-policy."""
    timeout_s: float = Field(default=3600.0, gt=0.0)
    """Longest wait for one training step."""


class AdvantageConfig(Part):
    """Group-relative advantages; the defaults are verl's (unbiased deviation, eps 1e-6)."""

    ddof: Literal[0, 1] = 1
    eps: float = Field(default=1e-6, ge=0.0)
    should_scale: bool = True
    """Divide by the group's deviation."""
    drop_flat_groups: bool = False
    """Leave a group without spread out of the batch instead of keeping it with advantage 0."""
    drop_truncated: bool = False
    """Leave a rollout that was cut at the token limit out of the batch; its reward still counts in
    its group's mean and deviation."""


class RewardConfig(Part):
    """From verdicts to a reward (CARE equation 3, RARE section 3.1)."""

    weights: Literal["none", "checklist"] = "none"
    """``none``: a criterion counts by its maximum; ``checklist``: by its weight, scores as shares
    of the maximum. A negative weight subtracts either way."""
    normaliser: Literal["pos_sum", "pos_sum_floor1", "abs_sum", "raw_sum"] = "pos_sum"
    """What the weighted sum is divided by (``core/normalisers.py``)."""
    resist_in_mean: bool = True
    veto: bool = True
    truncation_penalty: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Taken off the reward of a rollout that was cut at the token limit, after the veto; what a
    method makes of the rubric's own reward (top rollout, evidence, gates) does not change."""


class LoopConfig(Part):
    """The training loop."""

    steps: int = Field(ge=1)
    groups_per_step: int = Field(default=4, ge=1)
    max_policy_age: int = Field(default=0, ge=0, le=100)
    """0 is the synchronous on-policy run; k lets generation run k updates ahead."""
    order: Literal["drawn", "finished"] = "drawn"
    """``drawn``: a step trains its own draws, so slow queries are not left out. ``finished``: the
    first finished groups train, and a slow group's age can pass ``max_policy_age`` by the updates
    that it missed (the metric ``trajectory_staleness`` shows it)."""
    eval_every: int = Field(default=0, ge=0)
    """Steps between held-out evaluations; 0 is never."""
    checkpoint_every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0 keeps the one at the end (or at a stop) only."""
    keep_checkpoints: int = Field(default=2, ge=1)
    stall_after_s: float = Field(default=600.0, ge=0)
    """Seconds without any change after which the run says what it waits for; 0 is never."""

    @property
    def slots(self) -> int:
        """Most groups between admission and the weight sync that follows their training."""
        return (self.max_policy_age + 1) * self.groups_per_step


class RunConfig(Part):
    """The whole config of ``drivers.train``."""

    name: RunName
    seed: Seed = 0
    runs_dir: str | None = None
    """Where runs are kept; None is RATCHET_RUNS_DIR or ./runs, in a Ray job ~/.ratchet/runs."""
    fresh: bool = False
    """Start over, even if a run of this name exists."""
    trackers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Where metrics are shown beside TensorBoard; each must be installed."""
    data: DataConfig
    policy: PolicyConfig
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    learner: LearnerConfig = LearnerConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    reward: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    writer: WriterConfig = WriterConfig()
    reference_judge: ReferenceJudgeConfig | None = None
    """Watches for a gap between the training judge and another one; None is off."""
    budget: BudgetConfig = BudgetConfig()
    evolution: EvolutionConfig = StaticEvolution()
    loop: LoopConfig

    @model_validator(mode="after")
    def _order_can_resume(self) -> Self:
        """Edits belong to a step by their draw, which needs steps that train their own draws."""
        if self.loop.order == "finished" and self.evolution.method != "static":
            raise ValueError(
                f"got loop.order=finished with evolution.method={self.evolution.method}, wanted "
                "drawn: a run whose rubrics evolve resumes by the step of its draws"
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.sampling.max_new_tokens >= self.policy.max_model_len:
            raise ValueError(
                f"got sampling.max_new_tokens={self.sampling.max_new_tokens} with "
                f"policy.max_model_len={self.policy.max_model_len}, wanted room for a prompt: "
                "lower the first or raise the second"
            )
        if self.learner.mini_batches > self.loop.groups_per_step:
            raise ValueError(
                f"got learner.mini_batches={self.learner.mini_batches} with "
                f"loop.groups_per_step={self.loop.groups_per_step}, wanted at most one mini-batch "
                "a query"
            )
        return self

    @model_validator(mode="after")
    def _one_veto(self) -> Self:
        """CARE's switch and the reward's say the same, whichever of them was turned off."""
        method = self.evolution
        if isinstance(method, CareEvolution | RatchetEvolution) and not method.care.veto:
            reward = self.reward.model_copy(update={"veto": False})
            object.__setattr__(self, "reward", reward)  # the tree is frozen for its users only
        return self

    @model_validator(mode="after")
    def _budget_can_be_reached(self) -> Self:
        """A limit in money counts nothing where tokens have no price."""
        parts: dict[str, ServedModelConfig | None] = {
            "judge": self.judge,
            "reference_judge": self.reference_judge,
        }
        if self.has_writer:
            parts["writer"] = self.writer
        for name, part in parts.items():
            is_unpriced = part is not None and part.backend == "openai" and not part.has_prices
            if self.budget.usd is not None and is_unpriced:
                raise ValueError(
                    f"got budget.usd={self.budget.usd:g}, but the tokens of {name} cost nothing "
                    f"(its prices are 0), so the limit could never be reached, wanted prices: set "
                    f"{name}.usd_per_million_prompt_tokens and "
                    f"{name}.usd_per_million_completion_tokens, or use budget.tokens"
                )
        return self

    @property
    def has_writer(self) -> bool:
        """Whether the method asks a rubric writer at all."""
        return self.evolution.method != "static"

    @property
    def needs_anchor(self) -> bool:
        """Whether the method contrasts with an anchor."""
        method = self.evolution
        return isinstance(method, CareEvolution | RatchetEvolution) and method.care.anchor
