"""What can be checked before anything is spent: data, anchors, models, keys, decidable criteria.

Importable without torch, vLLM or Ray. ``missing`` lists every problem; ``drivers.train`` ends with
exit code 2 on the first, ``--dry-run`` prints them all.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from actors.chat_template import policy_tokenizer, prompt_token_ids, read_chat_template
from core.config import RunConfig
from core.config_evolution import RareEvolution
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.query import Query
from core.rubric import Criterion
from core.rules.verifiers import check_rule, is_decidable
from drivers.packaged_model import PREFIX, check_packaged, find_gguf, unpacked_folder
from drivers.run_data import RunData, check_enough, with_queries
from drivers.runs_root import runs_root


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
        *(_served_problems("writer", config.writer) if config.has_writer else []),
        *_reference_problems(config),
        *_writer_problems(config),
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
    # os.path says no to names that no folder can have; pathlib raises.
    folder = Path(os.path.expanduser(model))
    is_path = model.startswith((".", "/", "~")) or os.path.isdir(folder)
    if not is_path:
        return []  # a hub name: only the hub knows
    if not os.path.isfile(folder / "config.json"):
        return [f"got policy.model={model:.200}, wanted a Hugging Face folder with a config.json"]
    return context_problems(config, folder)


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


def fitted_data(config: RunConfig, data: RunData, folder: Path) -> RunData:
    """Return the data without prompts over ``data.max_prompt_tokens``, if they may be left out.

    Raises ConfigError for a prompt that is too long, or that leaves no room for its response.
    ``folder`` is the model's, or the name that the hub knows it by.
    """
    limit = config.data.max_prompt_tokens
    policy = config.policy
    tokenizer = policy_tokenizer(
        str(folder),
        trust_remote_code=policy.trust_remote_code,
        chat_template=policy.chat_template,
    )
    train = _prompt_lengths(tokenizer, data.train)
    if limit is not None:
        over = {name: length for name, length in train.items() if length > limit}
        if over and config.data.overlong_prompt == "error":
            raise ConfigError(
                f"{_longest(over)}, wanted at most data.max_prompt_tokens={limit}: shorten the "
                "prompt, raise the limit, or set data.overlong_prompt=skip"
            )
        if over:
            data = replace(
                with_queries(config, data, [q for q in data.train if q.id not in over]),
                num_overlong=len(over),
            )
            check_enough(
                config,
                len(data.train),
                f" ({len(over)} have prompts over data.max_prompt_tokens={limit})",
            )
            kept = {q.id for q in data.train}
            train = {name: length for name, length in train.items() if name in kept}
    held_out = _prompt_lengths(tokenizer, data.eval)
    problem = _room_problem(config, train) or _room_problem(config, held_out)
    if problem:
        raise ConfigError(problem)
    return data


def _prompt_lengths(tokenizer: Any, queries: Sequence[Query]) -> dict[str, int]:
    """Return the tokens of each query's prompt as the policy is given it."""
    lengths: dict[str, int] = {}
    for query in queries:
        try:
            lengths[query.id] = len(prompt_token_ids(tokenizer, query.messages))
        except ConfigError as error:
            raise ConfigError(f"query {query.id[:80]!r}: {error}") from error
    return lengths


def _longest(lengths: Mapping[str, int]) -> str:
    length, name = max((length, name) for name, length in lengths.items())
    return (
        f"query {name[:80]!r}: got a prompt of {length} tokens ({len(lengths)} such queries in all)"
    )


def _room_problem(config: RunConfig, lengths: Mapping[str, int]) -> str:
    """Return a sentence for the longest prompt that leaves no room for its response."""
    policy, room = config.policy, config.policy.max_model_len - config.sampling.max_new_tokens
    over = {name: length for name, length in lengths.items() if length > room}
    if not over:
        return ""
    return (
        f"{_longest(over)}, wanted at most {room} (policy.max_model_len {policy.max_model_len} "
        f"minus sampling.max_new_tokens {config.sampling.max_new_tokens}): shorten the prompt, "
        "raise the first or lower the second"
    )


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
    if config.model.startswith(PREFIX):
        try:
            check_packaged(config.model)
        except ConfigError as error:
            return [f"{part}.model: {error}"]
    is_path = config.model.startswith((".", "/", "~"))
    folder = unpacked_folder() if config.model.startswith(PREFIX) else Path(config.model)
    if folder is None or not (is_path or os.path.isdir(folder)):
        return []
    folder = Path(os.path.expanduser(folder))
    if not os.path.isfile(folder / "config.json"):
        return [f"got {part}.model={config.model:.200}, wanted a Hugging Face folder"]
    return _over_context(
        f"{part}.max_model_len", config.max_model_len, folder, f"{part}.max_tokens"
    )


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
