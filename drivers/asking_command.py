"""What commands that ask models have in common: the cost told before, and how they end.

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
from core.errors import ConfigError
from core.records import FailureKind
from drivers.asking import Asker, asking, model_name, say
from drivers.rubrics_text import shown
from serve.backends.base import cost_usd

PASSING: tuple[FailureKind, ...] = ("timeout", "unavailable")
"""Failures that the same command, started again, may not meet."""


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

    def line(self) -> str:
        """Return the plan in words."""
        text = (
            f"{self.does}: {model_name(self.config)}, {self.calls:,} calls, at most about "
            f"{self.prompt_tokens:,.0f} prompt and {self.completion_tokens:,.0f} completion tokens"
        )
        if self.config.has_prices:
            usd = cost_usd(self.config, round(self.prompt_tokens), round(self.completion_tokens))
            text += f", {usd:,.2f} USD"
        if self.tries > 1:
            text += f"; a reply that cannot be used is asked for again, up to {self.tries} times"
        return text


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


def ended(command: Callable[[], int]) -> int:
    """Return what ``command`` does, or the code and the message of what it raised."""
    try:
        return command()
    except ConfigError as error:
        say(shown(f"error: {error}"))
        return 2
    except OSError as error:
        say(
            f"stopped: got {error.strerror or error} ({error.filename or 'while writing'}), wanted "
            "files that can be read and written; the same command goes on from the replies kept"
        )
        return 1
    except KeyboardInterrupt:
        say("stopped: the same command goes on from the replies kept")
        return 128 + signal.SIGINT
