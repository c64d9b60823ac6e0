"""Quotes that an analysis takes from a response, kept only when they really stand there.

An edit's evidence must be checkable: a fragment in quotation marks counts when it is a verbatim
substring of the response. What is paraphrased, shortened or invented is left out.
"""

import re

_QUOTED = re.compile(
    r'"([^"]+)"|\u201c([^\u201d]+)\u201d|\u2018([^\u2019]+)\u2019|`([^`]+)`|\u00ab([^\u00bb]+)\u00bb'
    r"|\u300c([^\u300d]+)\u300d|(?<!\w)'([^'\n]+)'(?!\w)"
)
_ELLIPSIS = re.compile(r"\s*(?:\u2026|\.\.\.)\s*")

_MIN_CHARS = 3
_MIN_PART_CHARS = 12
"""A part of a quote with an ellipsis must be this long, or it proves nothing."""
_MAX_QUOTES = 8


def quoted(text: str) -> tuple[str, ...]:
    """Return the fragments in quotation marks, in order."""
    return tuple(
        fragment.strip()
        for match in _QUOTED.finditer(text)
        for fragment in match.groups()
        if fragment is not None and fragment.strip()
    )


def quotes_in(analysis: str, response: str) -> tuple[str, ...]:
    """Return the quoted fragments of ``analysis`` that are verbatim substrings of ``response``."""
    found: dict[str, None] = {}
    for fragment in quoted(analysis):
        if len(fragment) >= _MIN_CHARS and fragment in response:
            found[fragment] = None
            continue
        parts = _ELLIPSIS.split(fragment)
        found.update(dict.fromkeys(p for p in parts if len(p) >= _MIN_PART_CHARS and p in response))
    return tuple(found)[:_MAX_QUOTES]
