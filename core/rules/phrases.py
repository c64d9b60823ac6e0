"""The canonical English sentence of each rule, and back.

A sentence reads as a rubric criterion (atomic, objective) and carries all arguments of its rule, so
that ``rule_from_text(text_from_rule(rule))`` is the rule with its defaults filled in. Reading
ignores case, runs of white space and the final period. A text that is no canonical sentence, or
states arguments that the rule refuses, has no rule. Shares are written as percentages.
"""

import json
from functools import lru_cache

import regex
from pydantic import JsonValue

from core.rubric import Rule
from core.rules.registry import RULES, check_rule, parsed_args

TEMPLATES: dict[str, str] = {
    "max_words": "The response has at most {n:int} word~s.",
    "min_words": "The response has at least {n:int} word~s.",
    "max_sentences": "The response has at most {n:int} sentence~s.",
    "min_sentences": (
        "The response has at least {n:int} complete sentence~s of three words or more, closed by "
        "an end mark."
    ),
    "sentence_length": "No sentence runs on: the longest one has at most {max_words:int} word~s.",
    "starts_with": "The response begins with the text {text:text}.",
    "ends_with": "The response ends with the text {text:text}.",
    "ends_sentence": "The last sentence is finished and closed by an end mark.",
    "question_mark": "The response asks a question, closed by a question mark.",
    "no_list": "The response is continuous text without bulleted or numbered items.",
    "bullets": "The response has at least {n:int} bulleted or numbered item~s.",
    "max_list_lines": (
        "Formatting does not pad the response: at most {max_frac:percent} of its lines are "
        "headings, list items or table rows."
    ),
    "script": (
        "The response is written in the {name:name} script: at least {min_frac:percent} of its "
        "letters belong to it."
    ),
    "valid_json": "The whole response is one valid JSON object or array.",
    "regex": "The response contains a match of the pattern {pattern:text}.",
    "mentions": "These words are mentioned at least {at_least:int} time~s in all: {words:words}.",
    "mention_points": "Each mention of one of these words earns a point: {words:words}.",
    "contains_all": "The response uses every one of these words: {words:words}.",
    "contains_any": "The response uses at least {at_least:int} of these words: {words:words}.",
    "no_words": "The response uses none of these words: {words:words}.",
    "keyword_in_sentences": (
        "Each of these words stands in a sentence of its own with at least {context:int} other "
        "word~s: {words:words}."
    ),
    "connected_prose": (
        "The response is connected prose, not a list of words: at least {min_frac:percent} of its "
        "words are function words such as the, of and is."
    ),
    "no_placeholder": "No unfilled template field or dummy text stands in for real content.",
    "no_self_praise": (
        "The response does not talk about itself, praise itself or claim to meet the request."
    ),
    "second_person": "The response addresses the reader as you.",
    "no_first_person": "The response never speaks in the first person.",
    "no_repeated_ngrams": (
        "Phrases are not repeated: at most {max_frac:percent} of the {n:number}-word sequences "
        "repeat an earlier one."
    ),
    "max_word_share": (
        "No word is stuffed: no content word of {min_len:int} or more letters makes up more than "
        "{share:percent} of all words."
    ),
    "max_list_share": (
        "These words make up at most {share:percent} of all words in the response: {words:words}."
    ),
    "distinct_words": (
        "Word choice varies: in each stretch of fifty words at least {min_frac:percent} are "
        "different words on average."
    ),
    "no_prompt_copy": (
        "The prompt is not copied: at most {max_frac:percent} of the {n:number}-word sequences "
        "stand in the prompt."
    ),
    "coverage": (
        "Each of these words is used in a clause with at least {context:int} different other "
        "word~s, at most {per_clause:int} of them a clause, in a text that compresses to no less "
        "than {min_ratio:percent} of its size: {words:words}."
    ),
    "length_band": "The response has between {min:int} and {max:int} words.",
    "compressibility": "The text compresses to no less than {min_ratio:percent} of its size.",
    "finished_ending": "The response stops where its last thought stops, with nothing left open.",
    "readable": "At least 80% of the words stand in clauses of three to twenty-five words.",
}
"""``{argument:kind}`` is a slot; ``~s`` is a plural that follows the count before it."""

_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
_NUMBERS: list[str] = [*_NUMBER_WORDS.split()]
_ITEM = r'"(?:[^"\\]|\\.)*"|[^\s,;"\\.](?:[^,;"\\]*[^\s,;"\\.])?'
_KINDS = {
    "int": r"\d{1,7}",
    "percent": r"\d{1,3}(?:\.\d{1,6})?\s*%",
    "number": "|".join(_NUMBERS[2:]),
    "name": r"[a-z]+",
    "text": r'"(?:[^"\\]|\\.)*"',
    "words": rf"(?:{_ITEM})(?:\s*,\s*(?:{_ITEM}))*",
}
_SLOT = regex.compile(r"\{(\w+):(\w+)\}")
_PLAIN_WORD = regex.compile(r"[\p{L}\p{N}](?:[\p{L}\p{M}\p{N}'\u2019 -]*[\p{L}\p{M}\p{N}])?")
_LIST_ITEM = regex.compile(rf"\s*({_ITEM})\s*(?:,|$)")
_BROKEN_LINE = regex.compile(r"\s*[\r\n]\s*")
_MAX_CHARS = 6000


def text_from_rule(rule: Rule) -> str:
    """Return the canonical sentence of a rule; ValueError for a bad rule."""
    args = parsed_args(rule).model_dump(mode="json")
    parts: list[str] = []
    count: JsonValue = None
    end = 0
    template = TEMPLATES[rule.name]
    for slot in _SLOT.finditer(template):
        parts.append(_plural(template[end : slot.start()], count))
        if slot.group(2) == "int":
            count = args[slot.group(1)]
        parts.append(_written(slot.group(2), args[slot.group(1)]))
        end = slot.end()
    parts.append(_plural(template[end:], count))
    return "".join(parts)


@lru_cache(maxsize=4096)
def rule_from_text(text: str) -> Rule | None:
    """Return the rule that a canonical sentence states, None for any other text."""
    if len(text) > _MAX_CHARS:
        return None
    for name, pattern in _patterns().items():
        match = pattern.fullmatch(text)
        if match is not None:
            return _rule(name, match.groupdict())
    return None


def canonical(rule: Rule) -> Rule:
    """Return the rule with its defaults filled in; ValueError for a bad rule."""
    return Rule(name=rule.name, args=parsed_args(rule).model_dump(mode="json"))


def _rule(name: str, found: dict[str, str]) -> Rule | None:
    kinds = {slot.group(1): slot.group(2) for slot in _SLOT.finditer(TEMPLATES[name])}
    try:
        rule = Rule(name=name, args={k: _read(kinds[k], v) for k, v in found.items()})
        return None if check_rule(rule) else canonical(rule)
    except ValueError:
        return None


def _plural(literal: str, count: JsonValue) -> str:
    return literal.replace("~s", "" if count == 1 else "s")


def _written(kind: str, value: JsonValue) -> str:
    if kind == "percent":
        assert isinstance(value, int | float)
        return f"{round(value * 100, 6):g}%"
    if kind == "number":
        assert isinstance(value, int)
        return _NUMBERS[value]
    if kind == "text":
        return json.dumps(value, ensure_ascii=False)
    if kind == "words":
        assert isinstance(value, list)
        return ", ".join(_word(str(w)) for w in value)
    return value.capitalize() if kind == "name" and isinstance(value, str) else str(value)


def _word(word: str) -> str:
    is_plain = _PLAIN_WORD.fullmatch(word) is not None
    return word if is_plain else json.dumps(word, ensure_ascii=False)


def _read(kind: str, written: str) -> JsonValue:
    if kind == "int":
        return int(written)
    if kind == "percent":
        return round(float(written.rstrip("% \t\n")) / 100, 8)
    if kind == "number":
        return _NUMBERS.index(written.lower())
    if kind == "text":
        return str(json.loads(_BROKEN_LINE.sub(" ", written)))
    if kind == "words":
        items = (m.group(1).strip() for m in _LIST_ITEM.finditer(written))
        return [str(json.loads(w)) if w.startswith('"') else " ".join(w.split()) for w in items]
    return written.lower()


@lru_cache(maxsize=1)
def _patterns() -> dict[str, "regex.Pattern[str]"]:
    assert set(TEMPLATES) == set(RULES), set(TEMPLATES) ^ set(RULES)
    return {name: _pattern(template) for name, template in TEMPLATES.items()}


def _pattern(template: str) -> "regex.Pattern[str]":
    parts = [r"\s*"]
    end = 0
    body = template.removesuffix(".")
    for slot in _SLOT.finditer(body):
        parts.append(_literal(body[end : slot.start()]))
        parts.append(f"(?P<{slot.group(1)}>{_KINDS[slot.group(2)]})")
        end = slot.end()
    parts.append(_literal(body[end:]))
    parts.append(r"\s*\.?\s*")
    return regex.compile("".join(parts), regex.IGNORECASE)


def _literal(text: str) -> str:
    plain = regex.escape(text.replace("~s", "\x01"), literal_spaces=True).replace("\x01", "s?")
    return regex.sub(r" +", r"\\s+", plain)
