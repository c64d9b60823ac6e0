"""Fills prompt templates so that untrusted text stays data.

``fill`` replaces every ``{{name}}`` of a template in one pass: what a value brings in is never read
again, so a policy that writes ``{{criteria}}`` gets those characters and nothing else.
``fenced`` puts untrusted text between two lines that the text cannot write itself: their mark is a
digest of the text. Spellings that a tokenizer would turn into a chat control token are broken by
one space, so that the text cannot end its chat turn either; tags of reasoning by two, so that a
judge that quotes the text does not end its own reasoning with it. ``json_text`` writes values as
JSON in which control tokens are escaped, since a criterion's text (which a writer may have taken
from a response) must come back from a judge or writer as it is. All of it is deterministic.
"""

import hashlib
import json
import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")

_CONTROL_TOKEN = re.compile(
    r"<(?=[|\uff5c]|/?(?:s|eos|bos|pad|unk|start_of_turn|end_of_turn|start_header_id|end_header_id)>"
    r"|<\s?/?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])",
    re.IGNORECASE,
)
"""The first character of a spelling that some chat template reserves."""

_REASONING_TAG = re.compile(
    r"[<\[\u25c1](?=\s?/?\s?(?:think|thinking|thought|reasoning|reflection|scratchpad)\s?[>\]\u25b7])",
    re.IGNORECASE,
)
"""The first character of a tag behind which a reply's reader would look for the verdict."""

_MARK_DIGITS = 10


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return ``template`` with each ``{{name}}`` replaced by ``values[name]``, in one pass.

    Raises ValueError for a placeholder without a value and for a value without a placeholder.
    """
    wanted = set(_PLACEHOLDER.findall(template))
    missing, unknown = sorted(wanted - set(values)), sorted(set(values) - wanted)
    if missing or unknown:
        raise ValueError(
            f"got values for {sorted(values)}, wanted {sorted(wanted)}: "
            f"missing {missing}, not in the template {unknown}; correct the prompt file or the call"
        )
    return _PLACEHOLDER.sub(lambda m: values[m.group(1)], template)


def fenced(text: str, label: str) -> str:
    """Return ``text`` as a section named ``label`` that nothing in ``text`` can close.

    The opening and the closing line carry a mark made from the text's digest; it is drawn again in
    the (practically impossible) case that the text holds it.
    """
    safe = _CONTROL_TOKEN.sub(lambda m: m.group(0) + " ", text)
    safe = _REASONING_TAG.sub(lambda m: m.group(0) + "  ", safe)
    lowered = safe.lower()
    attempt = 0
    while (mark := _mark(safe, attempt)) in lowered:
        attempt += 1
    return f"<{label} {mark}>\n{safe}\n</{label} {mark}>"


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON without any chat control token; it reads back equal.

    The first character of such a spelling, which can only stand inside a string, is escaped.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _CONTROL_TOKEN.sub(lambda m: f"\\u{ord(m.group(0)):04x}", text)


def _mark(text: str, attempt: int) -> str:
    data = f"{attempt}:{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_MARK_DIGITS]
