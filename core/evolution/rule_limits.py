"""Which rules that code decides cannot both be satisfied: their limits exclude each other.

``excludes`` compares two criteria with rules, pair of names by pair of names. A pair that stands
nowhere here is taken to be compatible: only what no response can satisfy is an exclusion.
"""

from collections.abc import Callable, Mapping
from typing import Any

from core.rubric import Criterion
from core.rules.registry import parsed_args
from core.rules.verifiers import rule_of
from core.rules.words import Text, count_phrase, words_of

_Args = dict[str, Any]

_WORDS_OF_A_SENTENCE = 3
"""``min_sentences`` counts sentences of three words or more."""


def excludes(first: Criterion, second: Criterion) -> bool:
    """Whether no response has full score on both; penalties (negative weights) exclude nothing."""
    if first.weight < 0 or second.weight < 0:
        return False
    here, there = rule_of(first), rule_of(second)
    if here is None or there is None:
        return False
    for a, b in ((here, there), (there, here)):
        check = _PAIRS.get((a.name, b.name))
        if check is not None and check(parsed_args(a).model_dump(), parsed_args(b).model_dump()):
            return True
    return False


def _band_is_empty(least: _Args, most: _Args) -> bool:
    return least["n"] > most["n"]


def _sentences_are_too_many(least: _Args, most: _Args) -> bool:
    return _WORDS_OF_A_SENTENCE * least["n"] > most["n"]


def _always(_first: _Args, _second: _Args) -> bool:
    return True


def _wants_a_forbidden_word(wanted: _Args, forbidden: _Args) -> bool:
    return any(_is_forbidden(word, forbidden) for word in wanted["words"])


def _wants_only_forbidden_words(wanted: _Args, forbidden: _Args) -> bool:
    return all(_is_forbidden(word, forbidden) for word in wanted["words"])


def _wants_too_many_words(wanted: _Args, forbidden: _Args) -> bool:
    num_free = sum(not _is_forbidden(word, forbidden) for word in wanted["words"])
    return num_free < wanted["at_least"]


def _is_forbidden(word: str, forbidden: _Args) -> bool:
    """Whether saying ``word`` says one of the forbidden words."""
    return any(count_phrase(words_of(word), other) for other in forbidden["words"])


def _scripts_differ(first: _Args, second: _Args) -> bool:
    return first["name"] != second["name"] and first["min_frac"] + second["min_frac"] > 1


def _beginnings_differ(first: _Args, second: _Args) -> bool:
    a, b = (Text(args["text"]).plain.casefold() for args in (first, second))
    return not a.startswith(b) and not b.startswith(a)


def _endings_differ(first: _Args, second: _Args) -> bool:
    a, b = (Text(args["text"]).plain.casefold() for args in (first, second))
    return not a.endswith(b) and not b.endswith(a)


_PAIRS: Mapping[tuple[str, str], Callable[[_Args, _Args], bool]] = {
    ("min_words", "max_words"): _band_is_empty,
    ("min_sentences", "max_sentences"): _band_is_empty,
    ("min_sentences", "max_words"): _sentences_are_too_many,
    ("bullets", "no_list"): _always,
    ("contains_all", "no_words"): _wants_a_forbidden_word,
    ("keyword_in_sentences", "no_words"): _wants_a_forbidden_word,
    ("contains_any", "no_words"): _wants_too_many_words,
    ("mentions", "no_words"): _wants_only_forbidden_words,
    ("mention_points", "no_words"): _wants_only_forbidden_words,
    ("script", "script"): _scripts_differ,
    ("starts_with", "starts_with"): _beginnings_differ,
    ("ends_with", "ends_with"): _endings_differ,
}
"""(name, name): whether the arguments exclude each other; looked up in both orders."""
