"""One rollout worker: a vLLM engine that answers queries and takes new weights in flight.

A worker starts stale (version -1) and refuses to generate until ``load_weights`` gave it a version.
An update pauses running requests without aborting them; they go on under the new weights, so every
rollout carries the versions of its first and its last token. Log-probs are those of the
distribution that was sampled from. When the engine has died the process ends itself, so that
whoever made the actor can start it again; when the process is killed the engine's processes end
too (``actors/engine_guard.py``).
"""

import asyncio
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray

from actors.chat_template import policy_tokenizer, prompt_token_ids
from actors.engine_guard import remove_shared_memory, shared_memory_of
from core.engine_args import engine_env
from core.errors import RolloutError, StaleVersionError, WeightSyncError
from core.records import FinishReason, GenerateRequest, Rollout, WeightUpdate

logger = logging.getLogger(__name__)

STALE = -1
_HEAD_TOLERANCE = 0.02
"""bf16 rounding of a matrix product; a head left at older weights is far beyond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedVersion:
    """What a worker has after a weight update."""

    version: int
    checksums: Mapping[str, float]
    """Sums of the tensors named by the update, as the engine holds them."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatus:
    """A worker's state, for status lines and health checks."""

    version: int
    num_running: int
    pid: int


@dataclass(slots=True)
class _Answer:
    """What has come back of one request so far."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version_first: int | None = None
    version_last: int = STALE
    finish_reason: str | None = None


class RolloutWorker:
    """A vLLM engine behind ``generate`` and ``load_weights``."""

    def __init__(
        self,
        index: int,
        engine_args: Mapping[str, Any],
        *,
        num_cpus: float,
        is_cpu: bool,
        chat_template: str | None = None,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self.index = index
        self._args = dict(engine_args)
        self._chat_template = chat_template
        self._exit_process = exit_process
        self._version = STALE
        # Of the weights that tokens come from: an update makes the worker stale while tokens from
        # before its pause are still on their way.
        self._token_version = STALE
        self._num_loads = 0
        self._num_running = 0
        self._sync_lock = asyncio.Lock()
        # vLLM's own queue stays empty, so a request enters under the version it was salted with.
        self._places = asyncio.Semaphore(int(self._args["max_num_seqs"]))
        self._engine: Any = None
        self._tokenizer: Any = None
        self._watch: asyncio.Task[None] | None = None
        os.environ |= engine_env(
            is_cpu=is_cpu,
            num_cpus=num_cpus,
            owner_pid=os.getpid(),
            root=str(Path(__file__).resolve().parent.parent),
            env=os.environ,
        )

    def __repr__(self) -> str:
        state = "stale" if self._version == STALE else f"version {self._version}"
        return f"RolloutWorker {self.index} ({state}, {self._num_running} running)"

    # -------------------------------------------------------------- life
    async def start(self) -> None:
        """Start the engine with the base weights; the worker stays stale."""
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        if self._engine is not None:
            return
        started = time.monotonic()
        self._tokenizer = policy_tokenizer(
            self._args["model"],
            trust_remote_code=self._args.get("trust_remote_code", False),
            chat_template=self._chat_template,
        )
        self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._args))
        self._watch = asyncio.create_task(self._end_when_engine_dies())
        logger.info("%r: engine ready after %.0f s", self, time.monotonic() - started)

    async def shutdown(self) -> None:
        """End the engine and every process it started."""
        if self._watch is not None:
            self._watch.cancel()
        engine, self._engine = self._engine, None
        self._version = STALE
        if engine is None:
            return
        children = _engine_processes()
        memory = shared_memory_of(child.pid for child in children)
        await asyncio.to_thread(engine.shutdown, 2.0)
        await asyncio.to_thread(_end_processes, children, 2.0)
        remove_shared_memory(memory)  # what a killed engine process had made stays otherwise

    async def _end_when_engine_dies(self) -> None:
        while not self._engine.errored:
            await asyncio.sleep(1.0)
        self._die("its engine has died")

    def _die(self, reason: str) -> None:
        """End this process: a worker without engine can only fail, a new one can work."""
        logger.error("%r: %s, ending the process so that it can be started again", self, reason)
        self._version = STALE
        _end_processes(_engine_processes(), 0.0)
        self._exit_process(1)

    def status(self) -> WorkerStatus:
        """Return version and load, without asking the engine."""
        return WorkerStatus(version=self._version, num_running=self._num_running, pid=os.getpid())

    async def check_engine(self) -> WorkerStatus:
        """Return the status after a round trip to the engine: the caller's timeout tells hung."""
        await self._engine.is_paused()
        return self.status()

    # -------------------------------------------------------------- generation
    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout; a cancelled call frees its place in the engine."""
        started = time.monotonic()
        self._num_running += 1
        try:
            async with self._places:
                async with self._sync_lock:  # a new request waits for an update to end
                    self._require_version(request)
                prompt_token_ids = self._prompt_token_ids(request)
                answer = await self._answer(request, prompt_token_ids)
        finally:
            self._num_running -= 1
        return self._rollout(request, prompt_token_ids, answer, time.monotonic() - started)

    def _require_version(self, request: GenerateRequest) -> None:
        if self._engine is None or self._version == STALE:
            raise StaleVersionError(
                f"RolloutWorker {self.index} got query {request.query_id!r} before it had loaded "
                "any policy version, wanted load_weights first"
            )

    def _prompt_token_ids(self, request: GenerateRequest) -> list[int]:
        ids = prompt_token_ids(self._tokenizer, request.messages)
        room = self._args["max_model_len"] - request.max_new_tokens
        if len(ids) > room:
            raise RolloutError(
                f"query {request.query_id!r}: got a prompt of {len(ids)} tokens, wanted at most "
                f"{room} (policy.max_model_len {self._args['max_model_len']} minus "
                f"sampling.max_new_tokens {request.max_new_tokens}): shorten the prompt, "
                "raise the first or lower the second"
            )
        return ids

    async def _answer(self, request: GenerateRequest, prompt_token_ids: list[int]) -> _Answer:
        from vllm.v1.engine.exceptions import EngineDeadError

        answer = _Answer()
        # The salt keeps apart what different weights computed: resetting the prefix cache fails
        # as long as a request is running.
        prompt = {"prompt_token_ids": prompt_token_ids, "cache_salt": f"load {self._num_loads}"}
        request_id = f"{request.query_id}-{request.visit}-{request.index}-{uuid.uuid4().hex[:8]}"
        try:
            async for output in self._engine.generate(
                prompt, _sampling_params(request), request_id
            ):
                part = output.outputs[0]
                if part.token_ids and answer.version_first is None:
                    answer.version_first = self._token_version
                answer.version_last = self._token_version
                answer.token_ids += part.token_ids
                answer.logprobs += [
                    by_id[token].logprob
                    for token, by_id in zip(part.token_ids, part.logprobs or (), strict=True)
                ]
                answer.finish_reason = part.finish_reason
        except EngineDeadError:
            self._die(f"its engine died while it answered query {request.query_id!r}")
            raise
        return answer

    def _rollout(
        self, request: GenerateRequest, prompt_token_ids: list[int], answer: _Answer, seconds: float
    ) -> Rollout:
        where = f"query {request.query_id!r} rollout {request.index}"
        if answer.finish_reason not in ("stop", "length") or answer.version_first is None:
            raise RolloutError(
                f"{where}: got finish reason {answer.finish_reason!r} after "
                f"{len(answer.token_ids)} tokens, wanted stop or length"
            )
        if not all(math.isfinite(value) for value in answer.logprobs):
            raise RolloutError(
                f"{where}: got log-probs that are not finite, wanted numbers: "
                "the loaded weights may hold NaN"
            )
        reason: FinishReason = "stop" if answer.finish_reason == "stop" else "length"
        return Rollout(
            query_id=request.query_id,
            visit=request.visit,
            index=request.index,
            response=self._tokenizer.decode(answer.token_ids, skip_special_tokens=True),
            finish_reason=reason,
            prompt_token_ids=tuple(prompt_token_ids),
            token_ids=tuple(answer.token_ids),
            rollout_logprobs=tuple(answer.logprobs),
            policy_version_first=answer.version_first,
            policy_version_last=answer.version_last,
            seconds=seconds,
        )

    # -------------------------------------------------------------- weights
    def version(self) -> int:
        """Return the loaded policy version, -1 when the worker is stale."""
        return self._version

    async def load_weights(self, update: WeightUpdate) -> LoadedVersion:
        """Load a published version while running requests are paused; they go on afterwards.

        After a failure the worker is stale and its engine stays paused: it has to be restarted.
        """
        async with self._sync_lock:
            started = time.monotonic()
            self._check_loadable(update)
            sums = await self._load(update)
            self._num_loads += 1
            self._version = self._token_version = update.version
            await self._engine.resume_generation()
        return LoadedVersion(
            version=update.version, checksums=sums, seconds=time.monotonic() - started
        )

    def _check_loadable(self, update: WeightUpdate) -> None:
        if self._engine is None:
            raise WeightSyncError(
                f"RolloutWorker {self.index} got weights of version {update.version} before its "
                "engine was started, wanted start() first"
            )
        if update.transport == "shm" and not Path(update.location).is_file():
            raise WeightSyncError(
                f"RolloutWorker {self.index} found no file {update.location!r} for version "
                f"{update.version}, wanted what the learner published (shm needs learner and "
                "workers on one host: set rollout.weight_transport to object_store otherwise)"
            )

    async def _load(self, update: WeightUpdate) -> dict[str, float]:
        """Move the weights into the engine and return the checked sums."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        from actors.weight_files import host_files
        from actors.weight_transfer import file_sums

        names = list(update.checksums)
        published: dict[str, float] = {}
        try:
            await self._engine.pause_generation(mode="keep", clear_cache=False)
            self._version = STALE
            await self._engine.start_weight_update()
            async for path in host_files(update):
                published |= await asyncio.to_thread(file_sums, [path], names)
                await self._engine.update_weights(
                    WeightTransferUpdateRequest(update_info={"path": path})
                )
            await self._engine.finish_weight_update()
            # Frees what the old weights computed; refused while requests run, hence the salt.
            await self._engine.reset_prefix_cache()
            loaded = (await self._engine.collective_rpc("ratchet_model_sums", args=(names,)))[0]
            head_error = max(await self._engine.collective_rpc("ratchet_head_error"))
        except (WeightSyncError, asyncio.CancelledError):
            raise
        except Exception as error:
            if self._engine.errored:
                self._die(f"its engine died while it loaded version {update.version}")
            raise WeightSyncError(
                f"RolloutWorker {self.index} could not load version {update.version}: {error!r}"
            ) from error
        self._compare(update, "the published file", published)
        self._compare(update, "the engine", loaded)
        if head_error > _HEAD_TOLERANCE:
            raise WeightSyncError(
                f"RolloutWorker {self.index}, version {update.version}: the output head computes "
                f"something else than its weights (relative difference {head_error:.3f}, wanted "
                f"at most {_HEAD_TOLERANCE}): it kept older weights"
            )
        return loaded

    def _compare(self, update: WeightUpdate, where: str, sums: Mapping[str, float]) -> None:
        """Raise when a sum differs from the published one by more than 64-bit rounding."""
        for name, got in sums.items():
            wanted = update.checksums[name]
            if not math.isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-3):
                raise WeightSyncError(
                    f"RolloutWorker {self.index}, version {update.version}: the sum of {name} in "
                    f"{where} is {got!r}, the learner published {wanted!r}"
                )


def _sampling_params(request: GenerateRequest) -> Any:
    """Plain sampling at a temperature: no truncation, so its log-probs can be recomputed."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=request.temperature,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        seed=request.seed % (1 << 63),
        max_tokens=request.max_new_tokens,
        logprobs=0,  # the sampled token's only
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _engine_processes() -> list[psutil.Process]:
    """Everything this process started, but Python's resource tracker, which ends by itself."""
    processes: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if not any("resource_tracker" in word for word in process.cmdline()):
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def _end_processes(processes: list[psutil.Process], wait_s: float) -> None:
    """Wait a little for the processes to end by themselves, then kill them."""
    _, alive = psutil.wait_procs(processes, timeout=wait_s)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


RolloutWorkerActor = ray.remote(RolloutWorker)
