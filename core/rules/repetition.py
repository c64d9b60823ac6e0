"""Rules about repeating: phrases, single words, listed words, and copying the prompt.

These are what a writer may turn into a veto against padding (CARE table 8, A4c). All shares are of
words or word sequences, 0..1; a text too short to show the pattern has share 0.
"""

from collections import Counter
from typing import Annotated

from pydantic import Field

from core.rubric import Frozen
from core.rules.spec import Case, Measure, Rules, Share, WordList, quoted
from core.rules.words import Text, count_phrase, is_content

REPETITION = Rules()

_WINDOW = 50
_MIN_WORDS = 8
_MIN_LIST_WORDS = 3

Size = Annotated[int, Field(ge=2, le=10, strict=True)]


class RepeatArgs(Frozen):
    """Length of a phrase in words, and the largest share of repeats."""

    n: Size = 3
    max_frac: Share


class WordShareArgs(Frozen):
    """Largest share of one content word with at least ``min_len`` letters."""

    share: Share
    min_len: Annotated[int, Field(ge=1, le=20, strict=True)] = 3


class ListShareArgs(Frozen):
    """Largest share of the listed words together."""

    words: WordList
    share: Share


class DistinctArgs(Frozen):
    """Smallest share of different words."""

    min_frac: Share


class CopyArgs(Frozen):
    """Length of a sequence in words, and the largest share that stands in the prompt."""

    n: Size = 4
    max_frac: Share


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    """Return the sequences of n words, in order."""
    return list(zip(*(words[i:] for i in range(n)), strict=False))


@REPETITION.add("no_repeated_ngrams", RepeatArgs)
def no_repeated_ngrams(args: RepeatArgs, case: Case) -> Measure:
    """Share of n-word sequences that repeat an earlier one."""
    grams = ngrams(case.response.words, args.n)
    if not grams:
        value, seen = 0.0, "no phrase is repeated"
    else:
        counts = Counter(grams)
        value = 1.0 - len(counts) / len(grams)
        phrase, count = counts.most_common(1)[0]
        seen = (
            f"the phrase {quoted(' '.join(phrase))} stands {count} times"
            if count > 1
            else "no phrase is repeated"
        )
    return Measure(value=value, limit=args.max_frac, direction="at_most", seen=seen)


@REPETITION.add("max_word_share", WordShareArgs)
def max_word_share(args: WordShareArgs, case: Case) -> Measure:
    """Share of the most frequent content word; a word that stands once has share 0."""
    words = case.response.words
    counts = Counter(w for w in words if is_content(w, args.min_len))
    word, count = counts.most_common(1)[0] if counts else ("", 0)
    if count < 2 or len(words) < _MIN_WORDS:
        value, seen = 0.0, "no word is used too often"
    else:
        value = count / len(words)
        seen = f"the word {quoted(word)} stands {count} times in {len(words)} words"
    return Measure(value=value, limit=args.share, direction="at_most", seen=seen)


@REPETITION.add("max_list_share", ListShareArgs)
def max_list_share(args: ListShareArgs, case: Case) -> Measure:
    """Share of all words that are listed words; fewer than three words are no list."""
    words = case.response.words
    count = sum(count_phrase(words, w) for w in args.words)
    value = count / len(words) if len(words) >= _MIN_LIST_WORDS else 0.0
    seen = f"{count} of {len(words)} words are listed ones"
    return Measure(value=value, limit=args.share, direction="at_most", seen=seen)


@REPETITION.add("distinct_words", DistinctArgs)
def distinct_words(args: DistinctArgs, case: Case) -> Measure:
    """Share of different words, averaged over windows so that length does not lower it."""
    words = case.response.words
    windows = [words[i : i + _WINDOW] for i in range(0, len(words), _WINDOW)]
    if len(windows) > 1 and len(windows[-1]) < _WINDOW // 2:
        windows.pop()
    value = sum(len(set(w)) / len(w) for w in windows) / len(windows) if windows else 0.0
    seen = f"{len(set(words))} different words among {len(words)}"
    return Measure(value=value, limit=args.min_frac, direction="at_least", seen=seen)


@REPETITION.add("no_prompt_copy", CopyArgs)
def no_prompt_copy(args: CopyArgs, case: Case) -> Measure:
    """Share of the response's n-word sequences that stand in the prompt."""
    grams = ngrams(case.response.words, args.n)
    known = set(ngrams(case.prompt.words, args.n))
    copied = [g for g in grams if g in known]
    value = len(copied) / len(grams) if grams else 0.0
    seen = f"the prompt's {quoted(' '.join(copied[0]))} is copied" if copied else "nothing copied"
    return Measure(value=value, limit=args.max_frac, direction="at_most", seen=seen)


def most_repeated_fragment(text: Text, n: int) -> tuple[str, ...]:
    """Return the most repeated n-word sequence, empty when none is repeated."""
    counts = Counter(ngrams(text.words, n)).most_common(1)
    return counts[0][0] if counts and counts[0][1] > 1 else ()
