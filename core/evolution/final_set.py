"""Reads the set of criteria that a CARE writer gives: ``<ANALYSIS>`` and ``<FINAL_SET>``
(CARE appendix E.2).

The last complete set outside analysis and reasoning counts. It is taken whole or not at all: a
partial set, a placeholder, an unknown tag, an item that is no text, too many items or one too long
leave the current set in force, with the reason. What the writer left out is put back by the method,
not here. Never raises; linear in the text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.evolution.final_items import ItemError, tagged_items
from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.json_strict import read_strict
from core.grading.json_tree import containers_in
from core.grading.reply import is_cut_off, printable, reply_failure
from core.grading.reply_text import is_error_text, without_reasoning

_MAX_CHARS = 200_000
_ESCAPED_TAG = re.compile(r"&lt;(\s*/?\s*(?:FINAL[_ ]SET|ANALYSIS)\s*)&gt;", re.IGNORECASE)
_ANALYSIS = re.compile(r"<\s*(/?)\s*ANALYSIS\s*>", re.IGNORECASE)
_SET_TAG = re.compile(r"<\s*(/?)\s*FINAL[_ ]SET\s*>", re.IGNORECASE)
_MARKUP = re.compile(r"```[\w-]*|\*\*|[\s\ufeff]+")
_FENCE = re.compile(r"```[\w-]*|^\s*\*\*|\*\*\s*$")
_SET_KEYS = ("final_set", "final set", "rubrics", "rubric", "set", "items", "criteria")


@dataclass(frozen=True, slots=True)
class FinalSet:
    """What a writer's reply gives; on refusal ``items`` is the set in force, unchanged."""

    is_accepted: bool
    items: tuple[str, ...]
    """``[llm] text`` or ``[Resist] text``, one line each."""
    reason: str = ""
    """Why the set was refused; empty when accepted."""
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """What follows an opening tag, up to its closing tag, the next opening one, or the end."""

    content: str
    is_closed: bool


class _Refused(Exception):
    """The reply holds no set that can be adopted whole."""


def read_final_set(
    text: str,
    current: Sequence[str],
    *,
    max_items: int,
    max_chars: int,
    finish_reason: str,
) -> FinalSet:
    """Return the set that ``text`` gives, or ``current`` with the reason it was refused."""
    body, analysis = "", ""
    try:
        body, analysis = _split_analysis(_answer(text, current, finish_reason))
        items = tagged_items(
            _listed(body, is_cut=is_cut_off(finish_reason)),
            current,
            max_items=max_items,
            max_chars=max_chars,
        )
    except (_Refused, ItemError) as refusal:
        return FinalSet(False, tuple(current), str(refusal), printable(analysis))
    return FinalSet(True, items, "", printable(analysis))


def mentions_set(text: str) -> bool:
    """Return whether ``text`` holds a ``<FINAL_SET>`` tag, escaped or not."""
    return _SET_TAG.search(_ESCAPED_TAG.sub(r"<\1>", text)) is not None


def _answer(text: str, current: Sequence[str], finish_reason: str) -> str:
    """Return the reply without reasoning, its tags unescaped."""
    failure = reply_failure(text, finish_reason)
    if failure is not None:
        raise _Refused(failure.detail)
    if len(text) > _MAX_CHARS:
        raise _Refused(f"got {len(text)} characters, wanted at most {_MAX_CHARS}")
    answer = without_reasoning(text, current)
    if answer is None:
        raise _Refused("the reasoning never ends, so there is no set")
    if is_error_text(answer):
        raise _Refused("got an error text, wanted a set")
    return _ESCAPED_TAG.sub(r"<\1>", answer)


def _split_analysis(answer: str) -> tuple[str, str]:
    """Return the text outside the analysis and the analysis itself.

    Everything before a closing tag, back to its opening one, is analysis; a closing tag without an
    opening one makes the stretch before it analysis too (the text quoted there may hold tags).
    """
    outside: list[str] = []
    analysis: list[str] = []
    start, is_inside = 0, False
    for tag in _ANALYSIS.finditer(answer):
        stretch = answer[start : tag.start()]
        if tag.group(1):
            if not is_inside:
                analysis.extend(outside)
                outside = []
            analysis.append(stretch)
            is_inside = False
        elif is_inside:
            analysis.append(stretch)
        else:
            outside.append(stretch)
            is_inside = True
        start = tag.end()
    (analysis if is_inside else outside).append(answer[start:])
    return "\n".join(outside), "\n".join(a.strip() for a in analysis).strip()


def _listed(body: str, *, is_cut: bool) -> list[str]:
    """Return the raw items of the last set in ``body``."""
    sections, trailing = _sections(body)
    while sections and not sections[-1].is_closed and not _is_list_begun(sections[-1].content):
        trailing = sections.pop().content  # an opening tag that is only mentioned
    if not sections:
        raise _Refused("got no <FINAL_SET>, wanted one after the analysis")
    last = sections[-1]
    if is_cut and (not last.is_closed or _MARKUP.sub("", trailing)):
        raise _Refused("the reply was cut, wanted a complete <FINAL_SET>")
    content = _FENCE.sub("", last.content).strip()
    items = _json_items(content)
    if items is None and last.is_closed:
        items = _line_items(content)
    if items is None:
        raise _Refused("got a <FINAL_SET> that is no complete list of texts, wanted a JSON list")
    return items


def _sections(body: str) -> tuple[list[_Section], str]:
    """Return what stands behind each opening tag, and what stands behind the last tag."""
    sections: list[_Section] = []
    tags = list(_SET_TAG.finditer(body))
    for at, tag in enumerate(tags):
        if tag.group(1):
            continue
        following = tags[at + 1] if at + 1 < len(tags) else None
        end = len(body) if following is None else following.start()
        is_closed = following is not None and bool(following.group(1))
        sections.append(_Section(body[tag.end() : end], is_closed))
    return sections, body[tags[-1].end() :] if tags else body


def _is_list_begun(content: str) -> bool:
    return _MARKUP.sub("", content)[:1] in ("[", "{", "\uff3b", "\uff5b")


def _json_items(content: str) -> list[str] | None:
    """Return the texts of the one list that ``content`` is; None if it is something else."""
    node: Node | None = read_strict(content)
    if node is None:
        found = list(containers_in(content))
        if len(found) != 1 or found[0].is_damaged:
            return None
        around = content[: found[0].start] + content[found[0].end :]
        if _MARKUP.sub("", around):
            return None
        node = found[0].node
    if isinstance(node, Obj) and len(node.pairs) == 1 and node.is_closed:
        key = node.pairs[0].key.strip().casefold()
        node = node.pairs[0].value if key in _SET_KEYS else None
    if not isinstance(node, Arr) or not node.is_closed:
        return None
    items: list[str] = []
    for item in node.items:
        if not isinstance(item, Scalar) or not item.is_string:
            raise _Refused("got an item that is no text, wanted a list of texts")
        items.append(item.text)
    return items


def _line_items(content: str) -> list[str] | None:
    """Return the lines of a list written without JSON, each of which must carry a tag."""
    lines = [line for line in content.split("\n") if line.strip()]
    is_tagged = all(_TAGGED_LINE.match(line) for line in lines)
    return lines if lines and is_tagged else None


_TAGGED_LINE = re.compile(
    r"\s*(?:[-*\u2022]\s+|\(?\d{1,3}[.):]\s*)?\[(?:llm|resist)\]", re.IGNORECASE
)
