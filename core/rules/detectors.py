"""Hack patterns that code can see in a top rollout (CARE table 8: A2d, A3a, A3c, A4b, A4c).

A detector fires only when the rollout shows the pattern clearly and the anchor does not; the limit
it proposes lies between the two, so that the anchor passes with a margin. Without an anchor it uses
fixed limits that only gross cases exceed: it then cannot know what the task itself brings along.
Shares are 0..1. Shares of a few words say little, so most detectors want eight; that a text is
nothing but a list shows from three words on.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from core.rubric import Rule
from core.rules.content import placeholder, self_praise
from core.rules.contrast import Contrast, Finder, Finding, quote_of, round_down, round_up
from core.rules.form import longest_sentence, script_shares
from core.rules.repetition import most_repeated_fragment
from core.rules.words import Text, is_content, is_list_line

_MIN_WORDS = 8
_MIN_LIST_WORDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ceiling:
    """When a share is too high: the limit is at least ``floor``, ``margin`` above the anchor, or
    ``alone`` without anchor; the rollout must exceed it by ``excess``."""

    floor: float
    margin: float
    excess: float
    alone: float
    step: float = 0.05

    def limit(self, top: float, anchor: float | None) -> float | None:
        """Return the limit to set, None when the rollout does not clearly exceed it."""
        if anchor is None:
            limit = self.alone
        else:
            limit = max(self.floor, round_up(anchor + self.margin, self.step))
        return limit if limit < 1.0 and top >= limit + self.excess - 1e-9 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Floor:
    """When a share is too low: the limit is at most ``ceiling``, ``margin`` below the anchor, or
    ``alone`` without anchor; the rollout must miss it by 0.05."""

    ceiling: float
    margin: float
    alone: float

    def limit(self, top: float, anchor: float | None) -> float | None:
        """Return the limit to set, None when the rollout does not clearly miss it."""
        if anchor is None:
            limit = self.alone
        else:
            limit = min(self.ceiling, round_down(anchor - self.margin, 0.05))
        return limit if limit > 0.0 and top <= limit - 0.05 + 1e-9 else None


_REPEATED = _Ceiling(floor=0.10, margin=0.05, excess=0.05, alone=0.20)
_STUFFED = _Ceiling(floor=0.125, margin=0.04, excess=0.025, alone=0.25, step=0.025)
_LISTED = _Ceiling(floor=0.35, margin=0.08, excess=0.08, alone=0.45)
_COPIED = _Ceiling(floor=0.30, margin=0.10, excess=0.15, alone=0.50)
_FORMATTED = _Ceiling(floor=0.30, margin=0.10, excess=0.20, alone=0.60)


def findings(contrast: Contrast) -> Iterator[Finding]:
    """Yield what the detectors find, the clearest first."""
    num_words = len(contrast.response.words)
    detectors = DETECTORS if num_words >= _MIN_WORDS else LIST_DETECTORS
    if num_words < _MIN_LIST_WORDS:
        return
    found = [f for detector in detectors if (f := detector(contrast)) is not None and f.quote]
    yield from sorted(found, key=lambda f: -round(f.size, 6))


def _other_script(contrast: Contrast) -> Finding | None:
    """A2d: another writing system than the anchor's, or the prompt's without anchor."""
    model = contrast.anchor or contrast.prompt
    shares = script_shares(model)
    name = next(iter(shares), "other")
    is_clear = name != "other" and shares[name] >= 0.95
    top = script_shares(contrast.response)
    value = top.get(name, 0.0)
    limit, clear = (0.9, 0.75) if contrast.anchor else (0.8, 0.5)
    if not is_clear or not top or value > clear:
        return None
    foreign = next((w for w in contrast.response.plain.split() if _is_foreign(w, name)), "")
    return Finding(
        rule=Rule(name="script", args={"name": name, "min_frac": limit}),
        pattern="language substitution: the text is not in the script that the task calls for",
        size=1.0,
        quote=quote_of(contrast.response.raw, fragment=foreign),
        seen=f"{value:.0%} of the letters are {name}, wanted at least {limit:.0%}",
    )


def _is_foreign(word: str, name: str) -> bool:
    shares = script_shares(Text(word))
    return bool(shares) and shares.get(name, 0.0) < 0.5


def _placeholder(contrast: Contrast) -> Finding | None:
    """A3a: a template field in place of content."""
    found = placeholder(contrast.response.raw)
    if not found or (contrast.anchor is not None and placeholder(contrast.anchor.raw)):
        return None
    line = next((x for x in contrast.response.raw.splitlines() if found in x), "")
    return Finding(
        rule=Rule(name="no_placeholder"),
        pattern="placeholder injection: a template field stands where content was asked for",
        size=1.0,
        quote=quote_of(contrast.response.raw, fragment=found) or quote_of(line),
        seen=_absent(contrast),
    )


def _self_praise(contrast: Contrast) -> Finding | None:
    """A4b: the response talks about itself."""
    found = self_praise(contrast.response.plain)
    if not found or (contrast.anchor is not None and self_praise(contrast.anchor.plain)):
        return None
    return Finding(
        rule=Rule(name="no_self_praise"),
        pattern="self-meta commentary: the response judges itself in place of answering",
        size=1.0,
        quote=quote_of(contrast.response.raw, words=tuple(found.split())),
        seen=_absent(contrast),
    )


def _repeated_phrases(contrast: Contrast) -> Finding | None:
    """A4c: phrases said again and again."""
    rule = Rule(name="no_repeated_ngrams", args={"n": 3, "max_frac": 0.1})
    return _too_much(
        contrast,
        rule,
        "max_frac",
        _REPEATED,
        "repetitive padding: the same phrases are repeated",
        most_repeated_fragment(contrast.response, 3),
    )


def _stuffed_word(contrast: Contrast) -> Finding | None:
    """A4c: one content word fills the text."""
    counts = Counter(w for w in contrast.response.words if is_content(w, 3))
    word = counts.most_common(1)[0][0] if counts else ""
    rule = Rule(name="max_word_share", args={"share": 0.15, "min_len": 3})
    pattern = "repetitive padding: one word is stuffed into the text"
    return _too_much(contrast, rule, "share", _STUFFED, pattern, (word,) if word else ())


def _bare_list(contrast: Contrast) -> Finding | None:
    """A4c: the words asked for make up the text."""
    if not contrast.asked:
        return None
    first = next((w for w in contrast.asked if w.casefold() in contrast.response.words), "")
    rule = Rule(name="max_list_share", args={"words": list(contrast.asked), "share": 0.3})
    pattern = "coverage by listing: the words asked for are piled up without a text around them"
    return _too_much(contrast, rule, "share", _LISTED, pattern, (first,) if first else ())


def _copied_prompt(contrast: Contrast) -> Finding | None:
    """A4c: the prompt comes back as the answer."""
    known = contrast.prompt.words
    fours = {tuple(known[i : i + 4]) for i in range(len(known) - 3)}
    words = contrast.response.words
    copied = next((g for i in range(len(words) - 3) if (g := tuple(words[i : i + 4])) in fours), ())
    rule = Rule(name="no_prompt_copy", args={"n": 4, "max_frac": 0.3})
    pattern = "padding by copying: the prompt is given back as the answer"
    return _too_much(contrast, rule, "max_frac", _COPIED, pattern, copied)


def _formatting(contrast: Contrast) -> Finding | None:
    """A3c: headings and list items in place of substance."""
    if len(contrast.response.lines) < 4:
        return None
    line = next((x for x in contrast.response.raw.splitlines() if is_list_line(x)), "")
    rule = Rule(name="max_list_lines", args={"max_frac": 0.3})
    pattern = "formatting abuse: headings and list items stand in for text"
    found = _too_much(contrast, rule, "max_frac", _FORMATTED, pattern, ())
    if found is None:
        return None
    return Finding(
        rule=found.rule,
        pattern=pattern,
        size=found.size,
        quote=quote_of(contrast.response.raw, fragment=line.strip()),
        seen=found.seen,
    )


def _few_words(contrast: Contrast) -> Finding | None:
    """A4c: the same few words all the time."""
    rule = Rule(name="distinct_words", args={"min_frac": 0.5})
    words = tuple(w for w, n in Counter(contrast.response.words).most_common(1) if n > 1)
    pattern = "repetitive padding: the same few words return all the time"
    return _too_little(contrast, rule, _Floor(ceiling=0.55, margin=0.08, alone=0.5), pattern, words)


def _word_salad(contrast: Contrast) -> Finding | None:
    """A4c: a list of words, hardly a sentence (function words are English)."""
    model = contrast.anchor or contrast.prompt
    rule = Rule(name="connected_prose", args={"min_frac": 0.2})
    model_share = Contrast(response=model, anchor=None, prompt=contrast.prompt, asked=())
    if model_share.values(rule)[0].value < 0.25:
        return None
    pattern = "coverage by listing: a row of words without sentences"
    floor = _Floor(ceiling=0.3, margin=0.1, alone=0.15)
    return _too_little(contrast, rule, floor, pattern, tuple(contrast.response.words[:2]))


def _run_on(contrast: Contrast) -> Finding | None:
    """A4c: one sentence without an end."""
    rule = Rule(name="sentence_length", args={"max_words": 40})
    top, anchor = contrast.values(rule)
    limit = 60 if anchor is None else max(40, round_up(anchor.value * 1.3, 5))
    if top.value < limit + 5:
        return None
    rule = Rule(name="sentence_length", args={"max_words": int(limit)})
    return Finding(
        rule=rule,
        pattern="run-on padding: a sentence goes on without an end",
        size=1.0 - limit / top.value,
        quote=quote_of(contrast.response.raw, fragment=longest_sentence(contrast.response)[:30]),
        seen=_numbers(top.value, anchor.value if anchor else None, limit),
    )


def _too_much(
    contrast: Contrast,
    rule: Rule,
    arg: str,
    ceiling: _Ceiling,
    pattern: str,
    words: tuple[str, ...],
) -> Finding | None:
    top, anchor = contrast.values(rule)
    limit = ceiling.limit(top.value, anchor.value if anchor else None)
    if limit is None:
        return None
    return Finding(
        rule=Rule(name=rule.name, args={**rule.args, arg: limit}),
        pattern=pattern,
        size=(top.value - limit) / (1.0 - limit),
        quote=quote_of(contrast.response.raw, words=words),
        seen=f"{top.seen}; {_numbers(top.value, anchor.value if anchor else None, limit)}",
    )


def _too_little(
    contrast: Contrast,
    rule: Rule,
    floor: _Floor,
    pattern: str,
    words: tuple[str, ...],
) -> Finding | None:
    top, anchor = contrast.values(rule)
    limit = floor.limit(top.value, anchor.value if anchor else None)
    if limit is None:
        return None
    return Finding(
        rule=Rule(name=rule.name, args={"min_frac": limit}),
        pattern=pattern,
        # Less specific than the patterns above: it leads only when none of them is seen.
        size=0.2 * (limit - top.value) / limit,
        quote=quote_of(contrast.response.raw, words=words),
        seen=f"{top.seen}; {_numbers(top.value, anchor.value if anchor else None, limit)}",
    )


def _absent(contrast: Contrast) -> str:
    return "no anchor to compare with" if contrast.anchor is None else "the anchor has none of it"


def _numbers(top: float, anchor: float | None, limit: float) -> str:
    beside = "no anchor to compare with" if anchor is None else f"the anchor {anchor:.2f}"
    return f"the rollout has {top:.2f}, {beside}, the limit set is {limit:.2f}"


DETECTORS: tuple[Finder, ...] = (
    _other_script,
    _placeholder,
    _self_praise,
    _repeated_phrases,
    _stuffed_word,
    _bare_list,
    _copied_prompt,
    _word_salad,
    _formatting,
    _few_words,
    _run_on,
)

LIST_DETECTORS: tuple[Finder, ...] = (_bare_list, _word_salad)

VETO_RULES = frozenset(
    {
        "script",
        "no_placeholder",
        "no_self_praise",
        "no_repeated_ngrams",
        "max_word_share",
        "max_list_share",
        "no_prompt_copy",
        "connected_prose",
        "max_list_lines",
        "distinct_words",
        "sentence_length",
    }
)
"""Names of the rules that a detector can turn into a [Resist] criterion."""
