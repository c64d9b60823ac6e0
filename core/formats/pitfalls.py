"""The sign trap: a criterion with a negative weight whose text already says what is wanted.

A penalty's score says how true its text is, so "recommends antibiotics" at -2 is right and "does
not recommend antibiotics" at -2 punishes the good response. RaR's generation prompt asks for both
wordings under one prefix: mistakes ("recommends ...") and omissions ("does not mention ..."), and
an omission IS the mistake. So a denied verb of telling (mention, include, explain, ...) leaves the
sign alone; any other denied verb, or one of avoiding, says what is wanted.
"""

import re
from typing import Literal

Wording = Literal["fault", "omission", "positive"]
"""``fault`` and ``omission`` are bad where true; ``positive`` is good where true."""

_DENIAL = re.compile(
    r"^(?:the |this )?(?:(?:response|answer|text|output|model)s? )?(?:should |must |may )?"
    r"(?P<denial>does not|doesn['\u2019]t|do not|don['\u2019]t|did not|never|not|"
    r"avoids?|avoiding|refrains? from|abstains? from|is free of|stays? clear of)\s+"
    r"(?:\w+ly\s+)?(?P<verb>[a-z]+)",
    re.IGNORECASE,
)
_TELLING = frozenset({
    "mention", "include", "address", "discuss", "explain", "specify", "provide", "identify",
    "acknowledge", "clarify", "consider", "recognize", "recognise", "describe", "cover",
    "emphasize", "emphasise", "highlight", "account", "list", "define", "distinguish",
    "differentiate", "note", "warn", "cite", "answer", "follow", "contain", "give", "show",
    "justify", "support", "ask", "check", "verify", "disclose", "quantify", "compare", "name",
})  # fmt: skip
_AVOIDING = ("avoid", "refrain", "abstain", "is free", "stay")


def wording(text: str) -> Wording:
    """Return how a criterion (without prefix) is worded, as far as its first verb tells."""
    match = _DENIAL.match(text.strip())
    if match is None:
        return "fault"
    if match["denial"].lower().startswith(_AVOIDING):
        return "positive"
    return "omission" if match["verb"].lower() in _TELLING else "positive"
