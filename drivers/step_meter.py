"""Times and counts of one training step, gathered from the stages and turned into its metrics.

``evolve_exposed`` is what evolution added to the step: how much later the step's groups were ready
because of same-step edits and of waiting for next-visit edits, and never more than the trainer was
idle.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from core.config_served import JudgeConfig
from core.metrics import StepCounts, step_metrics
from core.records import Draw, ScoredGroup, StepReport
from drivers.grading import Grader, GradingCounts
from drivers.methods.counts import EvolutionCounts
from drivers.methods.desk import EditDesk
from drivers.next_visit import NextVisitEdits
from drivers.ports import JudgeClient, WriterClient


class StepClock:
    """Stop watch of one training step; ``mark`` names the time since the last mark."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self.seconds: dict[str, float] = {}
        self._moved: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """Note the time since the last mark under ``name``."""
        now = time.monotonic()
        self.seconds[name] = now - self._last + self._moved.pop(name, 0.0)
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds that were marked as ``source`` to ``target``, when that is marked."""
        self.seconds[source] -= seconds
        self._moved[target] = self._moved.get(target, 0.0) + seconds

    @property
    def total_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started


@dataclass(kw_only=True)
class _GroupTimes:
    started: float = 0.0
    graded: float = 0.0
    scored: float = 0.0
    pin_wait_s: float = 0.0


class StageTimes:
    """When each group passed each stage (monotonic seconds)."""

    def __init__(self) -> None:
        self._groups: dict[Draw, _GroupTimes] = {}

    def start(self, draw: Draw) -> None:
        """Generation of the draw began."""
        self._groups[draw] = _GroupTimes(started=time.monotonic())

    def graded(self, draw: Draw, pin_wait_s: float) -> None:
        """All rollouts of the draw have verdicts."""
        times = self._groups[draw]
        times.graded, times.pin_wait_s = time.monotonic(), pin_wait_s

    def scored(self, draw: Draw) -> None:
        """The draw is ready to train."""
        self._groups[draw].scored = time.monotonic()

    def pop(self, draws: Sequence[Draw], idle_s: float) -> dict[str, float]:
        """Return the step's ``timing_s/gen`` and ``timing_s/evolve_exposed``; forgets the draws."""
        times = [self._groups.pop(d) for d in draws]
        ready = max(t.scored for t in times)
        ready_without = max(t.graded - t.pin_wait_s for t in times)
        return {
            "timing_s/gen": max(t.graded - t.started for t in times),
            "timing_s/evolve_exposed": max(0.0, min(idle_s, ready - ready_without)),
        }


class StepMeter:
    """Reads the stages' running counts once a step."""

    def __init__(
        self,
        config: JudgeConfig,
        grader: Grader,
        desk: EditDesk,
        edits: NextVisitEdits,
        judge: JudgeClient,
        writer: WriterClient,
    ) -> None:
        self._config = config
        self._grader = grader
        self._desk = desk
        self._edits = edits
        self._judge = judge
        self._writer = writer
        self._window: deque[GradingCounts] = deque(maxlen=config.failed_window_steps)
        self.times = StageTimes()

    def metrics(
        self, step: int, groups: Sequence[ScoredGroup], report: StepReport, clock: StepClock
    ) -> dict[str, float]:
        """Return the step's metrics and start counting anew."""
        counts, self._grader.counts = self._grader.counts, GradingCounts()
        events, self._desk.counts = self._desk.counts, EvolutionCounts()
        self._window.append(counts)
        idle_s = clock.seconds.get("idle", 0.0)
        return {
            **step_metrics(groups, step - 1, _step_counts(events)),
            "evolving_rubrics/writer_calls": float(events.writer_calls),
            "evolving_rubrics/rescored_calls": float(events.rescored_calls),
            "evolving_rubrics/skipped": float(events.skipped),
            "evolving_rubrics/not_triggered": float(events.not_triggered),
            **{
                f"evolving_rubrics/refused_by_gate/{gate}": float(number)
                for gate, number in events.refused_by_gate.items()
            },
            **report.metrics,
            **self._judge.stats(),
            **self._writer.stats(),
            **self.times.pop([g.draw for g in groups], idle_s),
            **_judge_metrics(counts),
            "perf/throughput": report.metrics.get("perf/total_num_tokens", 0.0) / clock.total_s,
            "timing_s/reward": sum(counts.judge_s),
            "timing_s/step": clock.total_s,
            "timing_s/trainer_idle": idle_s,
            "timing_s/update_actor": clock.seconds["update_actor"],
            "timing_s/update_weights": clock.seconds["update_weights"],
            "timing_s/evolve_total": events.evolve_s,
        }

    def judge_problem(self, step: int) -> str:
        """Return why the judge cannot be trusted any more, or an empty text."""
        verdicts = sum(c.verdicts for c in self._window)
        failed = sum(c.failed for c in self._window)
        limit = self._config.max_failed_frac
        is_full = len(self._window) == self._window.maxlen
        if not is_full or not verdicts or failed / verdicts <= limit:
            return ""
        kinds: dict[str, int] = {}
        for counts in self._window:
            for kind, number in counts.failures.items():
                kinds[kind] = kinds.get(kind, 0) + number
        return (
            f"step {step}: {failed} of {verdicts} verdicts of the last {len(self._window)} steps "
            f"failed ({kinds}), more than judge.max_failed_frac={limit:g}; a checkpoint is "
            "written: mend the judge and run the same command to go on"
        )


def _step_counts(events: EvolutionCounts) -> StepCounts:
    return StepCounts(
        edits=tuple(events.edits),
        num_contrasts=events.contrasts,
        num_saturated=events.saturated,
        num_saturable=events.saturable,
        num_restored=events.restored,
        num_deadline_missed=events.deadline_missed,
        num_commit_conflicts=events.commit_conflicts,
        num_refused_by_gate=events.refused_by_gate.total(),
    )


def _judge_metrics(counts: GradingCounts) -> dict[str, float]:
    metrics = {
        "judge/verdicts": float(counts.verdicts),
        "judge/cached": float(counts.cached),
        "judge/failed_rate": counts.failed / counts.verdicts if counts.verdicts else 0.0,
        "judge/latency_s/mean": _mean(counts.judge_s),
        "judge/latency_s/max": max(counts.judge_s, default=0.0),
    }
    return metrics | {f"judge/failed/{k}": float(n) for k, n in counts.failures.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
