"""The training loop: the one place that decides what happens when.

    admit --> [drawn] --> generate + grade --> [graded] --> evolve + score --> [scored] --> train
      ^                                                                                       |
      +----------------------- a slot is freed after the weight sync -------------------------+

Stages are coroutines joined by bounded queues; scored groups wait in ``drivers/collecting.py``.
``(max_policy_age + 1) * groups_per_step`` slots are all that is ever between admission and weight
sync, so a group's oldest token is at most ``max_policy_age`` versions behind the learner; 0 is the
synchronous on-policy run in the same code. Training takes the groups of a step in draw order, so
slow queries are not left out. The trainer is the only finite stage; any other stage that ends is an
error. A stop request is honoured between steps and while waiting for groups; what was in flight is
generated again by the next start.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.advantage import score_group
from core.batching import train_batch
from core.config import RunConfig
from core.config_evolution import rubric_scope
from core.errors import ConfigError, RunStopped
from core.query import Query, rubric_id
from core.records import Draw, GradedGroup, ScoredGroup, WeightUpdate
from drivers.collecting import Collected, Collector
from drivers.gathered import gathered
from drivers.grading import Grader
from drivers.held_out import Evaluator
from drivers.methods.build import make_method
from drivers.methods.desk import EditDesk
from drivers.next_visit import NextVisitEdits
from drivers.ports import Parts, Recorder
from drivers.progress import Progress
from drivers.queries import QueryStream
from drivers.reference_judge import ReferenceMonitor
from drivers.step_meter import StepClock, StepMeter
from drivers.whereabouts import at


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run stands: everything about the loop that a checkpoint keeps."""

    step: int = 0
    """Training steps done."""
    next_draw: int = 0
    """First draw that was never admitted."""
    untrained: tuple[int, ...] = ()
    """Draws that were admitted and not trained; they are admitted again first."""


class Checkpointer(Protocol):
    """What the loop needs of checkpoints (``drivers/checkpoint.py``)."""

    async def save(self, position: Position) -> None:
        """Write one whole checkpoint."""
        ...


class TrainLoop:
    """Runs training steps until the configured number is done or a stop is requested."""

    def __init__(
        self,
        config: RunConfig,
        queries: Mapping[str, Query],
        parts: Parts,
        recorder: Recorder,
        checkpointer: Checkpointer,
        evaluator: Evaluator | None,
        progress: Progress,
    ) -> None:
        self._config = config
        self._queries = queries
        self._parts = parts
        self._recorder = recorder
        self._checkpointer = checkpointer
        self._evaluator = evaluator
        self._progress = progress
        loop = config.loop
        self._stream = QueryStream(tuple(queries), loop.groups_per_step, config.seed)
        self._slots = asyncio.Semaphore(loop.slots)
        self._drawn: asyncio.Queue[Draw] = asyncio.Queue(loop.slots)
        self._graded: asyncio.Queue[GradedGroup] = asyncio.Queue(loop.slots)
        self._collector = Collector(config, parts.learner)
        self._grader = Grader(parts.pool, parts.judge, parts.store, config.sampling, config.seed)
        self._desk = EditDesk(config, parts, self._grader, recorder.edit)
        self._method = make_method(self._desk, parts)
        scope = rubric_scope(config.evolution)
        rubric_ids = {query_id: rubric_id(query, scope) for query_id, query in queries.items()}
        self._edits = NextVisitEdits(self._method, parts.store, rubric_ids)
        self._meter = StepMeter(
            config.judge, self._grader, self._desk, self._edits, parts.judge, parts.writer
        )
        self._monitor = ReferenceMonitor(config, parts.reference, parts.store)
        self._last_metrics: dict[str, float] = {}
        self._untrained: set[int] = set()
        self._next_draw = 0
        self._stop = asyncio.Event()
        self._stop_reason = ""
        if parts.spending is not None:
            parts.spending.on_exceeded = self.request_stop

    def request_stop(self, reason: str = "") -> None:
        """Ask for an end with a checkpoint; safe to call from a signal handler.

        With a ``reason`` the run ends with RunStopped, and no group trains that was not complete.
        """
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    async def run(self, start: Position, past: Sequence[GradedGroup] = ()) -> Position:
        """Train from ``start``; returns where it stopped (a checkpoint stands there).

        ``past``: the groups of the last steps before ``start``, oldest first, where the run's
        method looks back at them.
        """
        self._check_start(start)
        self._method.resume(past)
        self._next_draw = start.next_draw
        self._untrained = set(start.untrained)
        trainer = asyncio.create_task(self._train(start.step), name="train")
        stages = [
            asyncio.create_task(self._admit(start.untrained), name="admit"),
            *(
                asyncio.create_task(stage(), name=stage.__name__)
                for stage in (self._grade_stage, self._evolve_stage)
                for _ in range(self._config.loop.slots)
            ),
        ]
        try:
            await asyncio.wait([trainer, *stages], return_when=asyncio.FIRST_COMPLETED)
            _raise_if_ended(stages)
            return await trainer
        finally:
            for task in (trainer, *stages):
                task.cancel()
            await asyncio.gather(trainer, *stages, return_exceptions=True)
            await self._edits.close()
            await self._method.close()
            await self._monitor.close()

    def _check_start(self, start: Position) -> None:
        """Refuse a position that a step in draw order would wait on for ever."""
        trained = start.step * self._config.loop.groups_per_step
        ahead = set(range(trained, start.next_draw))
        if self._config.loop.order == "drawn" and set(start.untrained) != ahead:
            raise ConfigError(
                "got loop.order=drawn for a checkpoint that was made with loop.order=finished "
                "(its steps trained other queries than their own), wanted finished: set it back, "
                "choose another `name`, or start over with fresh=true"
            )

    # ------------------------------------------------------------------ stages
    async def _admit(self, again: Sequence[int]) -> None:
        """Let draws in as slots become free: first those of the checkpoint, then new ones.

        None past the last step: nothing would train it, and its edits would rest on rollouts that
        no file holds.
        """
        end = self._config.loop.steps * self._config.loop.groups_per_step
        waiting = deque(number for number in again if number < end)
        while waiting or self._next_draw < end:
            await self._slots.acquire()
            if waiting:
                number = waiting.popleft()
            else:
                number = self._next_draw
                self._next_draw += 1
            draw = self._stream.draw(number)
            self._untrained.add(number)
            self._edits.admit(draw)
            await self._drawn.put(draw)
        await asyncio.Event().wait()  # until the trainer has ended the run

    async def _grade_stage(self) -> None:
        while True:
            draw = await self._drawn.get()
            query = self._queries[draw.query_id]
            self._meter.times.start(draw)
            group = await self._grader.grade_group(
                draw,
                query,
                self._edits.pin,
                self._config.sampling.group_size,
                self._method if self._method.grades_whole_groups else None,
            )
            waited_s = self._grader.rubric_wait_s.pop(draw, self._edits.pin_wait_s(draw))
            self._meter.times.graded(draw, waited_s)
            await self._graded.put(group)

    async def _evolve_stage(self) -> None:
        while True:
            group = await self._graded.get()
            self._desk.saw(group)
            if self._method.edits_same_step(group):
                self._collector.expect(group)
            with at("same-step edit", group.query.id, detail=f"visit {group.draw.visit}"):
                group = await self._method.same_step(group)
            self._edits.start(group)
            scored = score_group(group, self._config.reward, self._config.advantage)
            self._monitor.start(scored)
            self._meter.times.scored(group.draw)
            self._collector.put(scored)

    # ------------------------------------------------------------------ training
    async def _train(self, done: int) -> Position:
        saved = done
        for step in range(done + 1, self._config.loop.steps + 1):
            clock = StepClock()
            collected = await self._unless_stopped(self._collect(step))
            if collected is None:
                break
            clock.mark("idle")
            clock.move("idle", "update_actor", collected.early_s)
            await self._train_step(step, collected.groups, clock)
            done = step
            # What a used-up budget left unjudged is no fault of the judge's.
            problem = "" if self._stop_reason else self._meter.judge_problem(step)
            if self._is_checkpoint_due(step) or problem:
                await self._checkpoint(step)
                saved = step
            if problem:
                raise RunStopped(problem)
            if self._stop.is_set():
                break
        if saved != done:
            await self._checkpoint(done)
        if self._stop_reason and done < self._config.loop.steps:
            raise RunStopped(self._stop_reason)
        return self._position(done)

    async def _collect(self, step: int) -> Collected:
        """Return the step's groups: those of its draw in draw order, or the first finished."""
        num_groups = self._config.loop.groups_per_step
        if self._config.loop.order == "finished":
            return await self._collector.finished(num_groups)
        first = (step - 1) * num_groups
        return await self._collector.drawn(
            [self._stream.draw(first + i) for i in range(num_groups)]
        )

    async def _unless_stopped(self, collecting: Coroutine[Any, Any, Collected]) -> Collected | None:
        """Await the groups, or None when a stop is requested first."""
        groups = asyncio.ensure_future(collecting)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([groups, stop], return_when=asyncio.FIRST_COMPLETED)
            return groups.result() if groups.done() and not self._stop_reason else None
        finally:
            groups.cancel()
            stop.cancel()

    async def _train_step(self, step: int, groups: Sequence[ScoredGroup], clock: StepClock) -> None:
        config = self._config
        batch = train_batch(
            step,
            groups,
            is_off_policy=config.loop.max_policy_age > 0,
            drop_flat_groups=config.advantage.drop_flat_groups,
            drop_truncated=config.advantage.drop_truncated,
        )
        self._method.step_collected(step, groups)
        report = await self._parts.learner.train_step(batch)
        clock.mark("update_actor")
        update = await self._parts.learner.publish(step)
        await self._load_weights(update)
        clock.mark("update_weights")
        self._untrained -= {self._number(g.draw) for g in groups}
        for _ in groups:
            self._slots.release()
        if step == self._config.loop.steps:
            await self._monitor.drain()
        metrics = self._meter.metrics(step, groups, report, clock) | self._monitor.metrics()
        if self._parts.spending is not None:
            self._parts.spending.save()
            metrics |= self._parts.spending.metrics()
        if self._is_evaluation_due(step):
            assert self._evaluator is not None
            clock.mark("metrics")
            evaluation = await self._evaluator.evaluate(step)
            clock.mark("testing")
            metrics |= evaluation.metrics | {"timing_s/testing": clock.seconds["testing"]}
            self._recorder.evaluation(step, evaluation.groups)
        self._recorder.step(step, groups, metrics)
        self._last_metrics = metrics | {"step": float(step)}
        self._edits.forget([g.draw for g in groups])
        self._progress.step(step, metrics, self.queue_depths())

    async def _load_weights(self, update: WeightUpdate) -> None:
        """Bring the policy's workers to this version, and tell those of the control policy."""
        pools = [p for p in (self._parts.pool, self._parts.control) if p is not None]
        await gathered(pool.load_weights(update) for pool in pools)

    def queue_depths(self) -> dict[str, int]:
        """Groups in each stage, for the progress bar."""
        return {
            "drawn": self._drawn.qsize(),
            "graded": self._graded.qsize(),
            "scored": len(self._collector),
            "edits": self._edits.num_running,
        }

    def live_figures(self) -> dict[str, float]:
        """What a dashboard shows between two steps: the last one's metrics, and the queues now."""
        queues = {f"queue/{stage}": float(n) for stage, n in self.queue_depths().items()}
        return self._last_metrics | queues

    def _is_evaluation_due(self, step: int) -> bool:
        every = self._config.loop.eval_every
        is_last = step == self._config.loop.steps
        return self._evaluator is not None and every > 0 and (step % every == 0 or is_last)

    # ------------------------------------------------------------------ stopping and saving
    def _is_checkpoint_due(self, step: int) -> bool:
        every = self._config.loop.checkpoint_every
        return step == self._config.loop.steps or (every > 0 and step % every == 0)

    async def _checkpoint(self, step: int) -> None:
        """Save weights, rubrics and stream position as of ``step``, as one unit."""
        await self._edits.drain()
        await self._method.drain()
        await self._checkpointer.save(self._position(step))

    def _position(self, step: int) -> Position:
        return Position(
            step=step, next_draw=self._next_draw, untrained=tuple(sorted(self._untrained))
        )

    def _number(self, draw: Draw) -> int:
        return (draw.step - 1) * self._config.loop.groups_per_step + draw.position


def _raise_if_ended(stages: "Sequence[asyncio.Task[None]]") -> None:
    for task in stages:
        if task.done():
            task.result()
            raise RuntimeError(f"the stage {task.get_name()!r} ended before training did")
