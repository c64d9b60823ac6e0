"""Optional parts of a prompt template.

A line ``[[name]]`` opens a part and ``[[/name]]`` closes it; parts do not nest. A method keeps the
parts its switches ask for, before any untrusted text is filled in, so the whole prompt stays one
file in ``prompts/``.
"""

import re
from collections.abc import Collection

_PART = re.compile(r"^\[\[(?P<name>[a-z_]+)\]\]\n(?P<body>.*?)^\[\[/(?P=name)\]\]\n", re.M | re.S)
_MARK = re.compile(r"^\[\[/?[a-z_]+\]\]$", re.M)


def keep_parts(template: str, names: Collection[str]) -> str:
    """Return the template with only the named parts, without their marks.

    Raises ValueError for a name that the template does not have and for a mark without its pair.
    """
    found = {match.group("name") for match in _PART.finditer(template)}
    unknown = sorted(set(names) - found)
    if unknown:
        raise ValueError(f"got the parts {unknown}, wanted some of {sorted(found)}")
    kept = _PART.sub(lambda m: m.group("body") if m.group("name") in names else "", template)
    stray = _MARK.search(kept)
    if stray:
        raise ValueError(f"got the mark {stray.group()!r} without its pair in a prompt template")
    return kept
