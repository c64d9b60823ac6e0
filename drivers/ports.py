"""What the loop asks of the parts around it: one Protocol a seam.

Implemented over Ray actors and Serve handles by ``rollout_pool``, ``learner_group``,
``served_clients`` and ``rubric_store_client``, in process by ``tests/fakes.py``. Every call has a
limit of its own and raises with a message that names who waited for whom.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from actors.rubric_log import RubricVersion
from core.batching import EarlyPasses
from core.records import (
    Commit,
    CommitResult,
    Completion,
    EditEvent,
    GenerateRequest,
    JudgeReply,
    JudgeRequest,
    RescoreReply,
    RescoreRequest,
    Rollout,
    ScoredGroup,
    StepReport,
    TrainBatch,
    TrainingSample,
    Verdict,
    WeightUpdate,
)
from core.rubric import Rubric
from core.writer_requests import WriterRequest
from drivers.spending import Spending


class RolloutPool(Protocol):
    """The rollout workers as one: places a request on the least loaded live worker."""

    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout; raises RolloutError when every retry failed."""
        ...

    async def load_weights(self, update: WeightUpdate) -> None:
        """Bring every live worker to this version; a worker that restarted stays out until it has
        it. Raises WeightSyncError when no worker could load it."""
        ...


class Learner(Protocol):
    """The learner's ranks as one."""

    async def train_step(self, batch: TrainBatch) -> StepReport:
        """Do the batch's optimizer steps; raises RunStopped on a non-finite loss."""
        ...

    async def accumulate(self, early: EarlyPasses) -> None:
        """Do the forward and backward passes of groups that are ready before their step is; the
        optimizer step follows with ``train_step`` of the whole batch, which leaves them out."""
        ...

    async def publish(self, version: int) -> WeightUpdate:
        """Write the current weights where workers can read them."""
        ...

    async def save(self, folder: str) -> None:
        """Write weights, optimizer and random state into ``folder``."""
        ...

    async def load(self, folder: str) -> None:
        """Read what ``save`` wrote."""
        ...

    async def export(self, folder: str) -> None:
        """Write a Hugging Face folder (weights, config, tokenizer)."""
        ...

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Return the learner's log-probs of each sample's response tokens (temperature applied)."""
        ...

    async def perturb(self, scale: float, seed: int) -> None:
        """Add deterministic noise to every weight, ``scale`` times the root mean square of
        its tensor, for the start-up self-check."""
        ...

    async def unperturb(self) -> None:
        """Put back exactly the weights from before ``perturb``."""
        ...


class JudgeClient(Protocol):
    """The judge behind Serve."""

    @property
    def identity(self) -> str:
        """Who judges: part of each verdict's cache key; known before the first call."""
        ...

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        """Never raises for a bad reply: a criterion without a score has a failure kind."""
        ...

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """Grade some criteria on all responses of a group in one call."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Return running totals as ``judge/*`` metrics (calls, retries, tokens, cost)."""
        ...


class WriterClient(Protocol):
    """The rubric writer behind Serve."""

    @property
    def identity(self) -> str:
        """Who writes: part of each version's origin; known before the first call."""
        ...

    async def write(self, request: WriterRequest) -> Completion:
        """Return the raw reply; ``failure`` is set when there is none."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Return running totals as ``writer/*`` metrics (calls, retries, tokens, cost)."""
        ...


class Store(Protocol):
    """The RubricStore; ``query_id`` is a rubric's id: its query's, or ``task:NAME``."""

    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """Make version 0 of each rubric known by its id; one that is known already stays as it is.
        ConfigError when it was another rubric."""
        ...

    async def current(self, query_id: str) -> Rubric:
        """Return the current rubric."""
        ...

    async def commit(self, commit: Commit) -> CommitResult:
        """Compare-and-set on the version, applied once a key."""
        ...

    async def history(self, query_id: str) -> Sequence[RubricVersion]:
        """Return all versions of a rubric with their provenance, oldest first."""
        ...

    async def propose(self, commit: Commit) -> None:
        """Keep an edit until a person decides (``ratchet rubrics approve``), once a key."""
        ...

    async def num_waiting(self, query_id: str) -> int:
        """Return how many edits of a rubric wait and can be applied to its current version."""
        ...

    async def cached_verdicts(self, keys: Sequence[str]) -> Mapping[str, Verdict]:
        """Return the verdicts known for these cache keys."""
        ...

    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember scored verdicts by cache key (failures are never kept)."""
        ...

    async def snapshot(self, folder: str, step: int) -> None:
        """Write the state as of ``step`` (edits whose draw is at or before it) into ``folder``."""
        ...

    async def restore(self, folder: str, step: int) -> None:
        """Make the snapshot's versions current; later ones are set aside, not deleted.

        ``folder`` is empty when the run has no checkpoint yet.
        """
        ...


class Recorder(Protocol):
    """Where the loop writes what happened (``drivers/run_files.py``)."""

    def edit(self, event: EditEvent) -> None:
        """Write one edit, accepted or not."""
        ...

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        """Write one training step: its rollouts and metrics."""
        ...

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write the rollouts of a held-out evaluation."""
        ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The components that the loop and its method drive."""

    pool: RolloutPool
    learner: Learner
    judge: JudgeClient
    writer: WriterClient
    store: Store
    control: RolloutPool | None = None
    """Workers of the control policy (Online Rubrics)."""
    reference: JudgeClient | None = None
    """The judge that only watches."""
    spending: Spending | None = None
    """What all clients add their replies to, and its budget."""
