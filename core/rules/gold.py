"""Rules for gold criteria: watched, never rewarded, and never written by the rubric writer.

None of them uses a detector that the writer's rules use (repeated phrases, word shares, different
words, list lines), so that a gain on gold is not the veto seen twice. Repetition shows here as
compressibility, coverage counts different words in contexts of their own.
"""

import zlib
from typing import Annotated

import regex
from pydantic import Field, model_validator

from core.rubric import Frozen
from core.rules.spec import Case, Count, Measure, NoArgs, Rules, Share, WordList, holds, quoted
from core.rules.words import count_phrase, words_of

GOLD = Rules()

_MAX_BYTES = 1_000_000


class CoverageArgs(Frozen):
    """Listed words; how they must be used to count."""

    words: WordList
    context: Annotated[int, Field(ge=0, le=100, strict=True)] = 3
    """Different other words that must stand in the same clause."""
    per_clause: Annotated[int, Field(ge=1, le=64, strict=True)] = 2
    """Most listed words that one clause can count for."""
    min_ratio: Share = 0.0
    """Compressed size over size below which the text covers nothing."""


class BandArgs(Frozen):
    """Fewest and most words."""

    min: Count
    max: Count

    @model_validator(mode="after")
    def _is_a_band(self) -> "BandArgs":
        if self.min > self.max:
            raise ValueError(f"got min={self.min} over max={self.max}, wanted min <= max")
        return self


class RatioArgs(Frozen):
    """Smallest compressed size over size."""

    min_ratio: Share


def compression_ratio(text: str) -> float:
    """Return deflated size over size in bytes (no header): low for repetitive text, 0 if empty."""
    data = text.encode("utf-8", "replace")[:_MAX_BYTES]
    if not data:
        return 0.0
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return min(1.0, len(packer.compress(data) + packer.flush()) / len(data))


@GOLD.add("coverage", CoverageArgs)
def coverage(args: CoverageArgs, case: Case) -> Measure:
    """Different listed words, each in a clause with other words (largest matching)."""
    ratio = compression_ratio(case.response.plain)
    covered = _matched(args, case) if ratio >= args.min_ratio else []
    names = ", ".join(quoted(w) for w in covered) or "none"
    return Measure(
        value=len(covered),
        limit=len(args.words),
        direction="at_least",
        seen=f"used in context: {names} (compressed to {ratio:.2f})",
    )


def _matched(args: CoverageArgs, case: Case) -> list[str]:
    """Return the words that can be given a clause, no clause more than ``per_clause`` words."""
    listed = {part for w in args.words for part in words_of(w)}
    choices: dict[str, list[int]] = {w: [] for w in args.words}
    for i, clause in enumerate(case.response.clauses):
        words = words_of(clause)
        others = {w for w in words if w not in listed}
        if len(others) < args.context:
            continue
        for w in choices:
            # A word with as many clauses as there are words can always be placed.
            if len(choices[w]) < len(choices) and count_phrase(words, w):
                choices[w].append(i)
    holders: dict[int, list[str]] = {}

    def place(word: str, tried: set[int]) -> bool:
        for clause in choices[word]:
            if clause in tried:
                continue
            tried.add(clause)
            here = holders.setdefault(clause, [])
            if len(here) < args.per_clause:
                here.append(word)
                return True
            for k, other in enumerate(here):
                if place(other, tried):
                    here[k] = word
                    return True
        return False

    return [w for w in args.words if place(w, set())]


@GOLD.add("length_band", BandArgs)
def length_band(args: BandArgs, case: Case) -> Measure:
    """The number of words lies in a band; graded by how far outside it is."""
    count = len(case.response.words)
    seen = f"{count} words for a band of {args.min} to {args.max}"
    if count > args.max:
        return Measure(value=count, limit=args.max, direction="at_most", seen=seen)
    return Measure(value=count, limit=args.min, direction="at_least", seen=seen)


@GOLD.add("compressibility", RatioArgs)
def compressibility(args: RatioArgs, case: Case) -> Measure:
    """Compressed size over size: a measure of repetition that counts no words or phrases."""
    return Measure(
        value=compression_ratio(case.response.plain),
        limit=args.min_ratio,
        direction="at_least",
        seen="compressed size over size",
    )


_LAST = regex.compile(r"([\p{L}\p{M}'\u2019]+)\W*$")
_DANGLING_WORDS = (
    "a an and as at but by for from her his in into my of on or our that the their to very with "
    "your"
)
_DANGLING = frozenset(_DANGLING_WORDS.split())


@GOLD.add("finished_ending", NoArgs, is_all_or_nothing=True)
def finished_ending(_args: NoArgs, case: Case) -> Measure:
    """The text stops where a thought stops: end mark, no dangling word, nothing left open."""
    plain = case.response.plain
    last = _LAST.search(plain)
    tail = quoted(plain[-40:])
    if last is None or not regex.search(r"[.!?…。！？؟][\"'”’»)\]*]*$", plain):  # noqa: RUF001
        return holds(False, f"no end mark after {tail}")
    if last.group(1).casefold() in _DANGLING:
        return holds(False, f"a dangling word before the end mark in {tail}")
    is_open = plain.count("(") > plain.count(")") or plain.count("“") > plain.count("”")
    return holds(not is_open, f"something is left open in {tail}" if is_open else f"ends {tail}")


@GOLD.add("readable", NoArgs)
def readable(_args: NoArgs, case: Case) -> Measure:
    """Share of words in clauses that a reader takes in at once: 3 to 25 words."""
    sizes = [len(words_of(c)) for c in case.response.clauses]
    good = [n for n in sizes if 3 <= n <= 25]
    return Measure(
        value=sum(good) / max(1, sum(sizes)),
        limit=0.8,
        direction="at_least",
        seen=f"share of words in clauses of 3 to 25 words ({len(good)} of {len(sizes)} clauses)",
    )
