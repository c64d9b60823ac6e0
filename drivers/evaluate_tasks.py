"""Answers a benchmark's tasks with one model and has another judge them, call by call.

What comes next is the benchmark's to say (``next_calls``), from the replies so far; each reply is
kept before it is used, so a stopped evaluation goes on without a second call for what is done. A
call that fails for want of an endpoint leaves its task unfinished, to be gone on with by the next
start; a reply that was refused, filtered or cut before its first word is an empty one. Where
nothing but failures comes for long, the evaluation stops and says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.benchmarks.base import Benchmark, JudgeCall, Task
from core.grading.visible import visible_response
from core.model_calls import ModelCall, Sampling
from core.records import PASSING, Completion
from core.rows import Row
from drivers.asking import Asker, side_by_side
from drivers.asking_command import Patience

_MOST_CALLS = 500
"""Of one task; a benchmark that asks for more does not end by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One task's result."""

    task_id: str
    outcome: Row | None
    unfinished: str = ""
    """Why there is no outcome yet."""


class _Away(Exception):
    """A call that got no reply."""


@dataclass(kw_only=True, slots=True)
class TaskRunner:
    """Brings tasks to their outcomes."""

    benchmark: Benchmark
    answers: Mapping[str, str]
    """Answers that are given; the model answers the other tasks."""
    model: Asker | None
    judge: Asker | None
    sampling: Sampling
    seed: int = 0
    _of_model: Patience = field(default_factory=lambda: Patience("model under test"))
    _of_judge: Patience = field(default_factory=lambda: Patience("judge"))

    async def run(self, tasks: Sequence[Task]) -> list[Answered]:
        """Return each task's result, in order; RunStopped when an endpoint seems to be gone."""
        return await side_by_side(tasks, self._one, unit="tasks", shown=self._shown)

    async def _one(self, task: Task) -> Answered:
        try:
            answer = await self._answer(task)
            outcome = await self._judged(task, answer)
        except _Away as away:
            return Answered(task_id=task.id, outcome=None, unfinished=str(away))
        return Answered(task_id=task.id, outcome=outcome)

    async def _answer(self, task: Task) -> str:
        if task.id in self.answers:
            return visible_response(self.answers[task.id])
        if self.model is None:
            raise _Away("no answer is given for it")
        call = ModelCall(messages=task.messages, sampling=self.sampling)
        reply = await self.model.ask(f"{task.id}/answer", call)
        self._of_model.saw(reply)
        return visible_response(_text(reply, "the answer"))

    async def _judged(self, task: Task, answer: str) -> Row:
        replies: dict[str, tuple[str, ...]] = {}
        while calls := self.benchmark.next_calls(task, answer, replies):
            if sum(map(len, replies.values())) + len(calls) > _MOST_CALLS:
                raise RuntimeError(f"{self.benchmark.name}: task {task.id!r} asks without end")
            for call in calls:
                made = replies.get(call.key, ())
                replies[call.key] = (*made, await self._judge(task, call, len(made)))
        return self.benchmark.outcome(task, answer, replies)

    async def _judge(self, task: Task, call: JudgeCall, attempt: int) -> str:
        if self.judge is None:
            raise _Away("it needs a judge, and none is given")
        # At temperature 0 the same seed would give the same unreadable reply again.
        sampling = replace(call.call.sampling, seed=self.seed + call.call.sampling.seed + attempt)
        asked = replace(call.call, sampling=sampling)
        reply = await self.judge.ask(f"{task.id}/{call.key}#{attempt}", asked)
        self._of_judge.saw(reply)
        return _text(reply, f"the judge ({call.key})")

    def _shown(self) -> dict[str, str]:
        asker = self.judge or self.model
        return asker.spent() if asker is not None else {}


def _text(reply: Completion, what: str) -> str:
    if reply.failure in PASSING:
        raise _Away(f"{what}: {reply.failure}: {reply.detail}")
    return reply.text
