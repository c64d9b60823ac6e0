"""What ``build`` and ``validate`` share: what calls will cost, and when an endpoint is given up.

Costs are said before the first call, as upper estimates: prompt tokens from the length of the text,
completion tokens at their limit, calls whose replies are kept as free. Second tries are not in
them. An endpoint that fails many times in a row ends the command, which goes on where it was when
it is started again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.config_served import ServedModelConfig
from core.errors import RunStopped
from core.model_calls import ModelCall, Sampling, call_digest
from core.records import Completion
from drivers.asking import Asker, KeptReplies, model_name, say
from drivers.jsonl_files import read_rows

_BYTES_PER_TOKEN = 4
"""Of UTF-8, roughly, in any language."""

_FAILURES_IN_A_ROW = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The first calls to one model, by key, and the file of its replies."""

    config: ServedModelConfig
    role: str
    calls: Mapping[str, ModelCall]
    replies: Path


def sampling_of(config: ServedModelConfig) -> Sampling:
    """Return how the config says to sample."""
    return Sampling(temperature=config.temperature, max_tokens=config.max_tokens, seed=config.seed)


def say_costs(plans: Sequence[Planned]) -> None:
    """Tell the person what will be asked, and what it costs at most."""
    for plan in plans:
        say(cost_line(plan))


def cost_line(plan: Planned) -> str:
    """Return the estimate of one model's calls, in one line."""
    config, kept = plan.config, KeptReplies(plan.replies)
    name = model_name(config)
    due = [c for key, c in plan.calls.items() if kept.get(key, call_digest(c, name)) is None]
    if not due:
        return f"{plan.role}: {name}, nothing to ask: {len(plan.calls)} replies are kept"
    prompt = sum(_num_tokens(call) for call in due)
    completion = sum(call.sampling.max_tokens for call in due)
    line = (
        f"{plan.role}: {name}, {len(due)} calls ({len(plan.calls) - len(due)} more are kept), "
        f"about {prompt:,} prompt tokens, at most {completion:,} completion tokens"
    )
    if not config.has_prices:
        return f"{line} (no prices given: --{plan.role}-set usd_per_million_prompt_tokens=...)"
    usd = (
        prompt * config.usd_per_million_prompt_tokens
        + completion * config.usd_per_million_completion_tokens
    ) / 1e6
    return f"{line}, at most about {usd:.3g} US dollars"


def _num_tokens(call: ModelCall) -> int:
    size = sum(len(m.content.encode("utf-8", "replace")) for m in call.messages)
    return -(-size // _BYTES_PER_TOKEN)


def spent_row(asker: Asker, replies: Path) -> dict[str, float | int]:
    """Return what this command asked, and what all replies in the file cost when they were made."""
    rows = list(read_rows(replies))
    return {
        "calls": asker.usage.calls,
        "kept": asker.num_kept,
        "replies_in_all": len(rows),
        "prompt_tokens_in_all": sum(r["prompt_tokens"] for r in rows),
        "completion_tokens_in_all": sum(r["completion_tokens"] for r in rows),
        "usd_in_all": sum(r["cost_usd"] for r in rows),
    }


class Patience:
    """Ends the command when one endpoint fails many times and nothing comes between."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._num_failed = 0

    def saw(self, reply: Completion) -> None:
        """Count a reply; RunStopped when the endpoint seems to be gone."""
        is_failure = reply.failure in ("timeout", "unavailable")
        self._num_failed = self._num_failed + 1 if is_failure else 0
        if self._num_failed >= _FAILURES_IN_A_ROW:
            raise RunStopped(
                f"got no reply {self._num_failed} times in a row from the {self._role} "
                f"({reply.failure}: {reply.detail[:200]}), wanted an endpoint that answers: what "
                "was answered is kept, start the same command again when it is up"
            )
