"""Quality gaps that code can see between a top rollout and the anchor (CARE table 9, B1 and B3).

A gap proposes a criterion that the anchor passes and the rollout does not yet: words asked for,
a finished ending, sentences, length, variety. Sizes are 0..1; below ``MIN_GAP`` nothing is worth a
criterion. Without an anchor there is no gap to see.
"""

from collections.abc import Iterator

from pydantic import JsonValue

from core.rubric import Rule
from core.rules.content import present
from core.rules.contrast import Contrast, Finding, round_down, round_up
from core.rules.spec import Case
from core.rules.words import is_bullet_line

MIN_GAP = 0.2

GAP_RULES = frozenset(
    {
        "contains_all",
        "contains_any",
        "keyword_in_sentences",
        "ends_sentence",
        "min_sentences",
        "sentence_length",
        "max_words",
        "min_words",
        "distinct_words",
        "connected_prose",
        "no_list",
        "bullets",
    }
)
"""Names of the rules that a gap can turn into an [llm] criterion."""


def gaps(contrast: Contrast) -> Iterator[Finding]:
    """Yield the gaps whose criterion the anchor passes and the rollout does not, largest first."""
    if contrast.anchor is None:
        return
    found = [*_asked_words(contrast), *_endings(contrast), *_lengths(contrast), *_style(contrast)]
    for gap in sorted(found, key=lambda f: -round(f.size, 6)):
        top, anchor = contrast.values(gap.rule)
        is_gap = anchor is not None and anchor.score(1) == 1 and top.score(1) == 0
        if gap.size >= MIN_GAP and is_gap:
            yield gap


def _asked_words(contrast: Contrast) -> Iterator[Finding]:
    asked = contrast.asked
    if not asked or contrast.anchor is None:
        return
    here = present(asked, Case(response=contrast.response, prompt=contrast.prompt, max=1))
    there = present(asked, Case(response=contrast.anchor, prompt=contrast.prompt, max=1))
    size = (len(there) - len(here)) / len(asked)
    name = "contains_all" if len(there) == len(asked) else "contains_any"
    if there:
        extra: dict[str, JsonValue] = {} if name == "contains_all" else {"at_least": len(there)}
        yield Finding(
            rule=Rule(name=name, args={"words": list(asked), **extra}),
            pattern="insufficient coverage of the words asked for",
            size=size,
            seen=f"the rollout uses {len(here)} of {len(asked)}, the anchor {len(there)}",
        )
    rule = Rule(name="keyword_in_sentences", args={"words": list(asked), "context": 4})
    top, anchor = contrast.values(rule)
    if anchor is not None:
        yield Finding(
            rule=rule,
            pattern="the words asked for are named, not used",
            size=0.8 * (anchor.value - top.value) / len(asked),
            seen=f"sentences of their own: rollout {top.value:g}, anchor {anchor.value:g}",
        )


def _endings(contrast: Contrast) -> Iterator[Finding]:
    yield Finding(
        rule=Rule(name="ends_sentence"),
        pattern="the text breaks off",
        size=0.6,
        seen="the anchor finishes its last sentence, the rollout does not",
    )
    top, anchor = contrast.values(Rule(name="min_sentences", args={"n": 1}))
    if anchor is not None and anchor.value > top.value:
        wanted = anchor.value if anchor.value <= 2 else round_up(anchor.value * 0.75, 1)
        yield Finding(
            rule=Rule(name="min_sentences", args={"n": int(wanted)}),
            pattern="too few complete sentences",
            size=(anchor.value - top.value) / anchor.value,
            seen=f"complete sentences: rollout {top.value:g}, anchor {anchor.value:g}",
        )


def _lengths(contrast: Contrast) -> Iterator[Finding]:
    top, anchor = contrast.values(Rule(name="max_words", args={"n": 1}))
    if anchor is None or anchor.value < 1:
        return
    seen = f"words: rollout {top.value:g}, anchor {anchor.value:g}"
    if top.value > 1.6 * anchor.value:
        limit = int(round_up(1.3 * anchor.value, 5))
        size = 0.8 * (1 - anchor.value / top.value)
        rule = Rule(name="max_words", args={"n": limit})
        yield Finding(rule=rule, pattern="far longer than needed", size=size, seen=seen)
    if top.value < 0.6 * anchor.value:
        limit = max(1, int(round_down(0.8 * anchor.value, 5)))
        size = 0.8 * (1 - top.value / anchor.value)
        rule = Rule(name="min_words", args={"n": limit})
        yield Finding(rule=rule, pattern="too short to cover the task", size=size, seen=seen)
    top, anchor = contrast.values(Rule(name="sentence_length", args={"max_words": 1}))
    if anchor is not None and anchor.value and top.value > max(1.5 * anchor.value, 20):
        limit = int(round_up(1.25 * anchor.value, 5))
        yield Finding(
            rule=Rule(name="sentence_length", args={"max_words": limit}),
            pattern="sentences too long to follow",
            size=0.8 * (1 - anchor.value / top.value),
            seen=f"longest sentence: rollout {top.value:g} words, anchor {anchor.value:g}",
        )


def _style(contrast: Contrast) -> Iterator[Finding]:
    for name, pattern in (
        ("distinct_words", "less variety in the choice of words"),
        ("connected_prose", "less connected prose"),
    ):
        top, anchor = contrast.values(Rule(name=name, args={"min_frac": 0.5}))
        limit = round_down(anchor.value - 0.07, 0.05) if anchor is not None else 0.0
        if anchor is not None and limit > 0:
            yield Finding(
                rule=Rule(name=name, args={"min_frac": limit}),
                pattern=pattern,
                size=1.5 * (anchor.value - top.value),
                seen=f"share: rollout {top.value:.2f}, anchor {anchor.value:.2f}",
            )
    assert contrast.anchor is not None
    here = sum(is_bullet_line(line) for line in contrast.response.lines)
    there = sum(is_bullet_line(line) for line in contrast.anchor.lines)
    seen = f"list items: rollout {here}, anchor {there}"
    if here and not there:
        yield Finding(
            rule=Rule(name="no_list"), pattern="a list in place of text", size=0.4, seen=seen
        )
    if there >= 3 and there > here:
        yield Finding(
            rule=Rule(name="bullets", args={"n": max(2, there - 1)}),
            pattern="not laid out as a list",
            size=0.4 * (there - here) / there,
            seen=seen,
        )
