"""What a run has spent on judge, reference judge and writer, over all its lives, and its budget.

Every client adds the usage of every reply. The totals lie in ``spending.json`` of the run's folder,
written whole every few seconds while replies come and whenever ``save`` is called, so a resume goes
on counting; a killed driver loses the calls of the last seconds. When the budget is reached
``on_exceeded`` is called once with the reason, and from then on the clients send nothing new: they
answer that reason. What was under way then still arrives and counts, so a run may pass its budget
by the calls in flight.
"""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from core.config_served import BudgetConfig
from core.errors import ConfigError, RunStopped
from core.records import Usage
from drivers.jsonl_files import write_whole

_SAVE_EVERY_S = 5.0

log = logging.getLogger(__name__)


class Spending:
    """The running totals of one run; one event loop uses it."""

    def __init__(self, budget: BudgetConfig, path: Path) -> None:
        self._budget = budget
        self._path = path
        self._usd, self._tokens = _read(path)
        self._saved = (self._usd, self._tokens)
        self._saved_at = time.monotonic()
        self._has_warned = False
        self.reason = self._why_exceeded()
        """Why nothing more may be spent; empty within the budget."""
        self.on_exceeded: Callable[[str], None] | None = None
        """Called once, with the reason, by the reply that reaches the budget."""

    def check(self) -> None:
        """Raise RunStopped when earlier lives of the run have used the budget up."""
        if self.reason:
            raise RunStopped(self.reason)

    def add(self, usage: Usage) -> None:
        """Count one reply."""
        self._usd += usage.cost_usd
        self._tokens += usage.prompt_tokens + usage.completion_tokens
        self._warn_of_silence(usage)
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self.save()
        if not self.reason and (reason := self._why_exceeded()):
            self.reason = reason
            self.save()
            log.warning("%s", reason)
            if self.on_exceeded is not None:
                self.on_exceeded(reason)

    def save(self) -> None:
        """Write the totals, if they changed."""
        self._saved_at = time.monotonic()
        if self._saved == (self._usd, self._tokens):
            return
        totals = {"usd": self._usd, "tokens": self._tokens}
        write_whole(self._path, json.dumps(totals).encode() + b"\n")
        self._saved = (self._usd, self._tokens)

    def metrics(self) -> dict[str, float]:
        """Return what the whole run has spent so far; nothing where nothing costs anything."""
        is_limited = self._budget.usd is not None or self._budget.tokens is not None
        if not (is_limited or self._tokens or self._usd):
            return {}
        return {"budget/usd_spent": self._usd, "budget/tokens_spent": float(self._tokens)}

    def _why_exceeded(self) -> str:
        usd, tokens = self._budget.usd, self._budget.tokens
        what = ""
        if usd is not None and self._usd >= usd:
            what = f"got {self._usd:.4f} US dollars spent, wanted at most budget.usd={usd:g}"
        elif tokens is not None and self._tokens >= tokens:
            what = f"got {self._tokens} tokens spent, wanted at most budget.tokens={tokens}"
        return what and (
            f"{what} for judge and writer in all parts of the run; every finished step is in a "
            "checkpoint: raise the budget and run the same command to go on"
        )

    def _warn_of_silence(self, usage: Usage) -> None:
        """A budget cannot hold where an endpoint does not say what its replies cost."""
        is_limited = self._budget.usd is not None or self._budget.tokens is not None
        is_silent = usage.calls > usage.retries and usage.prompt_tokens == 0
        if is_limited and is_silent and not self._has_warned:
            self._has_warned = True
            log.warning(
                "got a call whose tokens the endpoint does not tell (or that failed), wanted its "
                "usage: such calls do not count towards the budget"
            )


def _read(path: Path) -> tuple[float, int]:
    """Return the totals of earlier lives of the run."""
    if not path.is_file():
        return 0.0, 0
    try:
        totals = json.loads(path.read_bytes())
        return float(totals["usd"]), int(totals["tokens"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{path}: got a file that cannot be read ({type(error).__name__}), wanted what the run "
            'has spent: write {"usd": 0.0, "tokens": 0} with the sums of your provider\'s bill, or '
            "start over with fresh=true"
        ) from None
