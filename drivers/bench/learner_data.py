"""The completions that every arm trains on, made once in a process of their own.

Prompts are four instructions of different length. Responses are real English text (Python's own
language reference, which every Python carries) with long-tailed lengths: lognormal, with a limit.
Rollout log-probs are the model's in float32: the importance ratio starts near 1, as on-policy.
Advantages are standard normal numbers, standardised in each group.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from core.records import TrainBatch, TrainingSample

_SHORT = (
    "Name three tools that a gardener needs in spring, and say in one sentence what each is for."
)
_LONG = (
    "A reader asks for help with a long letter to a town council about a bridge that has been "
    "closed since last winter. The letter has to name the two schools on the other side, the "
    "detour of six kilometres, and the promise that was made in May."
)
PROMPTS: tuple[str, ...] = (
    _SHORT,
    "Describe how a small boat gets back into its harbour against the wind, so that a child of ten "
    "understands every step and wants to hear the end.",
    _LONG,
    f"{_LONG} Write the letter in a friendly tone, keep it under two hundred words, give the "
    "council three choices for what to do next, and close with a question that they must answer.",
)
MEDIAN_LENGTH = 64
SIGMA = 0.7
SHORTEST = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSetup:
    """How many completions, and how long."""

    model: str
    """A Hugging Face folder."""
    group_size: int
    longest: int
    """Most tokens of a response."""
    seed: int


def send_batch(connection: Connection, setup: BatchSetup) -> None:
    """Run in a process of its own: make the batch and answer with it."""
    connection.send(make_batch(setup))


def make_batch(setup: BatchSetup) -> TrainBatch:
    """One group a prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chance = random.Random(setup.seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(setup.model)
    model: Any = AutoModelForCausalLM.from_pretrained(setup.model, dtype=torch.float32).eval()
    texts = _text_ids(tokenizer)
    groups: list[tuple[TrainingSample, ...]] = []
    for number, text in enumerate(PROMPTS):
        prompt = _prompt_ids(tokenizer, text)
        lengths = response_lengths(setup, chance)
        advantages = standardised([chance.gauss(0.0, 1.0) for _ in lengths])
        group: list[TrainingSample] = []
        for index, length in enumerate(lengths):
            response = [*(next(texts) for _ in range(length - 1)), int(tokenizer.eos_token_id)]
            with torch.no_grad():
                logprobs = plain_logprobs(model, prompt, response).tolist()
            group.append(
                TrainingSample(
                    query_id=f"q{number}",
                    index=index,
                    prompt_token_ids=tuple(prompt),
                    token_ids=tuple(response),
                    rollout_logprobs=tuple(logprobs),
                    advantage=advantages[index],
                )
            )
        groups.append(tuple(group))
    return TrainBatch(step=1, groups=tuple(groups), is_off_policy=False)


def response_lengths(setup: BatchSetup, chance: random.Random) -> list[int]:
    """Lognormal lengths between ``SHORTEST`` and the limit."""
    drawn = (chance.lognormvariate(0.0, SIGMA) * MEDIAN_LENGTH for _ in range(setup.group_size))
    return [max(SHORTEST, min(setup.longest, round(length))) for length in drawn]


def standardised(values: Sequence[float]) -> list[float]:
    """Values with mean 0 and variance 1."""
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return [(value - mean) / (deviation or 1.0) for value in values]


def plain_logprobs(model: Any, prompt: Sequence[int], response: Sequence[int]) -> Any:
    """Log-probs of one response from the full matrix of logits, one sequence at a time."""
    import torch

    ids = torch.tensor([[*prompt, *response]])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    rows = torch.log_softmax(logits.float(), dim=-1)
    return rows.gather(-1, torch.tensor(list(response)).unsqueeze(-1)).squeeze(-1)


def _prompt_ids(tokenizer: Any, text: str) -> list[int]:
    messages = [
        {"role": "system", "content": "Write clearly."},
        {"role": "user", "content": text},
    ]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(shown, add_special_tokens=False)["input_ids"])


def _text_ids(tokenizer: Any) -> Iterator[int]:
    """Tokens of Python's language reference, one after another."""
    from pydoc_data.topics import topics

    for _, text in sorted(topics.items()):
        yield from tokenizer(text, add_special_tokens=False)["input_ids"]
