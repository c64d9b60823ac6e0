"""The judge, the reference judge and the rubric writer of a run on Ray Serve, and their clients.

A run has an application for each, ``ratchet-<run>-judge`` and so on; a method that writes nothing
has no writer, and a run without ``reference_judge`` no second judge. A later start of the same run
adopts those that still run with the same config and prompts and replaces the others.
The clients never raise for what a judge, an endpoint or a replica does: a lost replica's requests
are asked again (grading is pure, so that is safe), and what stays unanswered is a failure of kind
``timeout`` or ``unavailable``. Every wait has a limit, whose message names who waited for whom.
Ray must be running before anything is started here.
"""

import asyncio
import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import SecretStr

from core.config import RunConfig
from core.config_served import ServedModelConfig
from core.errors import RunStopped
from drivers.gathered import first_error
from drivers.packaged_model import resolve_model
from drivers.replica_count import ReplicaCount
from drivers.served_clients import ServedJudge, ServedWriter, Watch
from drivers.spending import Spending
from drivers.whereabouts import at
from serve.backends.base import read_api_key
from serve.identity import judge_identity, writer_identity

T = TypeVar("T")

Part = Literal["judge", "writer", "reference_judge"]
PARTS: tuple[Part, ...] = ("judge", "writer", "reference_judge")
DEPLOYMENTS: dict[Part, str] = {
    "judge": "Judge",
    "writer": "RubricWriter",
    "reference_judge": "ReferenceJudge",
}
_ROOM_FACTOR = 2
"""Serve lets so many times as many calls into a replica as clients let out for it. Were they as
many, Serve's router would find replicas full that are not, and ask them over and over; backends
keep their own limits."""
_POLL_S = 0.5
_DESCRIBE_TIMEOUT_S = 60.0
_SERVE_TIMEOUT_S = 180.0
"""Longest wait for Serve's controller to answer one call."""

logger = logging.getLogger(__name__)

_DEPLOYING = threading.Lock()


def app_name(run: str, part: Part) -> str:
    """Return the Serve application's name."""
    return f"ratchet-{run}-{part}"


@dataclass(frozen=True, kw_only=True)
class Served:
    """The clients of what a run has on Serve."""

    judge: ServedJudge
    writer: ServedWriter
    """Under a method that writes nothing it has no deployment and is never asked."""
    reference: ServedJudge | None = None


async def start_serving(config: RunConfig, spending: Spending | None = None) -> Served:
    """Start Serve once, then the run's deployments side by side; replies go to ``spending``."""
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its own log files have the rest

    await _in_thread("start", functools.partial(serve.start, proxy_location="Disabled"))
    try:
        async with asyncio.TaskGroup() as starting:  # one that fails ends the others' starts
            judge = starting.create_task(start_judge(config, spending))
            writer = starting.create_task(start_writer(config, spending))
            reference = starting.create_task(start_reference_judge(config, spending))
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    return Served(judge=judge.result(), writer=writer.result(), reference=reference.result())


async def start_judge(config: RunConfig, spending: Spending | None = None) -> ServedJudge:
    """Deploy or adopt the run's judge and return its client."""
    identity = judge_identity(config.judge)
    handle = await _start(config.name, "judge", config.judge, identity)
    watch = _watch(config.name, "judge", spending)
    return ServedJudge(handle, config.judge, identity, watch=watch)


async def start_reference_judge(
    config: RunConfig, spending: Spending | None = None
) -> ServedJudge | None:
    """Deploy or adopt the run's reference judge and return its client; None without one."""
    reference = config.reference_judge
    if reference is None:
        return None
    identity = judge_identity(reference)
    handle = await _start(config.name, "reference_judge", reference, identity)
    watch = _watch(config.name, "reference_judge", spending)
    return ServedJudge(handle, reference, identity, prefix="reference_judge", watch=watch)


async def start_writer(config: RunConfig, spending: Spending | None = None) -> ServedWriter:
    """Deploy or adopt the run's rubric writer and return its client."""
    identity = writer_identity(config.writer)
    if not config.has_writer:
        return ServedWriter(None, config.writer, identity)
    handle = await _start(config.name, "writer", config.writer, identity)
    return ServedWriter(
        handle, config.writer, identity, watch=_watch(config.name, "writer", spending)
    )


def _watch(run: str, part: Part, spending: Spending | None) -> Watch:
    look = functools.partial(_num_running, app_name(run, part), part)
    return Watch(spending=spending, num_replicas=ReplicaCount(look).latest)


async def stop_serving(run: str, *, timeout_s: float = 60.0) -> tuple[str, ...]:
    """End the run's applications and their call limiters; return the names of those ended."""
    from ray import serve

    running = (await _in_thread("tell its status", serve.status)).applications
    ended = [app_name(run, part) for part in PARTS if app_name(run, part) in running]
    configs = [await _described(name) for name in ended]
    await asyncio.gather(*(_delete(name, timeout_s) for name in ended))
    for found in configs:
        if found is not None:
            await _stop_limiter(found[0])
    return tuple(ended)


async def _delete(name: str, timeout_s: float) -> None:
    from ray import serve

    try:
        await asyncio.wait_for(asyncio.to_thread(serve.delete, name, _blocking=True), timeout_s)
    except TimeoutError:
        logger.warning("the driver waited %.0f s for Serve to end %s, going on", timeout_s, name)


async def scale(run: str, part: Part, num_replicas: int, *, timeout_s: float = 600.0) -> None:
    """Bring a running application to so many replicas without touching those it keeps.

    Returns when they run; the replicas that remain are not restarted, and no request is lost.
    """
    from ray.serve._private.common import DeploymentID
    from ray.serve.context import _get_global_client

    name = app_name(run, part)
    client = await _in_thread("be found", _get_global_client)
    assert client is not None
    target = DeploymentID(name=DEPLOYMENTS[part], app_name=name)
    # What the dashboard's scale endpoint calls; redeploying would replace every replica.
    asked = client._controller.update_deployment_replicas.remote(target, num_replicas)
    await asyncio.wait_for(asked, _SERVE_TIMEOUT_S)
    deadline = time.monotonic() + timeout_s
    while await _num_running(name, part) != num_replicas:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the driver waited {timeout_s:.0f} s for {name} to run {num_replicas} replicas "
                f"(it runs {await _num_running(name, part)}): see `serve status`; the cluster may "
                "lack CPUs or GPUs for them"
            )
        await asyncio.sleep(_POLL_S)


# ------------------------------------------------------------------ deploying
async def _start(run: str, part: Part, config: ServedModelConfig, identity: str) -> Any:
    """Return the handle of the running application; deploys it unless it can be adopted."""
    from ray import serve

    key = read_api_key(config) if config.backend == "openai" else SecretStr("")
    await _in_thread("start", functools.partial(serve.start, proxy_location="Disabled"))
    name = app_name(run, part)
    if await _described(name) == (config.model_dump_json(), identity):
        logger.info("%s runs already with this config: adopted", name)
        return serve.get_app_handle(name)
    folder = config.model
    if config.backend == "vllm":
        folder = await asyncio.to_thread(resolve_model, config.model)
    logger.info("starting %s: %d replica(s) of %s", name, config.num_replicas, identity)
    build = functools.partial(_application, part, config, key, folder)
    # Not in _in_thread: the looks at the number of replicas are no progress of the run.
    with at("starting", detail=name, actor="Ray Serve"):
        handle = await _in_thread(f"take {name}", functools.partial(_deploy, name, build))
        await _wait_until_running(name, config.start_timeout_s)
    return handle


def _deploy(name: str, build: Callable[[], Any]) -> Any:
    """Hand an application to Serve, which starts it by itself; return its handle.

    One at a time: Serve notes for a moment, for the whole process, which modules are pickled by
    value, and two deployments at once take that away from each other.
    """
    from ray import serve

    with _DEPLOYING:
        target = serve.RunTarget(
            target=build(), name=name, route_prefix=None, external_scaler_enabled=True
        )
        return serve.run_many([target], wait_for_applications_running=False)[0]


def _application(part: Part, config: ServedModelConfig, key: SecretStr, folder: str) -> Any:
    from ray import serve

    from serve.judge import JudgeReplica
    from serve.writer import WriterReplica

    deployment: Any = serve.deployment(WriterReplica if part == "writer" else JudgeReplica)
    return deployment.options(**deployment_options(part, config)).bind(config, key, folder)


def deployment_options(part: Part, config: ServedModelConfig) -> dict[str, Any]:
    """Return the options of a part's deployment."""
    options: dict[str, Any] = {
        "name": DEPLOYMENTS[part],
        "num_replicas": config.num_replicas,
        "max_ongoing_requests": _ROOM_FACTOR * config.max_ongoing_requests,
        "max_queued_requests": config.max_queued_requests,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": 15.0,
        "ray_actor_options": {
            "num_cpus": config.num_cpus,
            "num_gpus": config.num_gpus,
            "runtime_env": _runtime_env(),
        },
    }
    if part != "writer" and config.backend == "vllm":
        from ray.serve.config import RequestRouterConfig

        # An endpoint has its own router before its engines, and rules have no cache.
        router: dict[str, Any] = {
            "request_router_class": "serve.routing.QueryAffinityRouter",
            "request_router_kwargs": {"places": config.max_ongoing_requests},
        }
        options["request_router_config"] = RequestRouterConfig(**router)
    return options


def _runtime_env() -> dict[str, Any]:
    """Return the job's runtime environment; without a working folder, ours is on the path."""
    import ray

    env = dict(ray.get_runtime_context().runtime_env)
    if not env.get("working_dir"):
        root = str(Path(__file__).resolve().parent.parent)
        env["env_vars"] = {"PYTHONPATH": root} | dict(env.get("env_vars") or {})
    return env


async def _wait_until_running(name: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        app = await _status(name)
        state = "absent" if app is None else app.status.value
        if state == "RUNNING":
            return
        detail = "" if app is None else _detail(app)
        if state in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise RunStopped(
                f"got {name} {state}, wanted it to run: {detail}; mend that, or see its log in the "
                "Ray dashboard, and run the same command again"
            )
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the driver waited {timeout_s:.0f} s for {name} to run (now {state}): {detail}; "
                "give it the resources it asks for or raise start_timeout_s"
            )
        await asyncio.sleep(_POLL_S)


def _detail(app: Any) -> str:
    messages = [app.message, *(d.message for d in app.deployments.values())]
    return " ".join(m.strip() for m in messages if m)[-2000:]


async def _in_thread(what: str, call: Callable[[], T]) -> T:
    """Return what a blocking call of Serve gives, within a limit."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(call), _SERVE_TIMEOUT_S)
    except TimeoutError:
        raise TimeoutError(
            f"the driver waited {_SERVE_TIMEOUT_S:.0f} s for Ray Serve to {what}: see `serve "
            "status` and the log of its controller in the Ray dashboard"
        ) from None


async def _status(name: str) -> Any:
    from ray import serve

    return (await _in_thread("tell its status", serve.status)).applications.get(name)


async def _num_running(name: str, part: Part) -> int:
    app = await _status(name)
    states = {} if app is None else app.deployments[DEPLOYMENTS[part]].replica_states
    counts = {str(getattr(state, "value", state)): n for state, n in states.items()}
    is_settled = set(counts) <= {"RUNNING"}
    return counts.get("RUNNING", 0) if is_settled else -1


async def _described(name: str) -> tuple[str, str] | None:
    """Return config (JSON) and identity of a running application; None if it does not answer."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    app = await _status(name)
    if app is None or app.status.value != "RUNNING":
        return None
    try:
        handle = serve.get_app_handle(name)
        return await asyncio.wait_for(_awaited(handle.describe.remote()), _DESCRIBE_TIMEOUT_S)
    except (RayError, RayServeException, TimeoutError) as error:
        logger.warning("%s runs but does not answer (%s): replaced", name, error)
        return None


async def _awaited(response: Any) -> Any:
    return await response


async def _stop_limiter(config_json: str) -> None:
    config = json.loads(config_json)
    if config["backend"] != "openai":
        return
    from serve.limits import stop_limiter

    fields = {name: config[name] for name in ServedModelConfig.model_fields}
    await stop_limiter(ServedModelConfig.model_validate(fields))
