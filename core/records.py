"""Records that pass between stages:
``Query -> RolloutGroup -> GradedGroup -> (RubricEdit) -> ScoredGroup -> TrainBatch -> StepReport``.

All are frozen, keyword-only and picklable. A verdict is a score or a failure with a reason, never
both: a judge failure is never a reward. Every rollout carries the policy versions that wrote it,
every graded group the rubric version and the judge's identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from core.query import Message, Query
from core.rubric import Criterion, Rubric

FinishReason = Literal["stop", "length", "abort"]

FailureKind = Literal[
    "missing",  # the reply says nothing about this criterion
    "unparsable",  # no verdict can be read from the reply
    "out_of_scale",  # a number outside the criterion's levels
    "conflict",  # two different values for one criterion
    "truncated",  # the reply was cut before the verdict
    "filtered",  # a content filter removed the reply
    "refused",  # the judge declined to grade
    "timeout",  # no reply in time
    "unavailable",  # the backend could not be reached, or its retries are used up
    "undecidable",  # no rule in code can decide this criterion
]
PASSING: tuple[FailureKind, ...] = ("timeout", "unavailable")
"""Failures of the way to a model, which the same call may not meet later."""

Branch = Literal["adaptive", "chase", "replacement", "task", "pool", "rollback"]
EditStatus = Literal["accepted", "refused", "noop", "failed", "waiting"]
"""``waiting``: good, and kept until a person approves it."""


# ------------------------------------------------------------------ rollouts
@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One visit of the query stream to a query."""

    query_id: str
    step: int
    """Training step (from 1) whose batch this draw belongs to."""
    position: int
    """Place in that step's batch, from 0."""
    visit: int
    """How often this query was drawn before, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """Ask a rollout worker for one rollout."""

    query_id: str
    visit: int
    index: int
    """Place in the group, from 0."""
    messages: tuple[Message, ...]
    seed: int
    temperature: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One response of the policy, as a rollout worker returns it."""

    query_id: str
    visit: int
    index: int
    response: str
    """Text without special tokens."""
    finish_reason: FinishReason
    """``stop`` means an EOS token ended it, ``length`` that it was cut."""
    prompt_token_ids: tuple[int, ...]
    """[P]"""
    token_ids: tuple[int, ...]
    """[T], with the EOS token when there was one."""
    rollout_logprobs: tuple[float, ...]
    """[T], natural log, of the distribution sampled from (temperature applied)."""
    policy_version_first: int
    """Version that wrote the first token."""
    policy_version_last: int
    """Version that wrote the last token."""
    seconds: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether the token limit ended it."""
        return self.finish_reason == "length"


# ------------------------------------------------------------------ grading
@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The judge's answer on one criterion: a score or a failure, never both."""

    criterion_id: str
    score: float | None
    """0..max, or None when unscored."""
    max: int
    reason: str = ""
    failure: FailureKind | None = None

    def __post_init__(self) -> None:
        assert (self.score is None) == (self.failure is not None), self
        assert self.score is None or 0 <= self.score <= self.max, self

    @property
    def is_full(self) -> bool:
        """Whether the criterion has full score: this is what "satisfied" means, on any scale."""
        return self.score is not None and self.score >= self.max


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeRequest:
    """Grade one response by some criteria, in one call."""

    query_id: str
    prompt: str
    """The conversation as text."""
    response: str
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What calls to a model cost; adds up with ``+``."""

    calls: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Of ``prompt_tokens``, those that the model's server had in its prefix cache."""
    completion_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            retries=self.retries + other.retries,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens + other.cached_prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeReply:
    """Verdicts on one response, one for each criterion asked, in their order."""

    verdicts: tuple[Verdict, ...]
    judge: str
    """Identity of the judge: backend, model, sampling, template (part of the cache key)."""
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RescoreRequest:
    """RARE's joint rescoring: some criteria on all responses of a group, in one call."""

    query_id: str
    prompt: str
    responses: tuple[str, ...]
    """[G]"""
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RescoreReply:
    """``verdicts[g][c]``: response g (request order) on criterion c (request order)."""

    verdicts: tuple[tuple[Verdict, ...], ...]
    judge: str
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedRollout:
    """A rollout with its verdicts by criterion id."""

    rollout: Rollout
    verdicts: Mapping[str, Verdict]
    gold: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])

    @property
    def is_graded(self) -> bool:
        """Whether every criterion has a score; only then has the rollout a reward."""
        return all(v.score is not None for v in self.verdicts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class UngradedGroup:
    """All rollouts of one draw before the judge has seen any (RLER, Online Rubrics)."""

    draw: Draw
    query: Query
    rubric: Rubric
    """The version pinned for the group; what it is graded under may hold more criteria."""
    rollouts: tuple[Rollout, ...]
    control: tuple[Rollout, ...] = ()
    """Rollouts of the control policy (Online Rubrics)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedGroup:
    """All rollouts of one draw, graded under one rubric version."""

    draw: Draw
    query: Query
    rubric: Rubric
    """The version pinned at the group's first judge call."""
    rollouts: tuple[GradedRollout, ...]
    judge: str


# ------------------------------------------------------------------ writing rubrics
@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A writer's or judge model's raw reply; ``failure`` is set when there is none."""

    text: str
    finish_reason: str
    model: str
    usage: Usage = Usage()
    seconds: float = 0.0
    failure: FailureKind | None = None
    detail: str = ""
    """What went wrong, for logs and messages; never read as an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What an edit rests on; every quote stands in one of the named rollouts."""

    rollouts: tuple[int, ...] = ()
    quotes: tuple[str, ...] = ()
    analysis: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RubricEdit:
    """One change of a rubric, accepted or not: a line of events.jsonl."""

    method: str
    branch: Branch
    status: EditStatus
    reason: str = ""
    old: Criterion | None = None
    new: Criterion | None = None
    evidence: Evidence = Evidence()


@dataclass(frozen=True, kw_only=True, slots=True)
class EditOrigin:
    """Which rubric an edit is of, and the draw or step whose rollouts it rests on."""

    rubric_id: str
    """The query's id, or ``task:NAME`` for a rubric that the queries of a task share."""
    step: int
    visit: int = 0
    """Of the query's draw; 0 for a shared rubric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EditEvent:
    """An edit, accepted or not, with its place in the run: one line of events.jsonl."""

    edit: RubricEdit
    origin: EditOrigin
    from_version: int
    to_version: int
    """``from_version`` again when the edit was not accepted."""
    seconds: float
    """That its calls took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evolution:
    """What a method made of one writer reply: the next rubric and the edits that led there.

    ``rubric`` is the unchanged one (same version) when no edit was accepted.
    """

    rubric: Rubric
    edits: tuple[RubricEdit, ...] = ()
    num_restored: int = 0
    """Criteria that the writer left out without a rewrite and that were put back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """Ask the RubricStore to make ``rubric`` current, if ``from_version`` still is."""

    query_id: str
    """The rubric's id: the query's, or ``task:NAME``."""
    from_version: int
    rubric: Rubric
    edits: tuple[RubricEdit, ...]
    step: int
    """Training step of the draw that the edit comes from; of a person's edit the latest step of
    the versions up to ``from_version`` (or 0)."""
    visit: int
    key: str
    """Idempotency key: the same key is applied once."""
    writer: str = ""
    """Identity of the writer."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitResult:
    """The store's answer: a commit is applied, was applied before, or lost the race."""

    status: Literal["applied", "duplicate", "conflict"]
    version: int
    """Current version after the call."""


# ------------------------------------------------------------------ training
@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRollout:
    """A graded rollout with its reward and advantage."""

    graded: GradedRollout
    reward: float | None
    """None when the rollout is ungraded: a criterion has no score."""
    is_vetoed: bool
    advantage: float
    """0 for ungraded rollouts and for groups without spread."""
    before_veto: float | None = None
    """The reward without the product of [Resist] scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredGroup:
    """A group ready to train: all rewards under ``rubric``."""

    draw: Draw
    query: Query
    rubric: Rubric
    rollouts: tuple[ScoredRollout, ...]
    is_masked: bool
    """Fewer than two graded rollouts: the whole group is left out of the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSample:
    """One token sequence the learner sees; all of ``token_ids`` trains."""

    query_id: str
    index: int
    prompt_token_ids: tuple[int, ...]
    """[P]"""
    token_ids: tuple[int, ...]
    """[T]"""
    rollout_logprobs: tuple[float, ...]
    """[T]"""
    advantage: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainBatch:
    """The samples of one step, by group in draw order; ungraded rollouts and masked groups are
    already left out, so a group may be empty."""

    step: int
    groups: tuple[tuple[TrainingSample, ...], ...]
    is_off_policy: bool
    """Whether any token may come from an older policy version (turns on importance sampling)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What the learner did in one step; metric names as in ``core/metrics.py``."""

    step: int
    policy_version: int
    """After the step."""
    metrics: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightUpdate:
    """Published weights of one policy version, ready to be loaded by rollout workers."""

    version: int
    transport: Literal["shm", "object_store"]
    location: str = ""
    """Path of a safetensors file (shm)."""
    buckets: tuple[object, ...] = ()
    """Object references, one a bucket (object_store)."""
    checksums: Mapping[str, float] = field(default_factory=dict[str, float])
    """Sums of a few tensors, compared after loading."""
