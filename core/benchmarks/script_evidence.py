"""Pieces of a script audit that quote the script: their shape, and whether the words stand there.

A quote stands in a script when it does so after NFKC normalisation with everything but letters and
digits left out and letters in lower case, so that marks, spaces and line breaks do not matter. A
quote of several fragments joined by an ellipsis stands there when all of them do, in their order
and without overlap (Eureka-Maggie/RARE, rubric/judge/overall_v9_validator.py). Nothing raises: a
broken rule is a ``Broken``, whose text says got and wanted for the judge that is asked again.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

_ELLIPSIS = re.compile(r"\.{2,}|\u2026+")
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule of the audit that a reply breaks."""

    rule: str
    where: str
    text: str


def plain(text: str) -> str:
    """Return the letters and digits of a text, NFKC and in lower case."""
    return "".join(c.lower() for c in unicodedata.normalize("NFKC", text) if c.isalnum())


def quote_stands(quote: str, plain_script: str) -> bool:
    """Whether a quote, or each of its fragments in order, stands in ``plain(script)``."""
    fragments = [f for f in _ELLIPSIS.split(quote) if f.strip()]
    wanted = [plain(f) for f in fragments] if len(fragments) > 1 else [plain(quote)]
    position = 0
    for fragment in wanted:
        found = plain_script.find(fragment, position) if fragment else -1
        if found < 0:
            return False
        position = found + len(fragment)
    return True


def is_text(value: Any) -> bool:
    """Whether a value is a text that says something."""
    return isinstance(value, str) and bool(value.strip())


def lacking(value: Any, keys: tuple[str, ...]) -> list[str] | None:
    """Return the keys without a text of an object; None for what is no object."""
    if not isinstance(value, dict):
        return None
    found = cast(dict[str, Any], value)
    return [key for key in keys if not is_text(found.get(key))]


def listed(value: Any) -> list[Any] | None:
    """Return a list as one; None for anything else."""
    return cast(list[Any], value) if isinstance(value, list) else None


def evidence_problems(value: Any, where: str, plain_script: str) -> Iterator[Broken]:
    """Yield what is wrong with a list of ``{location, quote, interpretation}``."""
    items = listed(value)
    if items is None:
        yield Broken("evidence_shape", where, "wanted a list of evidence objects")
        return
    for number, item in enumerate(items):
        here = f"{where}[{number}]"
        missing = lacking(item, ("location", "quote", "interpretation"))
        if missing is None:
            yield Broken("evidence_shape", here, "wanted an object with a quote of the script")
        elif missing:
            yield Broken("evidence_shape", here, f"got no text for {missing}")
        elif not quote_stands(item["quote"], plain_script):
            shown = item["quote"][:_SHOWN]
            yield Broken(
                "quote", f"{here}.quote", f"got {shown!r}, wanted words that stand in the script"
            )
