"""What can be checked before anything is spent: data, anchors, models, keys, decidable criteria.

Importable without torch, vLLM or Ray. ``missing`` lists every problem; ``drivers.train`` ends with
exit code 2 on the first, ``--dry-run`` prints them all.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from actors.chat_template import policy_tokenizer, prompt_token_ids, read_chat_template
from core.config import RunConfig
from core.config_evolution import CareEvolution, RatchetEvolution
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.query import Query
from core.rubric import Criterion
from core.rules.verifiers import check_rule, is_decidable
from drivers.data_files import load_queries
from drivers.packaged_model import PREFIX, check_packaged, find_gguf, unpacked_folder
from drivers.runs_root import runs_root


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The queries of a run, checked."""

    train: tuple[Query, ...]
    eval: tuple[Query, ...]
    fingerprint: str
    num_without_anchor: int = 0
    """Training queries left out under ``data.missing_anchor: skip``."""


def load_run_data(config: RunConfig) -> RunData:
    """Return the queries of the run; raises ConfigError naming file, line and reason."""
    train = load_queries(config.data.train, strict=True)
    held_out = load_queries(config.data.eval, strict=True) if config.data.eval else None
    queries = train.queries
    if config.needs_anchor:
        queries = tuple(q for q in train.queries if q.anchor is not None)
        absent = [q.id for q in train.queries if q.anchor is None]
        if absent and config.data.missing_anchor == "error":
            raise ConfigError(
                f"{config.data.train}: got query {absent[0]!r} without an anchor "
                f"({len(absent)} in all), wanted one for evolution.method="
                f"{config.evolution.method}: add anchors, set data.missing_anchor=skip, or "
                "evolution.care.anchor=false"
            )
    if not queries:
        raise ConfigError(f"{config.data.train}: got no usable query, wanted at least one")
    if len(queries) < config.loop.groups_per_step:
        raise ConfigError(
            f"{config.data.train}: got {len(queries)} usable queries for "
            f"loop.groups_per_step={config.loop.groups_per_step}, wanted at least that many: "
            "lower groups_per_step or add queries"
        )
    return RunData(
        train=queries,
        eval=held_out.queries if held_out else (),
        fingerprint=train.fingerprint,
        num_without_anchor=len(train.queries) - len(queries),
    )


def missing(config: RunConfig, data: RunData) -> list[str]:
    """Return one sentence for each thing that the run needs and does not find."""
    return [
        *_folder_problems(config),
        *_policy_problems(config),
        *_template_problems(config),
        *_rollout_problems(config),
        *_tracker_problems(config),
        *_eval_problems(config),
        *_served_problems("judge", config.judge),
        *_served_problems("writer", config.writer),
        *_rule_problems(config, (*data.train, *data.eval)),
    ]


def _folder_problems(config: RunConfig) -> list[str]:
    """Say why the run's folder cannot be written; nothing is made to find out."""
    try:
        folder = runs_root(config.runs_dir) / config.name
    except ConfigError as error:
        return [str(error)]
    existing = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    reason = "cannot be written" if existing.is_dir() else "is no folder"
    return [
        f"got {folder} for the run's files, but {existing} {reason}, wanted a folder that this "
        "user can write: set runs_dir (or RATCHET_RUNS_DIR) to one"
    ]


def _policy_problems(config: RunConfig) -> list[str]:
    model = config.policy.model
    if model.startswith(PREFIX):
        try:
            check_packaged(model)
            find_gguf()
        except ConfigError as error:
            return [str(error)]
        unpacked = unpacked_folder()
        return context_problems(config, unpacked) if unpacked else []
    folder = Path(model)
    is_path = model.startswith((".", "/", "~")) or folder.is_dir()
    if not is_path:
        return []  # a hub name: only the hub knows
    if not (folder.expanduser() / "config.json").is_file():
        return [f"got policy.model={model}, wanted a Hugging Face folder with a config.json"]
    return context_problems(config, folder.expanduser())


def context_problems(config: RunConfig, folder: Path) -> list[str]:
    """Return what is wrong with the configured lengths for the model in ``folder``."""
    return _over_context(
        "policy.max_model_len", config.policy.max_model_len, folder, "sampling.max_new_tokens"
    )


def _over_context(key: str, wanted: int, folder: Path, also: str) -> list[str]:
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        context = content.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError) as error:
        return [f"got {path}, which cannot be read ({error}), wanted a model's config.json"]
    if isinstance(context, int) and wanted > context:
        return [
            f"got {key}={wanted}, wanted at most the model's context of {context}: "
            f"lower {key} (and {also})"
        ]
    return []


def prompt_problems(config: RunConfig, data: RunData, folder: Path) -> list[str]:
    """Return a sentence for the longest prompt that leaves no room for its response.

    ``folder`` is the model's, or the name that the hub knows it by.
    """
    policy, room = config.policy, config.policy.max_model_len - config.sampling.max_new_tokens
    tokenizer = policy_tokenizer(
        str(folder),
        trust_remote_code=policy.trust_remote_code,
        chat_template=policy.chat_template,
    )
    lengths: list[tuple[int, str]] = []
    for query in (*data.train, *data.eval):
        try:
            lengths.append((len(prompt_token_ids(tokenizer, query.messages)), query.id))
        except ConfigError as error:
            return [f"query {query.id[:80]!r}: {error}"]
    too_long = [entry for entry in lengths if entry[0] > room]
    if not too_long:
        return []
    length, longest = max(too_long)
    return [
        f"query {longest[:80]!r}: got a prompt of {length} tokens ({len(too_long)} such "
        f"queries in all), wanted at most {room} (policy.max_model_len {policy.max_model_len} "
        f"minus sampling.max_new_tokens {config.sampling.max_new_tokens}): shorten the prompt, "
        "raise the first or lower the second"
    ]


def _template_problems(config: RunConfig) -> list[str]:
    given = config.policy.chat_template
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


def _tracker_problems(config: RunConfig) -> list[str]:
    return [
        f"got tracker {name!r}, which is not installed: run `pip install {name}`, or take it out "
        "of trackers"
        for name in config.trackers
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
    has_key = config.base_url is not None or bool(os.environ.get(config.api_key_env))
    if config.backend == "openai" and not has_key:
        return [
            f"got {part}.backend=openai without a key, wanted the environment variable "
            f"{config.api_key_env} (or {part}.base_url for an endpoint of your own)"
        ]
    if config.backend != "vllm":
        return []
    if config.model.startswith(PREFIX):
        try:
            check_packaged(config.model)
        except ConfigError as error:
            return [f"{part}.model: {error}"]
    is_path = config.model.startswith((".", "/", "~"))
    folder = unpacked_folder() if config.model.startswith(PREFIX) else Path(config.model)
    if folder is None or not (is_path or folder.is_dir()):
        return []
    folder = folder.expanduser()
    if not (folder / "config.json").is_file():
        return [f"got {part}.model={config.model}, wanted a Hugging Face folder"]
    return _over_context(
        f"{part}.max_model_len", config.max_model_len, folder, f"{part}.max_tokens"
    )


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


def estimated_calls(config: RunConfig, data: RunData | None) -> dict[str, int]:
    """Return upper estimates of judge and writer calls of the whole run, without repeated tries.

    Gold criteria are judged in calls of their own; without data they are taken to be there.
    """
    groups = config.loop.steps * config.loop.groups_per_step
    has_writer = config.evolution.method != "static"
    is_double = isinstance(config.evolution, RatchetEvolution)
    rescoring = 0 if not has_writer or isinstance(config.evolution, CareEvolution) else groups
    return {
        "judge": groups * config.sampling.group_size * _calls_each(data and data.train)
        + rescoring
        + _num_held_out_rollouts(config, data) * _calls_each(data and data.eval),
        "writer": groups * (int(has_writer) + int(is_double)),
    }


def _calls_each(queries: Sequence[Query] | None) -> int:
    """Judge calls of one rollout: for its rubric, and for gold criteria if there are any."""
    return 1 + int(queries is None or any(q.gold for q in queries))


def _num_held_out_rollouts(config: RunConfig, data: RunData | None) -> int:
    every = config.loop.eval_every
    if data is None or not data.eval or not every:
        return 0
    num_passes = -(-config.loop.steps // every)
    return num_passes * len(data.eval) * config.sampling.eval_group_size
