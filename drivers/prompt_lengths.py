"""Prompts against the policy's tokens: too long ones are refused, or left out where asked for.

Runs once the policy's folder is there, before anything else is started. Lengths are those of the
chat template's tokens, as the rollout workers are given them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.chat_template import policy_tokenizer, prompt_token_ids
from core.config import RunConfig
from core.errors import ConfigError
from core.query import Query
from drivers.run_data import RunData, check_enough, with_queries


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
