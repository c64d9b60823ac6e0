"""Rules about form: length, sentences, beginnings and endings, lists, script, JSON, patterns."""

import json
import unicodedata
from typing import Annotated, Literal, cast

import regex
from pydantic import Field, field_validator

from core.rubric import Frozen
from core.rules.spec import (
    Case,
    Count,
    Measure,
    NoArgs,
    Rules,
    Share,
    UndecidedError,
    holds,
    quoted,
)
from core.rules.words import Text, is_bullet_line, is_list_line, words_of

FORM = Rules()

_PATTERN_TIMEOUT_S = 1.0


class CountArgs(Frozen):
    """How many."""

    n: Count


class LengthArgs(Frozen):
    """Most words."""

    max_words: Count


class AffixArgs(Frozen):
    """A text to begin or end with."""

    text: Annotated[str, Field(min_length=1, max_length=200)]


class ShareArgs(Frozen):
    """Largest share."""

    max_frac: Share


ScriptName = Literal[
    "latin", "cyrillic", "arabic", "greek", "hebrew", "devanagari", "thai", "hangul", "cjk"
]


class ScriptArgs(Frozen):
    """A writing system, and the smallest share of letters in it."""

    name: ScriptName
    min_frac: Share = 0.9


class PatternArgs(Frozen):
    """A regular expression, matched case-insensitively."""

    pattern: Annotated[str, Field(min_length=1, max_length=300)]

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            regex.compile(pattern, regex.IGNORECASE)
        except regex.error as e:
            raise ValueError(f"got a pattern that does not compile ({e})") from e
        return pattern


@FORM.add("max_words", CountArgs)
def max_words(args: CountArgs, case: Case) -> Measure:
    """Number of words, from above."""
    count = len(case.response.words)
    return Measure(value=count, limit=args.n, direction="at_most", seen="number of words")


@FORM.add("min_words", CountArgs)
def min_words(args: CountArgs, case: Case) -> Measure:
    """Number of words, from below."""
    count = len(case.response.words)
    return Measure(value=count, limit=args.n, direction="at_least", seen="number of words")


@FORM.add("max_sentences", CountArgs)
def max_sentences(args: CountArgs, case: Case) -> Measure:
    """Number of sentences, finished or not, from above."""
    count = len(case.response.sentences)
    return Measure(value=count, limit=args.n, direction="at_most", seen="number of sentences")


@FORM.add("min_sentences", CountArgs)
def min_sentences(args: CountArgs, case: Case) -> Measure:
    """Number of complete sentences (three words or more, with an end mark), from below."""
    return Measure(
        value=len(case.response.complete_sentences),
        limit=args.n,
        direction="at_least",
        seen="number of complete sentences",
    )


@FORM.add("sentence_length", LengthArgs)
def sentence_length(args: LengthArgs, case: Case) -> Measure:
    """Number of words of the longest sentence."""
    longest = longest_sentence(case.response)
    return Measure(
        value=len(words_of(longest)),
        limit=args.max_words,
        direction="at_most",
        seen=f"words of the longest sentence {quoted(longest)}" if longest else "no sentence",
    )


def longest_sentence(text: Text) -> str:
    """Return the sentence with the most words."""
    return max(text.sentences, key=lambda s: len(words_of(s)), default="")


@FORM.add("starts_with", AffixArgs, is_all_or_nothing=True)
def starts_with(args: AffixArgs, case: Case) -> Measure:
    """The response begins with a text, case aside."""
    wanted = Text(args.text).plain.casefold()
    plain = case.response.plain
    return holds(plain.casefold().startswith(wanted), f"begins with {quoted(plain[:60])}")


@FORM.add("ends_with", AffixArgs, is_all_or_nothing=True)
def ends_with(args: AffixArgs, case: Case) -> Measure:
    """The response ends with a text, case aside."""
    wanted = Text(args.text).plain.casefold()
    plain = case.response.plain
    return holds(plain.casefold().endswith(wanted), f"ends with {quoted(plain[-60:])}")


@FORM.add("ends_sentence", NoArgs, is_all_or_nothing=True)
def ends_sentence(_args: NoArgs, case: Case) -> Measure:
    """The last sentence has its end mark (closing quotes may follow)."""
    return holds(case.response.is_ended, f"ends with {quoted(case.response.plain[-40:])}")


@FORM.add("question_mark", NoArgs, is_all_or_nothing=True)
def question_mark(_args: NoArgs, case: Case) -> Measure:
    """A question is asked."""
    has_one = any(mark in case.response.plain for mark in "?؟？")  # noqa: RUF001
    return holds(has_one, "a question mark" if has_one else "no question mark")


@FORM.add("no_list", NoArgs, is_all_or_nothing=True)
def no_list(_args: NoArgs, case: Case) -> Measure:
    """No line is a bulleted or numbered item."""
    found = next((line for line in case.response.lines if is_bullet_line(line)), "")
    return holds(not found, f"found the item {quoted(found)}" if found else "no list item")


@FORM.add("bullets", CountArgs)
def bullets(args: CountArgs, case: Case) -> Measure:
    """Number of bulleted or numbered items, from below."""
    count = sum(is_bullet_line(line) for line in case.response.lines)
    return Measure(value=count, limit=args.n, direction="at_least", seen="number of list items")


@FORM.add("max_list_lines", ShareArgs)
def max_list_lines(args: ShareArgs, case: Case) -> Measure:
    """Share of lines that are headings, list items or table rows (CARE table 8, A3c)."""
    lines = case.response.lines
    marked = [line for line in lines if is_list_line(line)]
    value = len(marked) / len(lines) if lines else 0.0
    seen = f"{len(marked)} of {len(lines)} lines are list items or headings"
    return Measure(value=value, limit=args.max_frac, direction="at_most", seen=seen)


_NAME_TO_SCRIPT = {
    "LATIN": "latin",
    "FULLWIDTH": "latin",
    "CYRILLIC": "cyrillic",
    "ARABIC": "arabic",
    "GREEK": "greek",
    "HEBREW": "hebrew",
    "DEVANAGARI": "devanagari",
    "THAI": "thai",
    "HANGUL": "hangul",
    "CJK": "cjk",
    "HIRAGANA": "cjk",
    "KATAKANA": "cjk",
}


def script_shares(text: Text) -> dict[str, float]:
    """Return the share of letters by writing system, largest first; unknown ones are "other"."""
    kinds: dict[str, str] = {}
    counts: dict[str, int] = {}
    for letter in text.plain:
        if letter not in kinds:
            name = unicodedata.name(letter, "").split(" ", 1)[0] if letter.isalpha() else ""
            kinds[letter] = _NAME_TO_SCRIPT.get(name, "other") if name else ""
        kind = kinds[letter]
        if kind:
            counts[kind] = counts.get(kind, 0) + 1
    total = sum(counts.values())
    return {k: n / total for k, n in sorted(counts.items(), key=lambda item: -item[1])}


@FORM.add("script", ScriptArgs)
def script(args: ScriptArgs, case: Case) -> Measure:
    """Share of letters in one writing system (CARE table 8, A2d)."""
    shares = script_shares(case.response)
    seen = ", ".join(f"{k} {v:.0%}" for k, v in shares.items()) or "no letters"
    return Measure(
        value=shares.get(args.name, 0.0),
        limit=args.min_frac,
        direction="at_least",
        seen=f"letters by script: {seen}",
    )


@FORM.add("valid_json", NoArgs, is_all_or_nothing=True)
def valid_json(_args: NoArgs, case: Case) -> Measure:
    """The whole response is one JSON object or array."""
    try:
        value = cast(object, json.loads(case.response.raw.strip()))
    except (ValueError, RecursionError) as e:
        return holds(False, f"not JSON ({str(e)[:80]})")
    is_structure = isinstance(value, dict | list)
    return holds(is_structure, "JSON" if is_structure else "JSON, but no object or array")


@FORM.add("regex", PatternArgs, is_all_or_nothing=True)
def matches(args: PatternArgs, case: Case) -> Measure:
    """The pattern is found in the response, within a second."""
    try:
        match = regex.search(
            args.pattern, case.response.plain, regex.IGNORECASE, timeout=_PATTERN_TIMEOUT_S
        )
    except TimeoutError as e:
        raise UndecidedError(
            f"the pattern {quoted(args.pattern)} took longer than {_PATTERN_TIMEOUT_S:g} s on this "
            "response; use a simpler one"
        ) from e
    return holds(match is not None, f"found {quoted(match.group())}" if match else "no match")
