"""What commands that ask models have in common: the cost told before, and how they end.

An endpoint that fails many times in a row ends the command (``Patience``), which goes on where it
was when it is started again.
``told`` says before the first call how many calls each model gets at most and what they cost at the
config's prices; ``spent`` is what a progress bar shows meanwhile; ``told_spent`` comes at the end.
``ended`` turns what a command raises into an exit code and one sentence: 0 done, 1 stopped by the
machine, 2 for bad input.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from core.config_served import ServedModelConfig
from core.errors import ConfigError, RunStopped
from core.model_calls import ModelCall, call_digest
from core.records import PASSING, Completion
from drivers.asking import Asker, KeptReplies, asking, model_name, say
from drivers.jsonl_files import read_rows
from drivers.rubrics_text import shown
from serve.backends.base import cost_usd

_BYTES_PER_TOKEN = 4
"""Of UTF-8, roughly, in any language."""
_FAILURES_IN_A_ROW = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCalls:
    """The calls of one model, before any of them is made."""

    does: str
    config: ServedModelConfig
    calls: int
    prompt_tokens: float
    """Of all calls together, at most; an estimate from the number of characters."""
    completion_tokens: float
    """As ``prompt_tokens``."""
    tries: int = 1
    """How often a call is made at most, when its reply cannot be used."""
    kept: int = 0
    """Calls beside these whose replies are kept from an earlier start."""

    def line(self) -> str:
        """Return the plan in words."""
        kept = f" ({self.kept:,} more are kept)" if self.kept else ""
        text = (
            f"{self.does}: {model_name(self.config)}, {self.calls:,} calls{kept}, at most about "
            f"{self.prompt_tokens:,.0f} prompt and {self.completion_tokens:,.0f} completion tokens"
        )
        if self.config.has_prices:
            usd = cost_usd(self.config, round(self.prompt_tokens), round(self.completion_tokens))
            text += f", {usd:,.2f} USD"
        if self.tries > 1:
            text += f"; a reply that cannot be used is asked for again, up to {self.tries} times"
        return text


def planned(
    does: str, config: ServedModelConfig, calls: Mapping[str, ModelCall], replies: Path
) -> PlannedCalls:
    """Return the plan of calls that are known, by key, less those whose replies are kept."""
    kept, name = KeptReplies(replies), model_name(config)
    due = [c for key, c in calls.items() if kept.get(key, call_digest(c, name)) is None]
    return PlannedCalls(
        does=does,
        config=config,
        calls=len(due),
        prompt_tokens=sum(num_tokens(call) for call in due),
        completion_tokens=sum(call.sampling.max_tokens for call in due),
        kept=len(calls) - len(due),
    )


def num_tokens(call: ModelCall) -> int:
    """Return about how many tokens a call's conversation has."""
    size = sum(len(m.content.encode("utf-8", "replace")) for m in call.messages)
    return -(-size // _BYTES_PER_TOKEN)


def told(plans: Sequence[PlannedCalls]) -> None:
    """Say what will be asked, before anything is."""
    for plan in plans:
        say(plan.line())
    say("replies that are kept from an earlier start of this command cost nothing")


def spent(askers: Mapping[str, Asker]) -> dict[str, str]:
    """Return what a progress bar shows: by role, the calls made now, those kept, and their cost."""
    return {
        role: " ".join(f"{value} {name}" for name, value in asker.spent().items())
        for role, asker in askers.items()
    }


async def open_askers(
    stack: AsyncExitStack, configs: Sequence[tuple[str, ServedModelConfig]], folder: Path
) -> dict[str, Asker]:
    """Start the models of these roles; each keeps its replies in a file of its own."""
    return {
        role: await stack.enter_async_context(asking(config, folder / f"replies_{role}.jsonl"))
        for role, config in configs
    }


def told_spent(askers: Mapping[str, Asker]) -> None:
    """Say what was asked and spent, at the end."""
    for role, asker in askers.items():
        usage = asker.usage
        say(
            f"{role}: {usage.calls:,} calls now, {asker.num_kept:,} replies kept from before, "
            f"{usage.prompt_tokens:,} prompt and {usage.completion_tokens:,} completion tokens"
            + (f", {usage.cost_usd:,.2f} USD" if asker.config.has_prices else "")
        )


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

    def __init__(self, who: str) -> None:
        self._who = who
        self._num_failed = 0

    def saw(self, reply: Completion) -> None:
        """Count a reply; RunStopped when the endpoint seems to be gone."""
        self._num_failed = self._num_failed + 1 if reply.failure in PASSING else 0
        if self._num_failed >= _FAILURES_IN_A_ROW:
            raise RunStopped(
                f"got no reply {self._num_failed} times in a row from the {self._who} "
                f"({reply.failure}: {reply.detail[:200]}), wanted an endpoint that answers: what "
                "was answered is kept, start the same command again when it is up"
            )


def ended(command: Callable[[], int]) -> int:
    """Return what ``command`` does, or the code and the message of what it raised."""
    try:
        return command()
    except ConfigError as error:
        say(shown(f"error: {error}"))
        return 2
    except (RunStopped, TimeoutError) as error:
        say(shown(f"stopped: {error}"))
        return 1
    except OSError as error:
        say(
            f"stopped: got {error.strerror or error} ({error.filename or 'while writing'}), wanted "
            "files that can be read and written; the same command goes on from the replies kept"
        )
        return 1
    except KeyboardInterrupt:
        say("stopped: the same command goes on from the replies kept")
        return 128 + signal.SIGINT
