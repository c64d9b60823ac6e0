"""Reads the meta judge's replies: an analysis, the refined criteria of one sample, the merged set.

The released code asks for the number of criteria and then for one after the other, each in a call
of its own; here one reply holds them all, in the form of MPO's rubric files:
``<rubric><item>...</item></rubric>``, an item of a heading and ``- (score): description`` lines.
The last whole ``<rubric>`` counts. An analysis may be anything but empty. What cannot be used
raises WriterReplyError: the sample is left out, or, of a merge, the old rubric stays.
"""

import re
from collections.abc import Iterable, Sequence

from core.errors import WriterReplyError
from core.evolution.mpo import MpoItem
from core.evolution.origin import stands_in
from core.evolution.rare_task import is_unspaced
from core.evolution.similarity import compact_text
from core.evolution.strict_object import checked_text
from core.grading.reply import is_cut_off
from core.grading.reply_text import is_refusal, without_reasoning
from core.records import Completion
from core.writer_requests import MetaMergeRequest, MetaRefineRequest

_TAG = re.compile(r"<(/?)(rubric|item)>", re.IGNORECASE)
_LEVEL = re.compile(
    r"^[ \t]*[-*\u2022]?[ \t]*\**[(\uff08][ \t]*(\d{1,9})[ \t]*[)\uff09]\**[ \t]*[:\uff1a]\**",
    re.MULTILINE,
)
_WORDS_A_TOKEN = 1.5
"""The released estimate: a word is 1.5 tokens."""
MAX_ANALYSIS_WORDS = int(2_000 / _WORDS_A_TOKEN)
MAX_MERGE_WORDS = int(25_000 / _WORDS_A_TOKEN)
SEPARATOR = "\n===\n"
"""Stands between the refinements in the merge prompt."""


def read_analysis(reply: Completion) -> str:
    """Return the analysis of one sample, as much of it as the next prompts have room for."""
    text = first_words(_body(reply).strip(), MAX_ANALYSIS_WORDS)
    if not text:
        raise WriterReplyError("got an empty analysis, wanted a text")
    return text.encode("utf-8", "replace").decode("utf-8")


def read_refinement(reply: Completion, request: MetaRefineRequest) -> str:
    """Return the criteria that one sample asks for, as text for the merge."""
    texts = _item_texts(reply, request.max_criteria)
    _check_origin(texts, (request.sample.response,))
    return "\n\n".join(texts)


def read_merge(
    reply: Completion, request: MetaMergeRequest, responses: Iterable[str]
) -> tuple[MpoItem, ...]:
    """Return the merged criteria, each different one once, in the reply's order.

    ``responses`` are those of the samples: a criterion that one of them brought along is refused.
    """
    texts = _item_texts(reply, request.max_criteria)
    _check_origin(texts, responses)
    return tuple(_item(text, request.max_points, n) for n, text in enumerate(texts, start=1))


def fitting_refinements(refinements: Sequence[str]) -> str:
    """Return the refinements as the merge prompt shows them: whole ones, as many as there is room.

    The first is shown in any case, cut if it must be.
    """
    shown: list[str] = []
    left = MAX_MERGE_WORDS
    for text in refinements:
        num_words = sum(1 for _ in _words(text))
        if num_words > left:
            break
        shown.append(text)
        left -= num_words
    return SEPARATOR.join(shown or [first_words(refinements[0], MAX_MERGE_WORDS)])


def first_words(text: str, limit: int) -> str:
    """Return the text up to its ``limit``-th word; of unspaced scripts a character is a word."""
    end = 0
    for number, end in enumerate(_words(text), start=1):
        if number == limit:
            return text[:end]
    return text


def _words(text: str) -> Iterable[int]:
    """Yield where each word ends."""
    is_in_word = False
    for i, char in enumerate(text):
        is_wide = is_unspaced(char)
        if is_in_word and (is_wide or char.isspace()):
            yield i
        is_in_word = not is_wide and not char.isspace()
        if is_wide:
            yield i + 1
    if is_in_word:
        yield len(text)


# ---------------------------------------------------------------- parts
def _body(reply: Completion) -> str:
    if reply.failure is not None:
        raise WriterReplyError(f"the writer gave no reply: {reply.failure}")
    body = without_reasoning(reply.text, ())
    if body is None:
        raise WriterReplyError("got reasoning that never ends, wanted a reply after it")
    return body


def _item_texts(reply: Completion, max_criteria: int) -> tuple[str, ...]:
    """Return the texts of the last whole rubric's items, each different one once."""
    body = _body(reply)
    if is_cut_off(reply.finish_reason):
        raise WriterReplyError("got a reply that was cut at its token limit, wanted a whole one")
    found = _last_items(body)
    if not found:
        what = "the writer declined" if is_refusal(body) else "got no <item> in a <rubric>"
        raise WriterReplyError(f"{what}, wanted <rubric><item>...</item></rubric>")
    texts: dict[str, str] = {}
    for n, item in enumerate(found, start=1):
        if not item.strip():
            continue
        text = checked_text(item.strip(), f"item {n}")
        texts.setdefault(compact_text(text), text)
    if not texts:
        raise WriterReplyError("got empty items only, wanted a criterion in each")
    if len(texts) > max_criteria:
        raise WriterReplyError(f"got {len(texts)} criteria, wanted at most {max_criteria}")
    return tuple(texts.values())


def _last_items(body: str) -> list[str]:
    """Return the items of the last ``<rubric>`` that is closed; an item left open spoils it.

    A reply of items alone is read as one rubric.
    """
    if "rubric" not in {tag.group(2).lower() for tag in _TAG.finditer(body)}:
        body = f"<rubric>{body}</rubric>"
    whole: list[str] = []
    items: list[str] = []
    is_open, is_sound, start = False, True, -1
    for tag in _TAG.finditer(body):
        is_closing, name = bool(tag.group(1)), tag.group(2).lower()
        if name == "rubric" and not is_closing:
            is_open, is_sound, items, start = True, True, [], -1
        elif name == "rubric":
            if is_open and is_sound and start < 0:
                whole = items
            is_open = False
        elif not is_closing:
            is_sound = is_sound and start < 0
            start = tag.end()
        else:
            is_sound = is_sound and start >= 0
            items.append(body[start : tag.start()] if start >= 0 else "")
            start = -1
    return whole


def _check_origin(texts: Iterable[str], responses: Iterable[str]) -> None:
    """A response that writes items of its own is no source of criteria: its text is data."""
    forging = [r for r in responses if _TAG.search(r)]  # as the reader sees tags
    for text in texts:
        if any(stands_in(text, response) for response in forging):
            raise WriterReplyError(
                f"got a criterion that stands word for word in a response ({text[:80]!r}), wanted "
                "one in your own words"
            )


def _item(text: str, max_points: int, number: int) -> MpoItem:
    marks = list(_LEVEL.finditer(text))
    found = [int(mark.group(1)) for mark in marks]
    if any(level > max_points for level in found):
        raise WriterReplyError(
            f"item {number}: got the scores {found}, wanted scores of 0..{max_points}"
        )
    if sorted(found) != list(range(max_points + 1)):
        return MpoItem(text=text)
    head = text[: marks[0].start()].strip()
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    levels = {
        level: text[mark.end() : end].strip()
        for level, mark, end in zip(found, marks, ends, strict=True)
    }
    if not head or not all(levels.values()):
        return MpoItem(text=text)
    return MpoItem(text=head, levels=levels)
