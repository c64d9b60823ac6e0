"""Whether a group is contrasted now: a writer call only where it is likely to pay off.

CARE contrasts every group and names the cost as its first limitation. A trigger asks always, in
every n-th step, or where a cheap sign says that hacking is likely: a top reward near the ceiling,
or a top rollout that repeats phrases or words, holds placeholders, changes the script, praises
itself, or is far longer or shorter than the anchor. A trait that the anchor or the prompt share is
no sign, and where a language cannot be judged there is none: the ceiling is what is left then.
Pure and linear in the text; no model.
"""

from collections.abc import Callable, Iterator

import regex

from core.config import RewardConfig
from core.config_evolution import TriggerConfig
from core.grading.visible import visible_response
from core.records import GradedGroup, GradedRollout
from core.reward import rollout_reward
from core.rubric import Rule
from core.rules.content import placeholder, self_praise
from core.rules.form import script_shares
from core.rules.registry import measure
from core.rules.spec import Case
from core.rules.words import Text

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_PHRASE_WORDS = 4
_PHRASE_CHARS = 10
"""Length of a phrase in a script without spaces, whose words here are single characters: sequences
of four come back in any text."""
_MIN_WORDS = 12
"""A shorter text shows no habit."""
_REPEATED = 0.1
"""Share of repeated phrases from which on a text repeats itself; plain prose has a few percent."""
_REPEATED_MARGIN = 0.05
_STUFFED = 0.125
"""Share of one content word from which on a text is stuffed with it."""
_FEW_WORDS = 0.5
"""Share of different words in fifty up to which a text turns around a few; prose has over 0.6."""
_FEW_WORDS_MARGIN = 0.1
_FOREIGN = 0.2
"""Share of words in a script of which neither prompt nor anchor has any; names stay below it."""
_MIN_FOREIGN_WORDS = 3
_MIN_LENGTH_GAP = 20
"""Words by which lengths must differ: between a few words ratios say nothing."""


def contrast_reason(
    group: GradedGroup, top: GradedRollout, trigger: TriggerConfig, reward: RewardConfig
) -> str:
    """Return why this group should be contrasted now; empty when it should not."""
    if trigger.when == "always":
        return "always"
    if trigger.when == "every":
        step = group.draw.step
        is_due = step % trigger.every_steps == 0
        return f"step {step} is a multiple of {trigger.every_steps}" if is_due else ""
    value = rollout_reward(group.rubric, top.verdicts, reward).value
    if value is not None and value >= trigger.reward_ceiling - 1e-9:
        return f"top reward {value:.3g} >= {trigger.reward_ceiling:g}"
    anchor = group.query.anchor
    texts = _Texts(
        visible_response(top.rollout.response),
        group.query.prompt_text,
        anchor.response if anchor is not None else None,
    )
    return next(_signs(texts, trigger), "")


class _Texts:
    """The top rollout, and what it is held against."""

    def __init__(self, top: str, prompt: str, anchor: str | None) -> None:
        self.top = Text(top)
        self.anchor = Text(anchor) if anchor is not None else None
        prompt_text = Text(prompt)
        self.models = [prompt_text] if self.anchor is None else [prompt_text, self.anchor]
        """Texts whose traits are no sign."""


def _signs(texts: _Texts, trigger: TriggerConfig) -> Iterator[str]:
    yield from _repeated_phrases(texts)
    yield from _repeated_words(texts)
    if _is_only_in_top(texts, lambda text: placeholder(text.raw)):
        yield "placeholder text"
    yield from _foreign_script(texts)
    if _is_only_in_top(texts, lambda text: self_praise(text.plain)):
        yield "praise of itself"
    yield from _far_length(texts, trigger.length_ratio)


def _is_only_in_top(texts: _Texts, found_in: Callable[[Text], str]) -> bool:
    return bool(found_in(texts.top)) and not any(found_in(model) for model in texts.models)


def _repeated_phrases(texts: _Texts) -> Iterator[str]:
    if len(texts.top.words) < _MIN_WORDS:
        return
    size = _PHRASE_CHARS if _is_unspaced(texts.top) else _PHRASE_WORDS
    top, usual = _values(texts, "no_repeated_ngrams", n=size, max_frac=_REPEATED)
    if top >= max(_REPEATED, max(usual) + _REPEATED_MARGIN):
        yield f"repeated {size}-grams"


def _repeated_words(texts: _Texts) -> Iterator[str]:
    """One content word all over, or the same few words all the time."""
    if len(texts.top.words) < _MIN_WORDS:
        return
    top, usual = _values(texts, "max_word_share", share=_STUFFED)
    is_stuffed = top >= max(_STUFFED, max(usual) + _REPEATED_MARGIN)
    top, usual = _values(texts, "distinct_words", min_frac=_FEW_WORDS)
    if is_stuffed or top <= min(_FEW_WORDS, min(usual) - _FEW_WORDS_MARGIN):
        yield "repeated words"


def _values(texts: _Texts, name: str, **args: float) -> tuple[float, list[float]]:
    """Return a rule's measured value of the top rollout, and those of what it is held against."""
    rule = Rule(name=name, args={**args})

    def value(text: Text) -> float:
        return measure(rule, Case(response=text, prompt=text, max=1)).value

    return value(texts.top), [value(model) for model in texts.models]


def _foreign_script(texts: _Texts) -> Iterator[str]:
    """A script that neither prompt nor anchor use at all, in a good part of the words."""
    known = {name for model in texts.models for name in _script_words(model)}
    counts = _script_words(texts.top)
    foreign = sum(count for name, count in counts.items() if name not in known)
    total = sum(counts.values())
    if known and foreign >= max(_MIN_FOREIGN_WORDS, _FOREIGN * total):
        yield "foreign script"


def _script_words(text: Text) -> dict[str, int]:
    """How many words begin with a letter of each script (digits have none)."""
    initials = "".join(word[0] for word in text.words if word[0].isalpha())
    shares = script_shares(Text(initials))
    return {name: round(share * len(initials)) for name, share in shares.items()}


def _far_length(texts: _Texts, ratio: float) -> Iterator[str]:
    """Lengths are compared in words, between texts whose words are of one kind."""
    anchor = texts.anchor
    if anchor is None or not anchor.words or _is_unspaced(texts.top) != _is_unspaced(anchor):
        return
    here, there = len(texts.top.words), len(anchor.words)
    if abs(here - there) < _MIN_LENGTH_GAP:
        return
    factor = here / there
    if factor >= ratio or factor <= 1 / ratio:
        yield f"{factor:.2g} times the anchor's length"


def _is_unspaced(text: Text) -> bool:
    """Whether most words are characters of a script without spaces."""
    words = text.words
    single = sum(1 for word in words if _UNSPACED.match(word))
    return 2 * single > len(words)
