"""How well a response meets a checklist's items, from 0 to 100, after RLCF.

The arithmetic of the released ``construct_offline_preference_data.py`` and
``generate_wildchat_openrlhf_dataset.py``: a model is asked for a number 25 times, and an item's
score is the mean of what can be read; where code can decide it too, the mean of both; a response's
reward is the weighted mean over its items, out of 1. What that code does silently is done openly
here: an item that nothing can be read of is missing (None), not -1 in a sum, and a response that
misses an item has no reward.
"""

import math
from collections.abc import Mapping, Sequence

from core.model_calls import Sampling
from core.templates import fenced, fill

FULL = 100.0

NUM_SAMPLES = 25

ITEM_SAMPLING = Sampling(
    temperature=1.3,
    top_p=0.9,
    max_tokens=10,
    stop=("USER:", "ASSISTANT:", "### Instruction:", "Response:", "<|eot_id|>", "####", "<END>"),
)
"""How a score is drawn; each sample has a seed of its own."""

MAX_PROMPT_TOKENS = 30_000
"""A longer prompt gives no score."""


def item_prompt(template: str, prompt: str, response: str, question: str) -> str:
    """Return the prompt that asks for the score of one response on one item."""
    return fill(
        template.rstrip("\n"),
        {
            "prompt": fenced(prompt, "request"),
            "response": fenced(response, "answer"),
            "question": fenced(question, "question"),
        },
    )


def sample_score(text: str) -> float | None:
    """Return the score of one sampled reply: its first word, if that is a number, at most 100.

    As in the released code, "85." and "-1" (which the prompt allows a judge that cannot tell) are
    no numbers. A fraction sign, on which that code would fail, is none either.
    """
    words = text.split()
    if not words or not words[0].isnumeric():
        return None
    try:
        return min(float(words[0]), FULL)
    except ValueError:
        return None


def item_score(replies: Sequence[str]) -> float | None:
    """Return the mean over the sampled replies that can be read, 0..100; None if none can."""
    scores = [s for s in map(sample_score, replies) if s is not None]
    return sum(scores) / len(scores) if scores else None


def yes_no_score(top_logprobs: Sequence[Mapping[str, float]]) -> float | None:
    """Return P(a) / (P(a) + P(b)), 0..1, of a reply to a question with the answers (A) and (B).

    ``top_logprobs`` holds, for each position of the reply, the log-probabilities of its most likely
    tokens. The first position whose most likely token is a or b counts (blanks and case aside);
    None where there is no such position.
    """
    for tokens in top_logprobs:
        if tokens and _letter(max(tokens, key=lambda t: tokens[t])) in ("a", "b"):
            shares = {"a": 0.0, "b": 0.0}
            for token, logprob in tokens.items():
                if _letter(token) in shares:
                    shares[_letter(token)] += math.exp(logprob)
            total = shares["a"] + shares["b"]
            return shares["a"] / total if total > 0 else None
    return None


def with_verifier(judged: float | None, is_met: bool | None) -> float | None:
    """Return an item's score where code decides it too: the mean of both, 100 or 0 for the code.

    ``is_met`` is None where code could not decide: the judged score stands alone. Without a judged
    score the item is missing.
    """
    if judged is None or is_met is None:
        return judged
    return (judged + (FULL if is_met else 0.0)) / 2


def weights_problem(weights: Sequence[float]) -> str | None:
    """Return why a checklist with these weights gives no reward, None if it does.

    As in the released code, one weight of zero is enough.
    """
    if not weights:
        return "no items"
    if any(w < 0 for w in weights):
        return "a negative weight"
    return "a weight of zero" if any(w == 0 for w in weights) else None


def checklist_reward(weights: Sequence[float], scores: Sequence[float | None]) -> float | None:
    """Return sum(w s) / (100 sum(w)), held to 0..1; None where a score is missing.

    Raises ValueError for weights that give no reward (``weights_problem``).
    """
    problem = weights_problem(weights)
    if problem is not None:
        raise ValueError(f"got {problem}, wanted weights above 0")
    met = [s for s in scores if s is not None]
    if len(met) < len(scores):
        return None
    total = sum(w * s for w, s in zip(weights, met, strict=True))
    return min(1.0, max(0.0, total / (FULL * sum(weights))))


def _letter(token: str) -> str:
    return token.strip().lower()
