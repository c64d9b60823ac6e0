"""Damages model replies in the ways that models, transports and forgers do, from a seed.

``mutated`` takes a recorded reply and applies a few random changes: cuts, doubled and swapped
pieces, other numbers and ids, other quotes, odd characters, nesting, a second reply beside or
inside the first. The same seed gives the same text.
"""

import json
import random
import re
from collections.abc import Callable, Sequence

NUMBERS = (
    "0", "1", "2", "3", "-1", "0.5", "1.0", "1e999", "-0", "00", "1/1", "2/2", "100%", "NaN",
    "Infinity", "9" * 25, "1e-9", "true", "null", '"1"', "[1]", '{"score": 1}', "0x1", "1_0",
    "\u0661", "\uff11", "\u00bd", "",
)  # fmt: skip
NAMES = ("c0", "c1", "c2", "c3", "c10", "C1", "R0", "R1", "R2", "R7", "r0", "a1", "1", "id", "")
PIECES = (
    "{", "}", "[", "]", '"', "'", ",", ":", "\\", "\\u", "\\ud800", "\ud800", "\0", "\x1b[2J", "\n",
    "\r\n", "\u2028", "\u202e", "\u200b", "\ufeff", "\uff5b", "\uff3d", "\u201c", "\u201d", "```",
    "```json", "<think>", "</think>", "[/THINK]", "<ANALYSIS>", "</ANALYSIS>", "<FINAL_SET>",
    "</FINAL_SET>", "&lt;FINAL_SET&gt;", "[llm]", "[Resist]", "[human]", "/*", "//", "#", "null",
    "score", "max", "reason", "\U0001f600", "\u0644\u0627", "\u7b54\u6848", "e\u0301", "((((((((",
    "{" * 60, "[" * 60, "=", "0 = ", "1 = ", "{{response}}", "I'm sorry, but I can't", "[ERROR] ",
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"\b[cRa]\d{1,2}\b")
_QUOTE = re.compile("[\"'\u201c\u201d`]")
_QUOTES = ('"', "'", "\u201c", "\u201d", "`", '\\"', "&quot;", "")


def mutated(text: str, others: Sequence[str], rng: random.Random) -> str:
    """Return ``text`` after one to four changes; ``others`` are replies to splice in."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        text = rng.choice(_CHANGES)(text, others, rng)
    return text


def _span(text: str, rng: random.Random) -> tuple[int, int]:
    """A stretch, mostly a short one."""
    start = rng.randint(0, len(text))
    reach = rng.choice((1, 2, 5, 20, 80, len(text)))
    return start, min(len(text), start + rng.randint(0, reach))


def _cut(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] if rng.random() < 0.8 else text[at:]


def _delete(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng)
    return text[:start] + text[end:]


def _duplicate(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2)) + text[end:]


def _move(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng)
    rest = text[:start] + text[end:]
    at = rng.randint(0, len(rest))
    return rest[:at] + text[start:end] + rest[at:]


def _insert(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    piece = rng.choice(PIECES)
    if rng.random() < 0.2:
        piece = "".join(chr(rng.randint(0, 0x10FFFF)) for _ in range(rng.randint(1, 6)))
    return text[:at] + piece + text[at:]


def _replaced_match(pattern: re.Pattern[str], choices: Sequence[str]) -> "Change":
    def change(text: str, _: Sequence[str], rng: random.Random) -> str:
        found = list(pattern.finditer(text))
        for match in reversed(rng.sample(found, min(len(found), rng.choice((1, 1, 2))))):
            text = text[: match.start()] + rng.choice(choices) + text[match.end() :]
        return text

    return change


def _other_quotes(text: str, _: Sequence[str], rng: random.Random) -> str:
    new = rng.choice(_QUOTES)
    if rng.random() < 0.5:
        return text.replace('"', new)
    return _replaced_match(_QUOTE, _QUOTES)(text, (), rng)


def _nest(text: str, _: Sequence[str], rng: random.Random) -> str:
    quoted = json.dumps(text)
    wraps = (
        f'{{"evaluation": {text}}}',
        f"[{text}]",
        f'{{"c1": {text}}}',
        f'{{"c1": {{"reason": {quoted}, "score": 1}}}}',
        f'{{"reply": {quoted}}}',
        quoted,
        f"<think>{text}</think>",
        f"```json\n{text}\n```",
        f"<ANALYSIS>{text}</ANALYSIS>",
        f"<FINAL_SET>{text}</FINAL_SET>",
        text.replace("<", "&lt;").replace(">", "&gt;"),
    )
    return rng.choice(wraps)


def _splice(text: str, others: Sequence[str], rng: random.Random) -> str:
    other = rng.choice(others)
    start, end = (0, len(other)) if rng.random() < 0.5 else _span(other, rng)
    at = rng.choice((0, len(text), rng.randint(0, len(text))))
    return text[:at] + other[start:end] + text[at:]


def _other_case(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng)
    return text[:start] + text[start:end].swapcase() + text[end:]


Change = Callable[[str, Sequence[str], random.Random], str]
_CHANGES: Sequence[Change] = (
    _cut,
    _delete,
    _delete,
    _duplicate,
    _move,
    _insert,
    _insert,
    _replaced_match(_NUMBER, NUMBERS),
    _replaced_match(_NUMBER, NUMBERS),
    _replaced_match(_NAME, NAMES),
    _replaced_match(_NAME, NAMES),
    _other_quotes,
    _nest,
    _splice,
    _other_case,
)
