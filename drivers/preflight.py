"""What can be checked before anything is spent: data, anchors, models, keys, decidable criteria.

Importable without torch, vLLM or Ray. ``missing`` lists every problem; ``drivers.train`` ends with
exit code 2 on the first, ``--dry-run`` prints them all.
"""

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.chat_template import read_chat_template
from core.config import PolicyConfig, RunConfig
from core.config_evolution import RareEvolution
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.query import Query
from core.rubric import Criterion
from core.rules.verifiers import check_rule, is_decidable
from drivers.packaged_model import PREFIX, check_packaged, find_gguf, unpacked_folder
from drivers.run_data import RunData
from drivers.runs_root import runs_root

_POLICY_ALSO = "sampling.max_new_tokens"
"""What to lower with ``policy.max_model_len``."""


def missing(config: RunConfig, data: RunData) -> list[str]:
    """Return one sentence for each thing that the run needs and does not find."""
    return [
        *folder_problems(config.runs_dir, config.name),
        *_policy_problems(config),
        *template_problems(config.policy),
        *_rollout_problems(config),
        *tracker_problems(config.trackers),
        *_eval_problems(config),
        *_served_problems("judge", config.judge),
        *(_served_problems("writer", config.writer) if config.has_writer else []),
        *_reference_problems(config),
        *_writer_problems(config),
        *_rule_problems(config, (*data.train, *data.eval)),
    ]


def folder_problems(runs_dir: str | None, name: str) -> list[str]:
    """Say why the run's folder cannot be made; nothing stays of what is made to find out."""
    try:
        folder = runs_root(runs_dir) / name
    except ConfigError as error:
        return [str(error)]
    existing = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if existing.is_dir() and _takes_folders(existing):
        return []
    reason = "cannot be written" if existing.is_dir() else "is no folder"
    return [
        f"got {folder} for the run's files, but {existing} {reason}, wanted a folder that this "
        "user can write: set runs_dir (or RATCHET_RUNS_DIR) to one"
    ]


def _takes_folders(folder: Path) -> bool:
    """Try it: permissions say yes to root also where nothing can be made."""
    try:
        with TemporaryDirectory(prefix=".ratchet-", dir=folder):
            return True
    except OSError:
        return False


def _policy_problems(config: RunConfig) -> list[str]:
    policy = config.policy
    return model_problems("policy", policy.model, policy.max_model_len, _POLICY_ALSO)


def model_problems(part: str, model: str, max_model_len: int, also: str = "") -> list[str]:
    """Say what is wrong with a packaged model or a folder; of its own names only the hub knows.

    ``also`` is the key to lower with ``PART.max_model_len``, if there is one.
    """
    if model.startswith(PREFIX):
        try:
            check_packaged(model)
            find_gguf()
        except ConfigError as error:
            return [f"{part}.model: {error}"]
        unpacked = unpacked_folder()
        return _over_context(part, max_model_len, unpacked, also) if unpacked else []
    # os.path says no to names that no folder can have; pathlib raises.
    folder = Path(os.path.expanduser(model))
    if not (model.startswith((".", "/", "~")) or os.path.isdir(folder)):
        return []
    if not os.path.isfile(folder / "config.json"):
        return [f"got {part}.model={model:.200}, wanted a Hugging Face folder with a config.json"]
    return _over_context(part, max_model_len, folder, also)


def context_problems(config: RunConfig, folder: Path) -> list[str]:
    """Return what is wrong with the configured lengths for the policy's model in ``folder``."""
    return _over_context("policy", config.policy.max_model_len, folder, _POLICY_ALSO)


def _over_context(part: str, max_model_len: int, folder: Path, also: str) -> list[str]:
    key, path = f"{part}.max_model_len", folder / "config.json"
    more = f" (and {also})" if also else ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        context = content.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError) as error:
        return [f"got {path}, which cannot be read ({error}), wanted a model's config.json"]
    if isinstance(context, int) and max_model_len > context:
        return [
            f"got {key}={max_model_len}, wanted at most the model's context of {context}: "
            f"lower {key}{more}"
        ]
    return []


def template_problems(policy: PolicyConfig) -> list[str]:
    """Say why the chat template that the config gives cannot be read."""
    given = policy.chat_template
    if given is None:
        return []
    try:
        read_chat_template(given)
    except ConfigError as error:
        return [str(error)]
    return []


def _rollout_problems(config: RunConfig) -> list[str]:
    rollout = config.rollout
    problems: list[str] = []
    if rollout.tensor_parallel_size > 1 and rollout.tensor_parallel_size != rollout.num_gpus:
        problems.append(
            f"got rollout.tensor_parallel_size={rollout.tensor_parallel_size} with "
            f"rollout.num_gpus={rollout.num_gpus:g}, wanted as many GPUs a worker as its engine "
            "is split over: set both to the same number"
        )
    return problems


def tracker_problems(trackers: Sequence[str]) -> list[str]:
    """Say which trackers are not installed."""
    return [
        f"got tracker {name!r}, which is not installed: run `pip install {name}`, or take it out "
        "of trackers"
        for name in trackers
        if find_spec(name) is None
    ]


def _eval_problems(config: RunConfig) -> list[str]:
    if config.loop.eval_every == 0 or config.data.eval:
        return []
    return [
        f"got loop.eval_every={config.loop.eval_every} without data.eval, wanted a file of "
        "held-out queries: set data.eval, or loop.eval_every=0"
    ]


def _served_problems(part: str, config: ServedModelConfig) -> list[str]:
    has_key = bool(os.environ.get(config.api_key_env))
    if config.backend == "openai" and config.needs_key and not has_key:
        way_out = "base_url for an endpoint of your own"
        if config.base_url is not None:
            way_out = "api_key_env=OPENAI_API_KEY for an endpoint that needs no key"
        return [
            f"got {part}.backend=openai without a key, wanted the environment variable "
            f"{config.api_key_env} (or {part}.{way_out})"
        ]
    if config.backend != "vllm":
        return []
    return model_problems(part, config.model, config.max_model_len, f"{part}.max_tokens")


def _reference_problems(config: RunConfig) -> list[str]:
    reference = config.reference_judge
    return [] if reference is None else _served_problems("reference_judge", reference)


def _writer_problems(config: RunConfig) -> list[str]:
    """Say when code is to write what only a model can write."""
    method = config.evolution
    is_task = isinstance(method, RareEvolution) and method.scope == "task"
    needs_model = is_task or method.method in ("rler", "online_rubrics", "mpo")
    if config.writer.backend != "rules" or not needs_model:
        return []
    scope = " with evolution.scope=task" if is_task else ""
    return [
        f"got evolution.method={method.method}{scope} with writer.backend=rules, wanted a model: "
        "code cannot write these criteria; set writer.backend=openai or vllm and writer.model"
    ]


def _rule_problems(config: RunConfig, queries: Sequence[Query]) -> list[str]:
    problems: list[str] = []
    for query in queries:
        for criterion in (*query.rubric.criteria, *query.gold):
            problem = _rule_problem(config, criterion)
            if problem:
                problems.append(f"query {query.id!r}, criterion {criterion.id!r}: {problem}")
    return problems


def _rule_problem(config: RunConfig, criterion: Criterion) -> str | None:
    if criterion.rule is not None:
        return check_rule(criterion.rule, criterion.max)
    if config.judge.backend == "rules" and not is_decidable(criterion):
        return (
            "got a text that code cannot decide with judge.backend=rules, wanted a `rule` "
            "(or a judge of backend openai or vllm)"
        )
    return None
