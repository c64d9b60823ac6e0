"""Clients of the judge and the rubric writer behind Serve handles.

A client lets only so many calls out at a time as the deployment can work on, so a limit on one
request measures its service and not the queue. Requests of a replica that died, and requests that
Serve pushed back, are sent again with growing pauses until the limit. What replies cost goes to the
run's ``Spending``; when its budget is reached nothing new is sent, and the answer is a failure
``unavailable`` with that reason, which these clients do not count as one. ``stats()`` gives the
running totals as metrics, ``totals()`` as a record.
"""

import asyncio
import logging
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config_served import GradingConfig, ServedModelConfig, WriterConfig
from core.records import (
    Completion,
    FailureKind,
    JudgeReply,
    JudgeRequest,
    RescoreReply,
    RescoreRequest,
    Usage,
    Verdict,
)
from core.writer_requests import WriterRequest
from drivers.call_gate import CallGate
from drivers.spending import Spending

_MARGIN_S = 30.0
"""Time that Ray may take on top of what the backend allows itself."""
_MAX_LATENCIES = 2000
_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 5.0

_UNREAD: tuple[FailureKind, ...] = (
    "missing",
    "unparsable",
    "out_of_scale",
    "conflict",
    "truncated",
)
"""Failures of a reply that did come."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedStats:
    """What a client has seen; totals since its start."""

    calls: int
    """Requests answered or given up."""
    retries: int
    """Requests sent again because a replica died or pushed back."""
    verdicts: int
    failures: Mapping[str, int]
    """Failed verdicts (judge) or replies (writer), by kind."""
    usage: Usage
    """Of the model behind it."""
    latencies_s: tuple[float, ...]
    """Of the latest calls, oldest first."""
    in_flight: int
    waiting: int
    """Requests not yet sent (the queue depth on the driver's side)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """What a client reports to, and what it shows beside its own numbers."""

    spending: Spending | None = None
    num_replicas: Callable[[], int | None] = lambda: None
    """Replicas that run at present, where that is known."""


UNWATCHED = Watch()


class _Unanswered(Exception):
    """A request that stayed without an answer."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind: FailureKind = kind


class _OverBudget(_Unanswered):
    """A request that was not sent, since the run may spend no more."""

    def __init__(self, reason: str) -> None:
        super().__init__("unavailable", reason)


def in_flight_limit(config: ServedModelConfig, num_replicas: int | None = None) -> int:
    """Return how many calls the deployment works on at a time, with as many replicas as configured
    or as run at present."""
    ongoing = config.max_ongoing_requests * (num_replicas or config.num_replicas)
    return min(ongoing, config.max_concurrency) if config.backend == "openai" else ongoing


class _Client:
    """Sends requests to one deployment; counts what happens."""

    def __init__(
        self,
        handle: Any,
        config: ServedModelConfig,
        identity: str,
        *,
        name: str,
        prefix: str,
        watch: Watch,
    ) -> None:
        self.identity = identity
        self._handle = handle
        self._name = name
        self._prefix = prefix
        self._watch = watch
        self._served = config
        self._start_timeout_s = config.start_timeout_s
        self._gate = CallGate(in_flight_limit(config))
        self._calls = self._retries = self._verdicts = 0
        self._in_flight = self._waiting = 0
        self._failures: Counter[str] = Counter()
        self._usage = Usage()
        self._latencies: deque[float] = deque(maxlen=_MAX_LATENCIES)

    def totals(self) -> ServedStats:
        """Return what happened so far."""
        return ServedStats(
            calls=self._calls,
            retries=self._retries,
            verdicts=self._verdicts,
            failures=dict(self._failures),
            usage=self._usage,
            latencies_s=tuple(self._latencies),
            in_flight=self._in_flight,
            waiting=self._waiting,
        )

    def stats(self) -> dict[str, float]:
        """Return the running totals as metrics, named ``judge/*`` or ``writer/*``."""
        usage, latencies = self._usage, sorted(self._latencies)
        values = {
            "calls": float(self._calls),
            "retries": float(self._retries + usage.retries),
            "queue_depth": float(self._in_flight + self._waiting),
            "prompt_tokens": float(usage.prompt_tokens),
            "cached_prompt_tokens": float(usage.cached_prompt_tokens),
            "completion_tokens": float(usage.completion_tokens),
            "cost_usd": usage.cost_usd,
        }
        for percent in (50, 95, 99) if latencies else ():
            place = round((len(latencies) - 1) * percent / 100)
            values[f"latency_s/p{percent}"] = latencies[place]
        num_replicas = self._watch.num_replicas()
        if num_replicas is not None:
            values["num_replicas"] = float(num_replicas)
        return {f"{self._prefix}/{name}": value for name, value in values.items()}

    async def _send(self, method: str, request: Any, limit_s: float, num_calls: int = 1) -> Any:
        """Return the reply; raises ``_Unanswered`` when none comes."""
        self._check_budget()
        self._waiting += 1
        # A deployment that was scaled meanwhile has places for more calls, or for fewer.
        self._gate.resize(in_flight_limit(self._served, self._watch.num_replicas()))
        try:
            places = await self._gate.acquire(num_calls)  # ends: every holder's wait is limited
        finally:
            self._waiting -= 1
        try:
            self._check_budget()
            return await self._send_timed(method, request, limit_s)
        finally:
            self._gate.release(places)

    async def _send_timed(self, method: str, request: Any, limit_s: float) -> Any:
        started = time.monotonic()
        self._in_flight += 1
        try:
            return await self._send_again(method, request, limit_s)
        finally:
            self._in_flight -= 1
            self._calls += 1
            self._latencies.append(time.monotonic() - started)

    def _check_budget(self) -> None:
        spending = self._watch.spending
        if spending is not None and spending.reason:
            raise _OverBudget(spending.reason)

    def _spend(self, usage: Usage) -> None:
        self._usage += usage
        if self._watch.spending is not None:
            self._watch.spending.add(usage)

    async def _send_again(self, method: str, request: Any, limit_s: float) -> Any:
        from ray.exceptions import RayActorError
        from ray.serve.exceptions import BackPressureError

        started = time.monotonic()
        deadline = started + limit_s
        tries, lost = 0, ""
        while True:
            if lost and time.monotonic() >= deadline:
                raise self._given_up(method, request, "unavailable", lost)
            try:
                return await self._once(method, request, deadline - time.monotonic())
            except TimeoutError:
                waited = f"waited {time.monotonic() - started:.0f} s for {self._name}"
                raise self._given_up(method, request, "timeout", f"{waited} to answer") from None
            except (RayActorError, BackPressureError) as error:
                tries += 1
                self._retries += 1
                if isinstance(error, RayActorError):
                    # The replacement has to start before it can answer.
                    deadline = started + limit_s + self._start_timeout_s
                pause_s = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2**tries)
                pause_s *= random.uniform(0.5, 1.0)
                lost = f"{self._name} failed {tries} times, last: {type(error).__name__}"
                await asyncio.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            except Exception as error:
                # A bug in the replica's code, or Serve shutting down: told, never a score.
                detail = f"{self._name} raised {type(error).__name__}: {str(error)[-500:]}"
                raise self._given_up(method, request, "unavailable", detail) from error

    async def _once(self, method: str, request: Any, limit_s: float) -> Any:
        response = getattr(self._handle, method).remote(request)
        try:
            async with asyncio.timeout(limit_s):
                return await response
        except (TimeoutError, asyncio.CancelledError):  # nobody waits for it any more
            response.cancel()
            raise

    def _given_up(self, method: str, request: Any, kind: FailureKind, detail: str) -> _Unanswered:
        message = f"the driver's {method} of query {request.query_id!r}: {detail}"
        logger.warning("%s: %s", kind, message)
        return _Unanswered(kind, message)


class ServedJudge(_Client):
    """``JudgeClient`` over the deployment ``Judge`` or ``ReferenceJudge``."""

    def __init__(
        self,
        handle: Any,
        config: GradingConfig,
        identity: str,
        *,
        prefix: str = "judge",
        watch: Watch = UNWATCHED,
    ) -> None:
        name = f"the {prefix.replace('_', ' ')}"
        super().__init__(handle, config, identity, name=name, prefix=prefix, watch=watch)
        self._config = config

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        """Return a verdict for each criterion; one without a score has a failure kind."""
        num_calls = len(request.criteria) if self._config.per_criterion else 1
        try:
            reply: JudgeReply = await self._send(
                "grade", request, self._limit_s(num_calls), num_calls
            )
        except _OverBudget as error:
            return JudgeReply(verdicts=_unanswered(request, error), judge=self.identity)
        except _Unanswered as error:
            reply = JudgeReply(verdicts=_unanswered(request, error), judge=self.identity)
        self._count(reply.verdicts, reply.usage)
        return reply

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """Grade some criteria on all responses of a group in one call."""
        try:
            reply: RescoreReply = await self._send("rescore", request, self._limit_s(1))
        except _OverBudget as error:
            return self._unrescored(request, error)
        except _Unanswered as error:
            reply = self._unrescored(request, error)
        self._count([v for row in reply.verdicts for v in row], reply.usage)
        return reply

    def stats(self) -> dict[str, float]:
        """Return the running totals as metrics, ``judge/*`` or ``reference_judge/*``."""
        unread = sum(self._failures[kind] for kind in _UNREAD)
        rate = unread / self._verdicts if self._verdicts else 0.0
        return super().stats() | {f"{self._prefix}/parse_failure_rate": rate}

    def _limit_s(self, num_calls: int) -> float:
        """A reply and its one repair try, each within timeout_s; more calls go in rounds."""
        num_rounds = math.ceil(max(1, num_calls) / self._config.calls_at_once)
        return 2 * self._config.timeout_s * num_rounds + _MARGIN_S

    def _unrescored(self, request: RescoreRequest, error: _Unanswered) -> RescoreReply:
        row = _unanswered(request, error)
        return RescoreReply(verdicts=(row,) * len(request.responses), judge=self.identity)

    def _count(self, verdicts: Sequence[Verdict], usage: Usage) -> None:
        self._verdicts += len(verdicts)
        self._failures.update(v.failure for v in verdicts if v.failure is not None)
        self._spend(usage)


class ServedWriter(_Client):
    """``WriterClient`` over the deployment ``RubricWriter``."""

    def __init__(
        self, handle: Any, config: WriterConfig, identity: str, *, watch: Watch = UNWATCHED
    ) -> None:
        super().__init__(
            handle, config, identity, name="the rubric writer", prefix="writer", watch=watch
        )
        self._limit_s = config.timeout_s + _MARGIN_S

    async def write(self, request: WriterRequest) -> Completion:
        """Return the raw reply; ``failure`` is set when there is none."""
        try:
            reply: Completion = await self._send("write", request, self._limit_s)
        except _OverBudget as error:
            return self._unwritten(error)
        except _Unanswered as error:
            reply = self._unwritten(error)
        if reply.failure is not None:
            self._failures[reply.failure] += 1
        self._spend(reply.usage)
        return reply

    def _unwritten(self, error: _Unanswered) -> Completion:
        return Completion(
            text="",
            finish_reason="",
            model=self.identity,
            failure=error.kind,
            detail=str(error),
        )


def _unanswered(request: JudgeRequest | RescoreRequest, error: _Unanswered) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(criterion_id=c.id, score=None, max=c.max, reason=str(error), failure=error.kind)
        for c in request.criteria
    )
