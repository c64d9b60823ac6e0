r"""FollowBench's rule checks: answers that are right or wrong without a judge.

They follow ``code/rule_based_evaluation.py`` of github.com/YJiangcm/FollowBench to the letter,
oddities included, since scores are compared with published ones: a sentence is what stands between
``.``, ``!`` and ``?`` and is not empty (a space or newline at the end counts as one more); words
are mostly what ``split(" ")`` gives; nothing is stripped. Because "1" of "1. Sand it" is a sentence
of one word by that, levels 4 and 5 of format 22 cannot be passed; they count all the same.
Where a source lists several checks, level L has to pass the first L of them.
"""

import ast
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

Check = Callable[[str], bool]
Rule = Callable[[str, str, int], bool]
"""From answer, target and level (1 to 5) to whether the answer passes."""

_SENTENCE_ENDS = re.compile(r"[.!?]")
_CONTINUOUS = re.compile(r"\b(am|is|are)\s+\w+ing\b")
_PERFECT = re.compile(r"\b(has|have)\s+\w+")
_PROCRAST = re.compile("procrast", re.IGNORECASE)
_NUMBER_MARKER = re.compile(r"\d+\.")
_POINT = re.compile(r"\*\*[\d].+?:")
_SPEECH_SENTENCE_ENDS = re.compile(r"(?<!\w\.\w.)(?<![A-Z][a-z]\.)(?<=\.|\?)\s")
_FORMAT_IDS = (22, 30)


def sentences(text: str) -> list[str]:
    """Return the pieces between sentence ends; only empty ones are left out."""
    return [s for s in _SENTENCE_ENDS.split(text) if s]


def has_word(text: str, word: str) -> bool:
    """Whether the word stands in the text between word boundaries, in this case."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def rule_of(constraint_type: str, row: Mapping[str, Any]) -> str | None:
    """Return the name of the rule that decides on this row's answer; None where a judge does."""
    if constraint_type == "example":
        return "example"
    if row["source"] in _RULES:
        return str(row["source"])
    if row["category"] == "format" and row["example_id"] in _FORMAT_IDS:
        return f"format_{row['example_id']}"
    return None


def passes_rule(rule: str, answer: str, target: str, level: int) -> bool:
    """Return whether the answer passes the rule that ``rule_of`` named, at this level (1 to 5)."""
    return _BY_NAME[rule](answer, target, level)


def named_entities(target: str) -> list[str]:
    """Read a CONLL2003 target, a Python list of strings; ValueError when it is none."""
    try:
        value = ast.literal_eval(target)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list) or not all(
        isinstance(v, str) for v in cast("list[object]", value)
    ):
        raise ValueError(f"got target {target[:80]!r}, wanted a Python list of strings")
    return cast("list[str]", value)


def fits_template(target: str, answer: str) -> bool:
    """Whether the whole answer is the template with anything but a newline for ``{answer}``."""
    template = target.replace("{instruction}\n", "").replace("{{", "{").replace("}}", "}")
    pattern = re.escape(template.replace("{answer}", ".*")).replace(r"\.\*", ".*")
    return re.fullmatch(pattern, answer) is not None


def _is_target(answer: str, target: str, level: int) -> bool:
    return answer == target


def _has_only_lines_of_target(answer: str, target: str, level: int) -> bool:
    return set(answer.split("\n")) <= set(target.split("\n"))


def _is_a_named_entity(answer: str, target: str, level: int) -> bool:
    return answer in named_entities(target)


def _has_target(answer: str, target: str, level: int) -> bool:
    return target in answer


def _last_match_is_target(pattern: str) -> Rule:
    compiled = re.compile(pattern)

    def rule(answer: str, target: str, level: int) -> bool:
        found = compiled.findall(answer)
        return bool(found) and found[-1] == target

    return rule


def _cumulative(checks: Sequence[Check]) -> Rule:
    def rule(answer: str, target: str, level: int) -> bool:
        return all(check(answer) for check in checks[:level])

    return rule


def _has_sentences(count: int) -> Check:
    return lambda text: len(sentences(text)) == count


def _fewer_words_than(count: int) -> Check:
    return lambda text: len(text.split(" ")) < count


def _has(word: str) -> Check:
    return lambda text: has_word(text, word)


def _has_not(word: str) -> Check:
    return lambda text: not has_word(text, word)


def _sentence(text: str, number: int) -> str:
    """The sentence with this number from 1 on; empty, which holds no word, when there is none."""
    found = sentences(text)
    return found[number - 1] if len(found) >= number else ""


def _names_potter_actor_films(text: str) -> bool:
    words = ("Potter", "actor", "films")
    return all(has_word(_sentence(text, i), word) for i, word in enumerate(words, start=1))


def _num_punctuation(text: str) -> int:
    return sum(character in string.punctuation for character in text)


def _short_paragraphs(text: str) -> bool:
    return all(len(sentences(p)) < 3 for p in text.split("\n\n")[:3])


def _sentences_of_more_than_20_words(text: str) -> bool:
    return all(len(s.split()) > 20 for s in sentences(text))


def _paragraphs_are_numbered(text: str) -> bool:
    paragraphs = [p.lstrip() for p in text.split("\n\n")]
    return all(_NUMBER_MARKER.match(p) for p in paragraphs if p)


def _has_paragraphs(count: int) -> Check:
    return lambda text: len(text.split("\n\n")) == count


def _wooden_table(answer: str, target: str, level: int) -> bool:
    """Format 22: the closing words of level 5 are a paragraph of their own."""
    checks: tuple[Check, ...] = (
        _has_paragraphs(3 if level < 5 else 4),
        _short_paragraphs,
        _sentences_of_more_than_20_words,
        _paragraphs_are_numbered,
        lambda text: text.endswith("Those are suggestions"),
    )
    return all(check(answer) for check in checks[:level])


def _points_are_single_sentences(text: str) -> bool:
    points = [s for s in _speech_sentences(text) if any(f"{i}." in s for i in range(1, 6))]
    return all(len(s.split(".")) < 3 for s in points)


def _speech_sentences(text: str) -> list[str]:
    return _SPEECH_SENTENCE_ENDS.split(text)


_CNN: tuple[Check, ...] = (
    _has_sentences(3),
    lambda text: all(len(s.split()) < 15 for s in sentences(text)),
    _names_potter_actor_films,
    lambda text: not has_word(_sentence(text, 2), "lavish"),
    lambda text: _PERFECT.search(_sentence(text, 3)) is not None,
)
_XSUM: tuple[Check, ...] = (
    _has_sentences(1),
    _fewer_words_than(20),
    _has_not("Newton Stewart"),
    lambda text: _CONTINUOUS.search(text) is not None,
    _has("operation"),
)
_SAMSUM: tuple[Check, ...] = (
    _has_sentences(1),
    _fewer_words_than(15),
    _has("stuff"),
    lambda text: _PROCRAST.search(text) is None,
    lambda text: _num_punctuation(text) == 1,
)
_GIGAWORD: tuple[Check, ...] = (
    lambda text: len(text.split(" ")) == 8,
    lambda text: _num_punctuation(text) == 0,
    str.islower,
    _has_not("bus"),
    _has("in"),
)
_ARXIV: tuple[Check, ...] = (
    _has_sentences(1),
    _fewer_words_than(21),
    lambda text: text.startswith("We"),
    _has("activations"),
    _has_not("transformer"),
)
_SPEECH: tuple[Check, ...] = (
    lambda text: "**" in text,
    lambda text: len(_POINT.findall(text)) == 5,
    _points_are_single_sentences,
    lambda text: all(10 <= len(s.split()) <= 15 for s in _speech_sentences(text)),
    lambda text: not any(word.endswith("-ly") for word in text.split()),
)
"""Format 30."""

_RULES: dict[str, Rule] = {
    "E2E": _is_target,
    "text_editing": _is_target,
    "WIKIEVENTS": _has_only_lines_of_target,
    "CONLL2003": _is_a_named_entity,
    "self_made_space": _has_target,
    "BBH_logical": _last_match_is_target(r"\([A-Z]\)"),
    "BBH_time": _last_match_is_target(r"\d{2}/\d{2}/\d{4}"),
    "gsm_8k": _last_match_is_target(r"\$\d+"),
    "cnn_dailymail": _cumulative(_CNN),
    "xsum": _cumulative(_XSUM),
    "samsum": _cumulative(_SAMSUM),
    "gigaword": _cumulative(_GIGAWORD),
    "arxiv": _cumulative(_ARXIV),
}
"""By the row's ``source``."""

_BY_NAME: dict[str, Rule] = {
    **_RULES,
    "format_22": _wooden_table,
    "format_30": _cumulative(_SPEECH),
    "example": lambda answer, target, level: fits_template(target, answer),
}
