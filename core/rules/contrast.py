"""What the rule-based writer looks at: texts to compare, words that the prompt asks for, quotes.

Quotes are verbatim parts of a policy's text that go into a writer's reply. They are cut before
anything that could break the reply's structure (angle brackets, quotation marks, line breaks,
control characters), so text from a policy can neither close a section nor forge a set.
"""

from collections.abc import Callable
from dataclasses import dataclass

import regex

from core.rubric import Criterion, Rule
from core.rules.registry import measure, parsed_args
from core.rules.spec import Case, Measure
from core.rules.verifiers import rule_of
from core.rules.words import Text, words_of

_MAX_QUOTE = 80
_MIN_QUOTE = 3
_CLEAN_RUN = regex.compile(
    r"[^<>\"\u201c\u201d\u00ab\u00bb`\n\r\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_C}]+"
)

_ASK = regex.compile(
    r"\b(?:us(?:e|ing)|includ(?:e|ing)|mention(?:ing)?|contain(?:s|ing)?|featur(?:e|ing)|with)\s+"
    r"(?:all\s+|each\s+)?(?:of\s+)?(?:(?:the|these|those|following|four|three|five|six)\s+)*"
    r"(?:key)?words?\b\s*:?\s*(?P<list>[^.!?\n]{1,600})",
    regex.IGNORECASE,
)
_LIST_SEPARATOR = regex.compile(r"\s*(?:[,;/&]|\band\b|\bor\b)\s*", regex.IGNORECASE)
_LIST_TAIL = regex.compile(
    r"\s+(?:in|at|once|somewhere|exactly|each|to|for|when|while|as)\b.*", regex.IGNORECASE
)
_IN_QUOTES = regex.compile(r"[\"\u201c']([^\"\u201c\u201d']{1,40})[\"\u201d']")
_NEXT_ORDER = frozenset({"then", "but", "please", "write", "keep", "make", "do", "don't"})
_MAX_ASKED = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """The top rollout beside the anchor."""

    response: Text
    anchor: Text | None
    prompt: Text
    asked: tuple[str, ...]
    """Words that the prompt asks for, or that a criterion lists."""

    def values(self, rule: Rule) -> tuple[Measure, Measure | None]:
        """Return a rule's measures of the rollout and of the anchor."""
        top = measure(rule, Case(response=self.response, prompt=self.prompt, max=1))
        if self.anchor is None:
            return top, None
        return top, measure(rule, Case(response=self.anchor, prompt=self.prompt, max=1))

    def anchor_passes(self, rule: Rule) -> bool:
        """Whether the anchor satisfies a rule; true when there is none."""
        return self.anchor is None or is_passed(self.values(rule)[1])


def is_passed(found: Measure | None) -> bool:
    """Whether a binary criterion of this measure is satisfied."""
    return found is not None and found.score(1) == 1


def asked_words(prompt: str) -> tuple[str, ...]:
    """Return the words that a prompt asks to be used ("Use these words: a, b and c.")."""
    found: dict[str, None] = {}
    for ask in _ASK.finditer(prompt):
        listed = ask.group("list")
        items = _IN_QUOTES.findall(listed) or _LIST_SEPARATOR.split(listed)
        for item in items:
            word = _LIST_TAIL.sub("", item).strip(" '\"\u2018\u2019:()[]")
            size = len(words_of(word))
            if 1 <= size <= 3 and len(word) <= 40 and words_of(word)[0] not in _NEXT_ORDER:
                found[word] = None
    return tuple(found)[:_MAX_ASKED]


def listed_words(criteria: tuple[Criterion, ...]) -> tuple[str, ...]:
    """Return the words of the first criterion that lists some to be used."""
    for criterion in criteria:
        rule = rule_of(criterion)
        if rule is not None and rule.name != "no_words" and "words" in rule.args:
            try:
                words = parsed_args(rule).model_dump()["words"]
            except ValueError:
                continue
            return tuple(str(w) for w in words)
    return ()


def quote_of(text: str, words: tuple[str, ...] = (), fragment: str = "") -> str:
    """Return a clean verbatim part of ``text``: from these words or this fragment on when they are
    found, else its longest clean run; an empty string when there is none."""
    starts = [_find_words(text, words), text.find(fragment) if fragment else -1]
    for start in starts:
        clean = _CLEAN_RUN.match(text, start) if start >= 0 else None
        if clean is not None and len(_cut(clean.group())) >= _MIN_QUOTE:
            return _cut(clean.group())
    runs = (_cut(run) for run in _CLEAN_RUN.findall(text[:20_000]))
    best = max(runs, key=len, default="")
    return best if len(best) >= _MIN_QUOTE else ""


def _find_words(text: str, words: tuple[str, ...]) -> int:
    if not words:
        return -1
    pattern = r"\W+".join(regex.escape(w) for w in words)
    found = regex.search(rf"(?<!\w){pattern}(?!\w)", text, regex.IGNORECASE)
    return found.start() if found else -1


def _cut(run: str) -> str:
    run = run.strip()
    if len(run) <= _MAX_QUOTE:
        return run
    head = run[:_MAX_QUOTE]
    space = head.rfind(" ")
    return head[:space].rstrip() if space >= _MAX_QUOTE // 2 else head


def plain_line(text: str) -> str:
    """Return a criterion's text as one line that can stand in an analysis."""
    line = " ".join(text.split())
    return regex.sub(r"[<>\p{Cc}\p{Cs}]", " ", line).replace('"', "'")


def round_up(value: float, step: float) -> float:
    """Return the next multiple of ``step`` at or above the value."""
    return round(-(-(value - 1e-9) // step) * step, 6)


def round_down(value: float, step: float) -> float:
    """Return the next multiple of ``step`` at or below the value."""
    return round((value + 1e-9) // step * step, 6)


Finder = Callable[[Contrast], "Finding | None"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A difference that code sees, and the rule that would name it."""

    rule: Rule
    pattern: str
    """What it is, in words."""
    size: float
    """0..1, to compare findings."""
    quote: str = ""
    """Verbatim part of the rollout."""
    seen: str = ""
    """Numbers of rollout and anchor."""
