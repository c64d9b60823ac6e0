"""What a benchmark part is: a name, a measurement, and how its figures read as table rows.

``measure`` runs in a process of its own, on a machine that does nothing else, and returns what goes
under the part's name in ``results/bench.json``. Only ratios of what it measured side by side are
compared with a target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a person can ask of any part."""

    is_short: bool = False
    """Fewer steps and sizes: shows that a part works, its figures mean little."""
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure of the table."""

    name: str
    value: float | None
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target, False without a value."""
        if self.at_most is None and self.at_least is None:
            return None
        if self.value is None:
            return False
        is_low = self.at_most is None or self.value <= self.at_most
        return is_low and (self.at_least is None or self.value >= self.at_least)

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_most is not None and self.at_least is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return "" if self.at_least is None else f"at least {self.at_least:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One benchmark."""

    name: str
    """Its key in the result file."""
    measure: Callable[[Options], Any]
    rows: Callable[[Any], Sequence[Row]]
    """From what ``measure`` returned (read back from JSON)."""
