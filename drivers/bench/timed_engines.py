"""Engines that only keep time, behind the ports of the real ones.

A worker, a learner and a model backend, each with bounded places: a call takes a place for the time
that the workload gives it, waits for the place outside it, and returns a valid answer. Each notes
when its places were busy, on the clock of its event loop (in a process of Ray that is
``time.monotonic``, common to all processes of a host). They are plain classes without Ray; used in
process they run on any clock, as actors and replicas through ``timed_cluster.py``.
``configure`` gives an engine another workload and empties its notes, between two measurements.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.rollout_worker import STALE, LoadedVersion
from core.batching import EarlyPasses
from core.errors import StaleVersionError
from core.records import (
    Completion,
    GenerateRequest,
    Rollout,
    StepReport,
    TrainBatch,
    TrainingSample,
    WeightUpdate,
)
from drivers.bench.timed_replies import CallName, call_name, reply_text
from drivers.bench.workload import MAX_TOKENS, RolloutName, Workload
from serve.backends.base import CompletionRequest

MODEL = "timed"
_PROMPT_TOKENS = tuple(range(1, 65))
_LOGPROB = -0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Busy:
    """A stretch of time in which one place worked."""

    began: float
    ended: float


class TimedPlaces:
    """A bounded number of places and when each was busy."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy: list[Busy] = []
        self._free = asyncio.Semaphore(count)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a free place and work there."""
        async with self._free:
            began = _now()
            try:
                yield
            finally:
                self.busy.append(Busy(began=began, ended=_now()))


class TimedWorker:
    """Answers as ``actors/rollout_worker.py`` does; a response takes its slot for its time."""

    def __init__(self, index: int, workload: Workload) -> None:
        self.index = index
        self._version = STALE
        self._is_running = asyncio.Event()
        self._is_running.set()
        self._paused_s = 0.0
        self._paused_at = 0.0
        self.configure(workload)

    def __repr__(self) -> str:
        return f"TimedWorker {self.index} (version {self._version})"

    async def start(self) -> None:
        """Be ready; stale as a real one is."""

    async def shutdown(self) -> None:
        """End nothing: there is no engine."""

    async def check_engine(self) -> None:
        """Answer."""

    def configure(self, workload: Workload) -> None:
        """Go on with another workload, stale."""
        self._workload = workload
        self._slots = TimedPlaces(workload.places.slots)
        self._version = STALE

    def busy(self) -> list[Busy]:
        """Return when slots worked."""
        return self._slots.busy

    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout."""
        name = RolloutName(query_id=request.query_id, visit=request.visit, index=request.index)
        began = _now()
        async with self._slots.place():
            await self._is_running.wait()
            first = self._require_version(request)
            await self._work(self._workload.generation_s(name))
            return self._rollout(name, first, _now() - began)

    def _require_version(self, request: GenerateRequest) -> int:
        if self._version == STALE:
            raise StaleVersionError(
                f"TimedWorker {self.index} got query {request.query_id!r} before it had loaded any "
                "policy version, wanted load_weights first"
            )
        return self._version

    async def _work(self, seconds: float) -> None:
        """Work so long, pauses not counted."""
        until = self._worked_until_now() + seconds
        while (left := until - self._worked_until_now()) > 1e-6:
            await asyncio.sleep(left)
            await self._is_running.wait()

    def _worked_until_now(self) -> float:
        now = _now() if self._is_running.is_set() else self._paused_at
        return now - self._paused_s

    def _rollout(self, name: RolloutName, first: int, seconds: float) -> Rollout:
        num_tokens = self._workload.num_tokens(name)
        return Rollout(
            query_id=name.query_id,
            visit=name.visit,
            index=name.index,
            response=self._workload.response(name),
            finish_reason="length" if num_tokens >= MAX_TOKENS else "stop",
            prompt_token_ids=_PROMPT_TOKENS,
            token_ids=tuple(range(num_tokens)),
            rollout_logprobs=(_LOGPROB,) * num_tokens,
            policy_version_first=first,
            policy_version_last=self._version,
            seconds=seconds,
        )

    async def load_weights(self, update: WeightUpdate) -> LoadedVersion:
        """Pause what runs for the time of a weight sync, then go on with the new version."""
        began = self._paused_at = _now()
        self._is_running.clear()
        await asyncio.sleep(self._workload.times.sync_s)
        self._paused_s += _now() - began
        self._version = update.version
        self._is_running.set()
        return LoadedVersion(version=update.version, checksums={}, seconds=_now() - began)


class TimedLearner:
    """``ports.Learner`` of which only training takes time, a group its share of the update."""

    def __init__(self, workload: Workload) -> None:
        self.configure(workload)

    def configure(self, workload: Workload) -> None:
        """Go on with another workload."""
        self._workload = workload
        self._place = TimedPlaces(1)
        self._num_done = 0

    def busy(self) -> list[Busy]:
        """Return when it trained."""
        return self._place.busy

    async def train_step(self, batch: TrainBatch) -> StepReport:
        """Train the groups that ``accumulate`` did not, then take the optimizer step."""
        began = _now()
        num_left, self._num_done = len(batch.groups) - self._num_done, 0
        await self._train(num_left / len(batch.groups))
        return StepReport(
            step=batch.step, policy_version=batch.step, metrics={}, seconds=_now() - began
        )

    async def accumulate(self, early: EarlyPasses) -> None:
        """Train the groups that are there before the others of their step."""
        groups = early.batch.groups
        num_early = sum(bool(group) for group in groups)
        await self._train(num_early / len(groups))
        self._num_done += num_early

    async def _train(self, share: float) -> None:
        async with self._place.place():
            await asyncio.sleep(self._workload.update_s(share))

    async def publish(self, version: int) -> WeightUpdate:
        """Return an update of no bytes."""
        return WeightUpdate(version=version, transport="shm")

    async def save(self, folder: str) -> None:
        """Keep nothing."""

    async def load(self, folder: str) -> None:
        """Read nothing."""

    async def export(self, folder: str) -> None:
        """Write nothing."""

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Return the workers' own."""
        return [list(sample.rollout_logprobs) for sample in samples]

    async def perturb(self, scale: float, seed: int) -> None:
        """Change nothing."""

    async def unperturb(self) -> None:
        """Change nothing."""


class TimedBackend:
    """A ``CompletionBackend`` that works on a call for its time and answers by the workload."""

    def __init__(self, workload: Workload, count: int) -> None:
        self.configure(workload, count)

    def configure(self, workload: Workload, count: int) -> None:
        """Go on with another workload."""
        self._workload = workload
        self._places = TimedPlaces(count)

    def busy(self) -> list[Busy]:
        """Return when places worked."""
        return self._places.busy

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return a reply of the right form."""
        began = _now()
        call: CallName = call_name(request)
        text = reply_text(call, request, self._workload)
        async with self._places.place():
            await asyncio.sleep(self._workload.call_s(call.kind, call.timed_by))
        return Completion(text=text, finish_reason="stop", model=MODEL, seconds=_now() - began)

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Free nothing."""


def _now() -> float:
    return asyncio.get_running_loop().time()
