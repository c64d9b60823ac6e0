"""Arena-Hard's verdict labels: how a judge's reply is read, and what a label is worth.

The reading is the authors' (github lmarena/arena-hard-auto, gen_judgment.py): on upper-cased text,
the last match of the first pattern that matches at all. So is the table (show_result.py): a strong
verdict counts as three battles, a tie as half a win. A label outside the table, such as ``A>>>B``,
stops their program with a KeyError; here it is no verdict, and kept beside the count of such.
The reasoning of a judge that thinks is not read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.grading.visible import visible_response

Side = Literal["A", "B", "tie"]

_STRONG = 3

LABEL_SCORES: dict[str, tuple[float, ...]] = {
    "A>B": (1.0,),
    "B<A": (1.0,),
    "A>>B": (1.0,) * _STRONG,
    "B<<A": (1.0,) * _STRONG,
    "A=B": (0.5,),
    "B=A": (0.5,),
    "A<B": (0.0,),
    "B>A": (0.0,),
    "A<<B": (0.0,) * _STRONG,
    "B>>A": (0.0,) * _STRONG,
}
"""By label, the battles that it makes, as scores of A."""

_PATTERNS = (re.compile(r"\[\[([AB<>=]+)\]\]"), re.compile(r"\[([AB<>=]+)\]"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """What the replies to one comparison say."""

    label: str | None
    """A label of the table; None when no reply has one."""
    odd: str | None = None
    """Without a label: what stood in the brackets of the last reply that had any."""
    tries: int = 0


def read_label(reply: str) -> str | None:
    """Return the label that a reply ends with, in the table or not; None when it has none."""
    text = visible_response(reply).upper()
    for pattern in _PATTERNS:
        found = pattern.findall(text)
        if found:
            return found[-1]
    return None


def read_game(replies: Sequence[str]) -> Game:
    """Return the first label of the table among the replies to one comparison, oldest first."""
    labels = [read_label(reply) for reply in replies]
    label = next((x for x in labels if x in LABEL_SCORES), None)
    odd = next((x for x in reversed(labels) if x is not None), None) if label is None else None
    return Game(label=label, odd=odd, tries=len(replies))


def battle_scores(game_1: str | None, game_2: str | None) -> tuple[float, ...] | None:
    """Return the scores of the model under test, one a battle: 2, 4 or 6 of them.

    In game 1 the baseline is A, in game 2 the model is. None when either label is missing or not
    in the table: a row counts whole or not at all. Source: show_result.py, game 2 first.
    """
    first, second = LABEL_SCORES.get(game_1 or ""), LABEL_SCORES.get(game_2 or "")
    if first is None or second is None:
        return None
    return second + tuple(1.0 - score for score in first)


def preferred_side(label: str) -> Side:
    """Return which side a label of the table prefers, however strongly."""
    score = LABEL_SCORES[label][0]
    return "tie" if score == 0.5 else ("A" if score == 1.0 else "B")
