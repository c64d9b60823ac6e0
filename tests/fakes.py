"""Fakes at the loop's seams: one a port, in process, deterministic, each noting what happened."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from actors.rubric_log import RubricVersion
from core.batching import EarlyPasses
from core.records import (
    Commit,
    CommitResult,
    Completion,
    EditEvent,
    EditOrigin,
    GenerateRequest,
    JudgeReply,
    JudgeRequest,
    RescoreReply,
    RescoreRequest,
    Rollout,
    RubricEdit,
    ScoredGroup,
    StepReport,
    TrainBatch,
    TrainingSample,
    Verdict,
    WeightUpdate,
)
from core.rubric import Criterion, Rubric
from core.writer_requests import WriterRequest


class FakePool:
    """Answers with text that depends on the request's seed; carries the loaded version."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.version = 0
        self.requests: list[GenerateRequest] = []
        self.log: list[str] = []

    async def generate(self, request: GenerateRequest) -> Rollout:
        self.requests.append(request)
        first = self.version
        await asyncio.sleep(self.delay_s)
        digest = hashlib.sha256(str(request.seed).encode()).hexdigest()[:6]
        return Rollout(
            query_id=request.query_id,
            visit=request.visit,
            index=request.index,
            response=f"answer {digest}",
            finish_reason="stop",
            prompt_token_ids=(1, 2),
            token_ids=(3, 4, 5),
            rollout_logprobs=(-0.1, -0.2, -0.3),
            policy_version_first=first,
            policy_version_last=self.version,
        )

    async def load_weights(self, update: WeightUpdate) -> None:
        self.log.append(f"load {update.version}")
        self.version = update.version


class FakeLearner:
    """Counts steps; ``update_s`` is how long one takes."""

    def __init__(self, update_s: float = 0.0) -> None:
        self.update_s = update_s
        self.version = 0
        self.batches: list[TrainBatch] = []
        self.early: list[EarlyPasses] = []

    async def accumulate(self, early: EarlyPasses) -> None:
        self.early.append(early)

    async def train_step(self, batch: TrainBatch) -> StepReport:
        await asyncio.sleep(self.update_s)
        self.batches.append(batch)
        self.version = batch.step
        return StepReport(step=batch.step, policy_version=batch.step, metrics={}, seconds=0.0)

    async def publish(self, version: int) -> WeightUpdate:
        return WeightUpdate(version=version, transport="shm")

    async def save(self, folder: str) -> None:
        import pathlib

        pathlib.Path(folder).mkdir(parents=True)
        (pathlib.Path(folder) / "version").write_text(str(self.version))

    async def load(self, folder: str) -> None:
        import pathlib

        self.version = int((pathlib.Path(folder) / "version").read_text())

    async def export(self, folder: str) -> None:
        return None

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return [list(s.rollout_logprobs) for s in samples]

    async def perturb(self, scale: float, seed: int) -> None:
        return None

    async def unperturb(self) -> None:
        return None


class FakeJudge:
    """Scores by a hash of response and criterion; ``failing`` makes every verdict a failure."""

    identity = "fake judge"

    def __init__(self, failing: bool = False, always_full: Sequence[str] = ()) -> None:
        self.failing = failing
        self.always_full = set(always_full)
        self.requests: list[JudgeRequest] = []
        self.rescores: list[RescoreRequest] = []

    def verdict(self, criterion: Criterion, response: str) -> Verdict:
        if self.failing:
            return Verdict(
                criterion_id=criterion.id, score=None, max=criterion.max, failure="unavailable"
            )
        text = f"{criterion.text}\x00{response}"
        number = hashlib.sha256(text.encode()).digest()[0]
        is_full = criterion.text in self.always_full
        score = criterion.max if is_full else number % (criterion.max + 1)
        return Verdict(criterion_id=criterion.id, score=float(score), max=criterion.max)

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        self.requests.append(request)
        return JudgeReply(
            verdicts=tuple(self.verdict(c, request.response) for c in request.criteria),
            judge=self.identity,
        )

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        self.rescores.append(request)
        return RescoreReply(
            verdicts=tuple(
                tuple(self.verdict(c, r) for c in request.criteria) for r in request.responses
            ),
            judge=self.identity,
        )

    def stats(self) -> Mapping[str, float]:
        return {}


class FakeWriter:
    """Replies with what ``reply`` makes of the request, after ``delay_s``."""

    identity = "fake writer"

    def __init__(self, reply: "object" = None, delay_s: float = 0.0) -> None:
        self.reply = reply
        self.delay_s = delay_s
        self.requests: list[WriterRequest] = []

    async def write(self, request: WriterRequest) -> Completion:
        self.requests.append(request)
        await asyncio.sleep(self.delay_s)
        text = self.reply(request) if callable(self.reply) else ""
        return Completion(text=text, finish_reason="stop", model="fake writer")

    def stats(self) -> Mapping[str, float]:
        return {"writer/calls": float(len(self.requests))}


class FakeStore:
    """An in-memory store with compare-and-set and idempotency keys."""

    def __init__(self) -> None:
        self.rubrics: dict[str, Rubric] = {}
        self.versions: dict[str, list[RubricVersion]] = {}
        self.commits: list[Commit] = []
        self.proposed: dict[str, Commit] = {}
        self.verdicts: dict[str, Verdict] = {}

    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        for key, rubric in rubrics.items():
            if key not in self.rubrics:
                self.rubrics[key] = rubric
                self.versions[key] = [RubricVersion(query_id=key, version=0, rubric=rubric)]

    async def current(self, query_id: str) -> Rubric:
        return self.rubrics[query_id]

    async def commit(self, commit: Commit) -> CommitResult:
        current = self.rubrics[commit.query_id]
        if any(c.key == commit.key for c in self.commits):
            return CommitResult(status="duplicate", version=current.version)
        if current.version != commit.from_version:
            return CommitResult(status="conflict", version=current.version)
        self.rubrics[commit.query_id] = commit.rubric
        self.commits.append(commit)
        if commit.rubric.version > commit.from_version:
            self.versions[commit.query_id].append(
                RubricVersion(
                    query_id=commit.query_id,
                    version=commit.rubric.version,
                    rubric=commit.rubric,
                    edits=commit.edits,
                    writer=commit.writer,
                    step=commit.step,
                    visit=commit.visit,
                    key=commit.key,
                )
            )
        return CommitResult(status="applied", version=commit.rubric.version)

    async def history(self, query_id: str) -> Sequence[RubricVersion]:
        return tuple(self.versions.get(query_id, ()))

    async def propose(self, commit: Commit) -> None:
        self.proposed.setdefault(commit.key, commit)

    async def num_waiting(self, query_id: str) -> int:
        version = self.rubrics[query_id].version
        return sum(
            c.query_id == query_id and c.from_version == version for c in self.proposed.values()
        )

    async def cached_verdicts(self, keys: Sequence[str]) -> Mapping[str, Verdict]:
        return {k: self.verdicts[k] for k in keys if k in self.verdicts}

    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        self.verdicts.update(verdicts)

    async def snapshot(self, folder: str, step: int) -> None:
        return None

    async def restore(self, folder: str, step: int) -> None:
        return None


@dataclass
class FakeRecorder:
    """Keeps everything that the loop records."""

    edits: list[tuple[EditOrigin, RubricEdit, int, int]] = field(default_factory=list)
    steps: list[tuple[int, tuple[ScoredGroup, ...], dict[str, float]]] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)

    def edit(self, event: EditEvent) -> None:
        self.edits.append((event.origin, event.edit, event.from_version, event.to_version))

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        self.steps.append((step, tuple(groups), dict(metrics)))

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        self.evaluations.append(step)
