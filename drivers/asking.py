"""Asks models from a command; every reply is on disk before it is used.

The backend runs in this process, without Ray Serve and beside a run that may be going on. An
``Asker`` answers a call from the file of kept replies when exactly that call (key, model,
conversation, sampling) was answered before, so a command that was stopped goes on without asking
twice; failures are not kept. Calls run side by side up to the config's ``max_concurrency``, with a
progress bar where it takes longer than ten seconds and the cost so far where there are prices.
"""

import asyncio
import contextlib
import fcntl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.model_calls import ModelCall, call_digest
from core.records import Completion, Usage
from core.rows import Row
from drivers.gathered import gathered
from drivers.jsonl_files import append_rows, read_rows
from drivers.packaged_model import resolve_model
from serve.backends.base import CompletionBackend, CompletionRequest, read_api_key

T = TypeVar("T")
R = TypeVar("R")

_BAR_AFTER_S = 10.0
_CLOSE_S = 30.0
_MOST_AT_ONCE = 64


class KeptReplies:
    """The replies of one JSONL file, by call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = read_rows(path)
        self._rows: dict[tuple[str, str], Row] = {(r["key"], r["digest"]): r for r in rows}

    def get(self, key: str, digest: str) -> Completion | None:
        """Return the reply that this call had, if it had one."""
        row = self._rows.get((key, digest))
        if row is None:
            return None
        return Completion(text=row["text"], finish_reason=row["finish_reason"], model=row["model"])

    def keep(self, key: str, digest: str, reply: Completion) -> None:
        """Write a reply; it is on disk when this returns."""
        row = {
            "key": key,
            "digest": digest,
            "text": reply.text,
            "finish_reason": reply.finish_reason,
            "model": reply.model,
            "prompt_tokens": reply.usage.prompt_tokens,
            "completion_tokens": reply.usage.completion_tokens,
            "cost_usd": reply.usage.cost_usd,
        }
        append_rows(self._path, [row])
        self._rows[key, digest] = row


class Asker:
    """One model and the file of its replies.

    The model is started by the first call that is not answered from the file.
    """

    def __init__(
        self,
        config: ServedModelConfig,
        start: Callable[[], Awaitable[CompletionBackend]],
        kept: KeptReplies,
    ) -> None:
        self.config = config
        self.usage = Usage()
        """Of the calls made now; kept replies cost nothing."""
        self.num_kept = 0
        self._start = start
        self._backend: CompletionBackend | None = None
        self._starting = asyncio.Lock()
        self._kept = kept
        self._gate = asyncio.Semaphore(min(config.max_concurrency, _MOST_AT_ONCE))

    async def ask(self, key: str, call: ModelCall) -> Completion:
        """Return the kept reply or a new one; one with ``failure`` set is not kept."""
        digest = call_digest(call, model_name(self.config))
        kept = self._kept.get(key, digest)
        if kept is not None:
            self.num_kept += 1
            return kept
        request = CompletionRequest(
            messages=call.messages, schema=call.schema, sampling=call.sampling
        )
        async with self._starting:
            if self._backend is None:
                self._backend = await self._start()
        async with self._gate:
            reply = await self._backend.complete(request)
        self.usage += reply.usage
        if reply.failure is None:
            self._kept.keep(key, digest, reply)
        return reply

    def spent(self) -> dict[str, str]:
        """Return what a progress bar shows beside the count."""
        usage = self.usage
        shown = {"calls": str(usage.calls), "kept": str(self.num_kept)}
        if self.config.has_prices:
            shown["usd"] = f"{usage.cost_usd:.3f}"
        return shown


@contextlib.asynccontextmanager
async def asking(config: ServedModelConfig, path: Path) -> AsyncIterator[Asker]:
    """Open the model's replies at ``path``; ConfigError for a model that cannot answer in free text
    (``backend: rules``), a key that is missing, or a file that is in use."""
    if config.backend == "rules":
        raise ConfigError(
            "got backend=rules, which answers no free question, wanted a model: give its NAME (and "
            "a URL for an endpoint of your own)"
        )
    if config.backend == "openai":
        read_api_key(config)  # a key that is missing is told before anything is done
    with only_here(path):
        async with contextlib.AsyncExitStack() as ending:

            async def start() -> CompletionBackend:
                backend = await ending.enter_async_context(model_backend(config))
                assert backend is not None, "rules are refused before"
                return backend

            yield Asker(config, start, KeptReplies(path))


@contextmanager
def only_here(path: Path) -> Iterator[None]:
    """Keep other commands away from a file while this one writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{path}: got a file that another command is writing, wanted it alone: wait for "
                "that command, or give another output folder"
            ) from None
        yield


@contextlib.asynccontextmanager
async def model_backend(config: ServedModelConfig) -> AsyncIterator[CompletionBackend | None]:
    """Start the model behind ``config`` in this process; None for the embedded rules."""
    backend = await _start(config)
    try:
        yield backend
    finally:
        if backend is not None:
            with contextlib.suppress(TimeoutError):  # the process ends soon, and the replies are in
                await asyncio.wait_for(backend.close(), _CLOSE_S)


async def _start(config: ServedModelConfig) -> CompletionBackend | None:
    if config.backend == "rules":
        return None
    if config.backend == "vllm":
        from serve.backends.vllm import start_vllm_backend

        return await start_vllm_backend(
            config.model_copy(update={"model": resolve_model(config.model)})
        )
    key = read_api_key(config)
    from serve.backends.openai import OpenAIBackend
    from serve.limits import CallLimiter, CallSlots, endpoint_of

    slots = CallSlots(CallLimiter(endpoint_of(config)), "commands", config.max_concurrency)
    return OpenAIBackend(config, key, slots)


async def side_by_side(
    items: Sequence[T],
    work: Callable[[T], Awaitable[R]],
    *,
    unit: str,
    at_once: int = _MOST_AT_ONCE,
    shown: Callable[[], dict[str, str]] | None = None,
) -> list[R]:
    """Do the work for each item, a bounded number side by side; return the results in order.

    ``shown`` gives what stands beside the progress bar's count, such as ``Asker.spent``.
    """
    gate = asyncio.Semaphore(min(at_once, _MOST_AT_ONCE))
    bar = tqdm(total=len(items), unit=f" {unit}", delay=_BAR_AFTER_S, file=sys.stderr)

    async def one(item: T) -> R:
        async with gate:
            result = await work(item)
        if shown is not None:
            bar.set_postfix(shown(), refresh=False)
        bar.update(1)
        return result

    try:
        return await gathered(one(item) for item in items)
    finally:
        bar.close()


def model_name(config: ServedModelConfig) -> str:
    """Return the model in words: backend and name."""
    return "rules" if config.backend == "rules" else f"{config.backend} {config.model}"


def say(text: str) -> None:
    """Tell the person at the terminal something that is no result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
