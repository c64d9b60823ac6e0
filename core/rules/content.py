"""Rules about what is said: listed words, placeholders, talk about the answer, who speaks."""

from typing import Annotated

import regex
from pydantic import Field, model_validator

from core.rubric import Frozen
from core.rules.spec import Case, Count, Measure, NoArgs, Rules, WordList, holds, quoted
from core.rules.words import FUNCTION_WORDS, count_phrase, words_of

CONTENT = Rules()

Context = Annotated[int, Field(ge=0, le=100, strict=True)]


class WordsArgs(Frozen):
    """Listed words or phrases."""

    words: WordList


class MentionsArgs(Frozen):
    """Listed words, and how many mentions of them in all."""

    words: WordList
    at_least: Count = 1


class AnyArgs(Frozen):
    """Listed words, and how many different ones."""

    words: WordList
    at_least: Count = 1

    @model_validator(mode="after")
    def _is_possible(self) -> "AnyArgs":
        if self.at_least > len(self.words):
            raise ValueError(
                f"got at_least={self.at_least} with {len(self.words)} words, wanted at most that"
            )
        return self


class InSentencesArgs(Frozen):
    """Listed words, and how many other words must stand beside each in its sentence."""

    words: WordList
    context: Context = 4


class ProseArgs(Frozen):
    """Smallest share of words that carry grammar."""

    min_frac: Annotated[float, Field(ge=0.0, le=1.0)]


def num_mentions(words: tuple[str, ...], case: Case) -> tuple[int, str]:
    """Return how often the listed words stand in the response, and what was seen."""
    counts = {w: count_phrase(case.response.words, w) for w in words}
    found = ", ".join(f"{quoted(w)} x{n}" for w, n in counts.items() if n) or "none of the words"
    return sum(counts.values()), f"found {found}"


def present(words: tuple[str, ...], case: Case) -> list[str]:
    """Return the listed words that stand in the response."""
    return [w for w in words if count_phrase(case.response.words, w)]


@CONTENT.add("mentions", MentionsArgs)
def mentions(args: MentionsArgs, case: Case) -> Measure:
    """All mentions of listed words together; saying one word often counts."""
    count, seen = num_mentions(args.words, case)
    return Measure(value=count, limit=args.at_least, direction="at_least", seen=seen)


@CONTENT.add("mention_points", WordsArgs)
def mention_points(args: WordsArgs, case: Case) -> Measure:
    """One point for each mention of a listed word, up to the criterion's maximum."""
    count, seen = num_mentions(args.words, case)
    return Measure(value=count, limit=case.max, direction="at_least", seen=seen)


@CONTENT.add("contains_all", WordsArgs)
def contains_all(args: WordsArgs, case: Case) -> Measure:
    """How many different listed words stand in the response, of all."""
    found = present(args.words, case)
    missing = [w for w in args.words if w not in found]
    seen = f"missing {', '.join(map(quoted, missing))}" if missing else "all words are there"
    return Measure(value=len(found), limit=len(args.words), direction="at_least", seen=seen)


@CONTENT.add("contains_any", AnyArgs)
def contains_any(args: AnyArgs, case: Case) -> Measure:
    """How many different listed words stand in the response."""
    found = present(args.words, case)
    seen = f"found {', '.join(map(quoted, found)) or 'none of the words'}"
    return Measure(value=len(found), limit=args.at_least, direction="at_least", seen=seen)


@CONTENT.add("no_words", WordsArgs, is_all_or_nothing=True)
def no_words(args: WordsArgs, case: Case) -> Measure:
    """None of the listed words stands in the response."""
    found = present(args.words, case)
    return holds(not found, f"found {', '.join(map(quoted, found)) or 'none of the words'}")


@CONTENT.add("keyword_in_sentences", InSentencesArgs)
def keyword_in_sentences(args: InSentencesArgs, case: Case) -> Measure:
    """Listed words with a sentence of their own, in which ``context`` other words stand."""
    listed = {f for w in args.words for f in words_of(w)}
    free: list[list[str]] = []
    for sentence in case.response.sentences:
        words = words_of(sentence)
        others = {w for w in words if w not in listed}
        if len(others) >= args.context and any(count_phrase(words, w) for w in args.words):
            free.append(words)
    used: list[str] = []
    taken: set[int] = set()
    for word in args.words:
        for i, words in enumerate(free):
            if i not in taken and count_phrase(words, word):
                taken.add(i)
                used.append(word)
                break
    seen = f"used in a sentence of its own: {', '.join(map(quoted, used)) or 'none'}"
    return Measure(value=len(used), limit=len(args.words), direction="at_least", seen=seen)


@CONTENT.add("connected_prose", ProseArgs)
def connected_prose(args: ProseArgs, case: Case) -> Measure:
    """Share of words that carry grammar (the, of, and, is): low in bare lists of words."""
    words = case.response.words
    value = sum(1 for w in words if w in FUNCTION_WORDS) / len(words) if words else 0.0
    return Measure(
        value=value,
        limit=args.min_frac,
        direction="at_least",
        seen=f"share of function words in {len(words)} words",
    )


_PLACEHOLDER = regex.compile(
    r"\{\{?\s*[A-Za-z_][\w .-]{0,40}\}\}?"
    r"|\[(?:your|insert|name|date|company|add|enter|fill|placeholder|topic|title|address|recipient)"
    r"[^\]\n]{0,40}\]"
    r"|<(?:your|insert|name|date|company|add|enter|fill|placeholder|topic|title|recipient)"
    r"[^>\n]{0,40}>"
    r"|\b(?:TODO|TBD|FIXME|XXXX?)\b|(?i:lorem ipsum)"
    r"|_{4,}",
    regex.IGNORECASE,
)
_TODO = regex.compile(r"\b(?:todo|tbd|fixme|xxxx?)\b")


@CONTENT.add("no_placeholder", NoArgs, is_all_or_nothing=True)
def no_placeholder(_args: NoArgs, case: Case) -> Measure:
    """No template field, note to fill in later, or dummy text."""
    fragment = placeholder(case.response.raw)
    return holds(not fragment, f"found {quoted(fragment)}" if fragment else "no placeholder")


def placeholder(text: str) -> str:
    """Return the first placeholder, or an empty string; "todo" in small letters is a word."""
    for match in _PLACEHOLDER.finditer(text):
        if not _TODO.fullmatch(match.group()):
            return match.group()
    return ""


_SELF_PRAISE = regex.compile(
    r"\b(?:this|the|my|our) (?:response|answer|text|output|reply|assistant|above (?:text|answer))"
    r" (?:\w+ ){0,2}?(?:comprehensive(?:ly)?|fully|thorough(?:ly)?|perfect(?:ly)?|successful(?:ly)?"
    r"|completely|clearly|effectively|accurately|excellent|demonstrates|demonstrated|meets"
    r"|satisfies|fulfil?ls|addresses|covers|adheres|complies|deserves|scores)\b"
    r"|\bi (?:really )?hope (?:this|that|it) (?:\w+ )?(?:helps?|is helpful|answers|meets)\b"
    r"|\bas (?:you )?requested\b|\bas per your (?:request|instructions)\b"
    r"|\bas an ai(?: language)?(?: model)?\b"
    r"|\b(?:i|we) have (?:carefully |successfully |fully )?(?:met|followed|included|addressed"
    r"|satisfied|fulfilled|covered) (?:all|every|each)\b"
    r"|\blet me know if you (?:need|want|would like|have)\b"
    r"|\b(?:all|every) (?:of the )?(?:criteria|requirements?|rubrics?) (?:are|is|ha(?:ve|s) been)"
    r" (?:fully )?(?:met|satisfied|fulfilled)\b",
    regex.IGNORECASE,
)


@CONTENT.add("no_self_praise", NoArgs, is_all_or_nothing=True)
def no_self_praise(_args: NoArgs, case: Case) -> Measure:
    """No talk about the response itself (CARE table 8, A4b)."""
    fragment = self_praise(case.response.plain)
    return holds(not fragment, f"found {quoted(fragment)}" if fragment else "no self-commentary")


def self_praise(text: str) -> str:
    """Return the first remark of the response about itself, or an empty string."""
    match = _SELF_PRAISE.search(text)
    return match.group() if match else ""


_YOU_FORMS = "you your yours yourself yourselves you'll you're you've you'd"
_FIRST_FORMS = (
    "i i'm i've i'll i'd me my mine myself we we're we've we'll we'd us our ours ourselves"
)
_YOU = frozenset(_YOU_FORMS.split())
_FIRST = frozenset(_FIRST_FORMS.split())


@CONTENT.add("second_person", NoArgs, is_all_or_nothing=True)
def second_person(_args: NoArgs, case: Case) -> Measure:
    """The reader is addressed as "you"."""
    found = [w for w in case.response.words if w in _YOU]
    return holds(bool(found), f"found {quoted(found[0])}" if found else 'no "you" or "your"')


@CONTENT.add("no_first_person", NoArgs, is_all_or_nothing=True)
def no_first_person(_args: NoArgs, case: Case) -> Measure:
    """Nobody speaks as "I" or "we"."""
    found = [w for w in case.response.words if w in _FIRST]
    return holds(not found, f"found {quoted(found[0])}" if found else 'no "I" or "we"')
