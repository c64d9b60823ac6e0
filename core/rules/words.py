"""Text as words, sentences and lines: the one tokeniser of all rules.

A word is a run of letters, marks and digits (an apostrophe inside belongs to it); hyphens and
underscores separate words, so that gluing words together hides nothing. A character of a script
written without spaces (Han, kana, Thai, ...) is a word of its own. Words are compared after NFKC
and case folding, without invisible marks. Everything is linear in the text.
"""

import unicodedata
from functools import cached_property

import regex

_INVISIBLE = regex.compile(r"[\p{Cf}\p{Variation_Selector}\p{Cs}\x00]+")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(
    rf"[{_UNSPACED}]\p{{M}}*"
    rf"|[[\p{{L}}\p{{N}}]--[{_UNSPACED}]][[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]*"
    rf"(?:['\u2019][[\p{{L}}\p{{N}}]--[{_UNSPACED}]][[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]*)*",
    regex.V1,
)
_CLOSERS = "\"'”\u2019»)]}*_`"
_ENDS = ".!?…。！？؟।"  # noqa: RUF001
_SENTENCE_END = regex.compile(
    rf"(?<!\b(?:mr|mrs|ms|dr|prof|st|vs|e\.g|i\.e))[{regex.escape(_ENDS)}]+"
    rf"(?:[{regex.escape(_CLOSERS)}]+|(?=\s)|(?=[{_UNSPACED}])|$)|\n+",
    regex.V1 | regex.IGNORECASE,
)
_CLAUSE_END = regex.compile(r"[.!?…;:,—–\n。！？؟،、，；：]+")  # noqa: RUF001
_LIST_LINE = regex.compile(r"\s*(?:#{1,6}\s|[-*+•‣▪◦●–]\s|\d{1,3}[.)]\s|[a-zA-Z][.)]\s|\|)")  # noqa: RUF001
_BULLET_LINE = regex.compile(r"\s*(?:[-*+•‣▪◦●–]\s|\d{1,3}[.)]\s|[a-zA-Z]\)\s)")  # noqa: RUF001

_GRAMMAR = """
a about above after again against all also although am an and any are around as at away be because
been before behind being below beneath beside between beyond both but by can can't cannot could
did do does doesn't doing don't down during each either ever every few for from had has have
having he her here hers herself him himself his how i i'd i'll i'm i've if in into is isn't it
it's its itself just like may me might more most must my myself near neither no nor not of off on
once one only onto or other our ours out over own she should since so some still such than that
that's the their theirs them themselves then there these they they're this those though through to
together too toward towards under until up upon us very was wasn't we we're were what when where
whether which while who whom whose why will with within without won't would you you'll you're your
yours yourself yourselves
"""
FUNCTION_WORDS = frozenset(_GRAMMAR.split())
"""English words that carry grammar, not content."""


def visible(text: str) -> str:
    """Return the text in NFKC without invisible marks (joiners, direction marks, surrogates)."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def words_of(text: str) -> list[str]:
    """Return the words of a text, case folded."""
    return _WORD.findall(visible(text).casefold().replace("’", "'"))  # noqa: RUF001


class Text:
    """A text with its words and sentences, each worked out once and only when asked for."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @cached_property
    def plain(self) -> str:
        """NFKC, without invisible marks, stripped."""
        return visible(self.raw).strip()

    @cached_property
    def words(self) -> list[str]:
        """Words in order, case folded."""
        return _WORD.findall(self.plain.casefold().replace("’", "'"))  # noqa: RUF001

    @cached_property
    def sentences(self) -> list[str]:
        """Parts with at least one word, cut after sentence ends and at line breaks."""
        return [s for s, _ in self._parts]

    @cached_property
    def complete_sentences(self) -> list[str]:
        """Sentences of three words or more that end with a sentence end."""
        return [s for s, is_ended in self._parts if is_ended and len(words_of(s)) >= 3]

    @cached_property
    def clauses(self) -> list[str]:
        """Parts with at least one word, cut at every punctuation mark that separates clauses."""
        return [c.strip() for c in _CLAUSE_END.split(self.plain) if _WORD.search(c)]

    @cached_property
    def lines(self) -> list[str]:
        """Lines that are not blank."""
        return [line for line in self.plain.split("\n") if line.strip()]

    @property
    def is_ended(self) -> bool:
        """Whether the text ends with a sentence end, closing quotes and brackets aside."""
        return self.plain.rstrip(_CLOSERS + " ").endswith(tuple(_ENDS))

    @cached_property
    def _parts(self) -> list[tuple[str, bool]]:
        parts: list[tuple[str, bool]] = []
        start = 0
        for end in _SENTENCE_END.finditer(self.plain):
            parts.append((self.plain[start : end.end()].strip(), end.group()[0] != "\n"))
            start = end.end()
        parts.append((self.plain[start:].strip(), False))
        return [(s, is_ended) for s, is_ended in parts if _WORD.search(s)]


def is_list_line(line: str) -> bool:
    """Whether a line is a heading, list item or table row."""
    return _LIST_LINE.match(line) is not None


def is_bullet_line(line: str) -> bool:
    """Whether a line is a bulleted or numbered item."""
    return _BULLET_LINE.match(line) is not None


def count_phrase(words: list[str], phrase: str) -> int:
    """Count a listed word or phrase; a plural or possessive of its last word counts too."""
    wanted = words_of(phrase)
    if not wanted:
        return 0
    *head, last = wanted
    forms = {last, f"{last}s", f"{last}es", f"{last}'s", f"{last}s'"}
    if not head:
        return sum(1 for w in words if w in forms)
    size = len(wanted)
    return sum(
        1
        for i in range(len(words) - size + 1)
        if words[i + size - 1] in forms and words[i : i + size - 1] == head
    )


def is_content(word: str, min_len: int) -> bool:
    """Whether a word carries content: long enough and no function word."""
    return len(word) >= min_len and word not in FUNCTION_WORDS
