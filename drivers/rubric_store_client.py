"""The driver's side of the RubricStore: ``ports.Store`` over the actor.

Every call has a limit, and what it raises names who waited for whom and for what. A store that was
killed is restarted by Ray and its calls are retried, which callers only see as time; an exception
that the store itself raises (a changed data file, an unknown query) arrives as it is.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError

from actors.rubric_log import RubricVersion
from actors.rubric_store import RubricStoreActor
from core.errors import ConfigError, RunStopped
from core.records import Commit, CommitResult, Verdict
from core.rubric import Rubric
from drivers.combined_calls import CombinedCalls
from drivers.whereabouts import at

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 120.0
"""Longest wait for one call: time for a restart of the actor's process on a busy machine."""

_RUBRICS_PER_CALL = 1000


class StoreClient:
    """``ports.Store`` over an actor handle."""

    def __init__(self, handle: Any, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.handle = handle
        self.name = name
        self._timeout_s = timeout_s
        # Each rollout looks its verdicts up and puts them: by far the most calls of a run.
        self._lookups = CombinedCalls(self._look_up)
        self._puts = CombinedCalls(self._put)

    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """Make version 0 of each rubric known by its id; one that is known already stays."""
        items = list(rubrics.items())
        for start in range(0, len(items), _RUBRICS_PER_CALL):
            part = dict(items[start : start + _RUBRICS_PER_CALL])
            await self._wait(self.handle.register.remote(part), f"register {len(part)} rubrics")

    async def current(self, query_id: str) -> Rubric:
        """Return the current rubric."""
        ref = self.handle.current.remote(query_id)
        return await self._wait(ref, f"give rubric {query_id!r}")

    async def commit(self, commit: Commit) -> CommitResult:
        """Compare-and-set on the version, applied once a key."""
        ref = self.handle.commit.remote(commit)
        return await self._wait(ref, f"commit an edit of rubric {commit.query_id!r}")

    async def history(self, query_id: str) -> tuple[RubricVersion, ...]:
        """Return all versions of a rubric with their provenance, oldest first."""
        ref = self.handle.history.remote(query_id)
        return await self._wait(ref, f"give the history of rubric {query_id!r}")

    async def propose(self, commit: Commit) -> None:
        """Keep an edit until a person decides, once a key."""
        ref = self.handle.propose.remote(commit)
        await self._wait(ref, f"keep a waiting edit of rubric {commit.query_id!r}")

    async def num_waiting(self, query_id: str) -> int:
        """Return how many edits of a rubric wait and can be applied to its current version."""
        ref = self.handle.num_waiting.remote(query_id)
        return await self._wait(ref, f"count the waiting edits of rubric {query_id!r}")

    async def edited(self) -> tuple[RubricVersion, ...]:
        """Return every version that an edit made, of all rubrics."""
        return await self._wait(self.handle.edited.remote(), "give all edited versions")

    async def cached_verdicts(self, keys: Sequence[str]) -> Mapping[str, Verdict]:
        """Return the verdicts known for these cache keys."""
        if not keys:
            return {}
        return await self._lookups.ask(keys)

    async def _look_up(self, asked: Sequence[Sequence[str]]) -> Sequence[Mapping[str, Verdict]]:
        keys = tuple(dict.fromkeys(key for each in asked for key in each))
        ref = self.handle.cached_verdicts.remote(keys)
        found = await self._wait(ref, f"look up {len(keys)} cached verdicts")
        return [{key: found[key] for key in each if key in found} for each in asked]

    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember scored verdicts by cache key (failures are never kept)."""
        scored = {key: v for key, v in verdicts.items() if v.score is not None}
        if scored:
            await self._puts.ask(scored)

    async def _put(self, asked: Sequence[Mapping[str, Verdict]]) -> Sequence[None]:
        verdicts: dict[str, Verdict] = {}
        for each in reversed(asked):  # of one key the first that was asked is kept
            verdicts.update(each)
        ref = self.handle.put_verdicts.remote(verdicts)
        await self._wait(ref, f"keep {len(verdicts)} verdicts")
        return [None] * len(asked)

    async def snapshot(self, folder: str, step: int) -> None:
        """Write the state as of ``step`` into ``folder``."""
        ref = self.handle.snapshot.remote(folder, step)
        await self._wait(ref, f"write its snapshot of step {step}")

    async def restore(self, folder: str, step: int) -> None:
        """Make the state as of ``step`` current; later versions are set aside, not deleted.

        ``folder`` is empty when the run has no checkpoint yet.
        """
        ref = self.handle.restore.remote(folder, step)
        await self._wait(ref, f"restore step {step}")

    def close(self) -> None:
        """End the actor; the file has everything."""
        ray.kill(self.handle)

    async def _wait(self, ref: Any, what: str) -> Any:
        try:
            with at(what, actor=self.name):
                return await asyncio.wait_for(ref, self._timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"the driver waited {self._timeout_s:g} s for {self.name} to {what}: look at "
                "the store's log and at the disk that holds rubrics.sqlite"
            ) from None
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ConfigError | KeyError | ValueError):
                raise cause from None
            if isinstance(cause, sqlite3.Error | OSError):
                raise RunStopped(
                    f"{self.name} could not {what} ({cause}): nothing of it is kept; look at the "
                    "disk that holds the run's folder, then the same command goes on from the "
                    "last checkpoint"
                ) from error
            raise
        except RayActorError as error:
            raise RunStopped(
                f"{self.name} ended while the driver waited for it to {what}: {error}"
            ) from error


async def start_store(
    run_name: str,
    path: str | Path,
    options: Mapping[str, Any] | None = None,
    *,
    rubrics: Mapping[str, Rubric] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> StoreClient:
    """Start the run's store over the file at ``path`` and wait until it has opened it.

    ``options`` go to the actor's ``.options()`` on top of: no CPU of its own, restarts and call
    retries without limit (each is an event of its own; the client bounds every wait).
    ``rubrics`` are registered before this returns, and the name in the dashboard counts them.
    """
    name = f"RubricStore [{run_name}]"
    chosen = {"name": name, "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    chosen |= dict(options or {})
    try:
        handle = RubricStoreActor.options(**chosen).remote(str(path), len(rubrics or {}))
        await asyncio.wait_for(handle.pid.remote(), timeout_s)
    except TimeoutError:
        raise TimeoutError(
            f"the driver waited {timeout_s:g} s for {name} to open {path}: does the cluster "
            "have a node where it can be placed?"
        ) from None
    except RayActorError as error:
        raise ConfigError(f"{name} could not open {path}: {_reason(error)}") from error
    client = StoreClient(handle, name, timeout_s=timeout_s)
    try:
        await client.register(rubrics or {})
    except BaseException:
        client.close()
        raise
    return client


def _reason(error: Exception) -> str:
    """The last line of a remote traceback: the exception itself."""
    return str(error).strip().splitlines()[-1].removeprefix("core.errors.ConfigError: ")
