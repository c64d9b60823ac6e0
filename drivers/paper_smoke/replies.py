"""What the scripted models of the rehearsal answer: replies of the right form, by a hash.

They stand in for judge, rubric writer, anchor writer, validators and benchmark judge. Scores are
drawn from a digest of the response and the criterion, except that the first criterion of a rubric
always has full score, so that there is something saturated to replace. Every text they write says
that it is scripted.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from drivers.scripted_replies import contrast_reply, levels, replacement_reply, rescoring_reply

_MARK = "Scripted"


def reply_to(body: Mapping[str, Any]) -> str:
    """Return the text that answers a request; ValueError for one that the chain does not make."""
    prompt = "\n".join(str(m["content"]) for m in body["messages"])
    form = body.get("response_format")
    if form is not None:
        return _of_schema(prompt, form["json_schema"]["schema"]["properties"])
    for sign, answer in _FREE.items():
        if sign in prompt:
            return answer(prompt)
    raise ValueError(f"got a request that is not of the chain, beginning {prompt[:200]!r}")


def _of_schema(prompt: str, asked: Mapping[str, Any]) -> str:
    if set(asked) == {"criteria"}:
        return rescoring_reply(asked, f"{_MARK} reason.")
    if "hallucination" in asked:
        return json.dumps(_validation(prompt))
    scores = {
        key: {"reason": f"{_MARK} reason.", "score": _score(prompt, key, place, entry)}
        for place, (key, entry) in enumerate(asked.items())
    }
    return json.dumps(scores)


def _score(prompt: str, key: str, place: int, entry: Mapping[str, Any]) -> int:
    levels: list[int] = entry["properties"]["score"]["enum"]
    return levels[-1] if place == 0 else levels[_number(prompt, key) % len(levels)]


def _validation(prompt: str) -> dict[str, Any]:
    """Accept, except one anchor of eight that one of the two finds made up."""
    ids = sorted(set(re.findall(r'"id": "(C\d+)"', prompt)), key=lambda name: int(name[1:]))
    why = f"{_MARK} reason."
    return {
        "criteria": [{"id": name, "why": why, "met": True} for name in ids],
        "hallucination": {"why": why, "found": _number(prompt, "found") % 8 == 0},
        "safety": {"why": why, "unsafe": False},
    }


def _contrast(prompt: str) -> str:
    new = f"[llm] {_MARK}: names the detail {_number(prompt) % 997}."
    return contrast_reply(prompt, new, f"{_MARK}: no hack.")


def _replacement(prompt: str) -> str:
    def check(key: str) -> str:
        return f"{_MARK}: avoids the fault {_number(prompt, key) % 997}"

    return replacement_reply(prompt, check)


def _rubric(prompt: str) -> str:
    criteria = [
        {
            "id": name,
            "difference": f"{_MARK} difference",
            "better": [f"R{place % 2}"],
            "weaker": [f"R{2 + place % 2}"],
            "check": f"{_MARK}: {what} {_number(prompt, name) % 997}",
            "scoring_rule": levels(1),
            "max_points": 1,
        }
        for place, (name, what) in enumerate(_BUILT.items())
    ]
    return json.dumps({"criteria": criteria})


def _anchor(prompt: str) -> str:
    return (
        f"{_MARK} anchor {_number(prompt) % 997}: a boat left the harbor, and a gull followed it."
    )


def _preference(prompt: str) -> str:
    labels = ("[[A>B]]", "[[A=B]]", "[[B>A]]")
    return f"{_MARK} comparison.\n{labels[_number(prompt) % len(labels)]}"


_BUILT = {
    "opening": "opens with the matter itself, detail",
    "detail": "gives a detail of its own, number",
    "order": "keeps one order throughout, kind",
    "ending": "ends where the matter ends, form",
}
_FREE: Mapping[str, Callable[[str], str]] = {
    "<FINAL_SET>": _contrast,
    '{"updates": [': _replacement,
    '{"criteria": [{"id": "short_id"': _rubric,
    "[[A>B]]": _preference,
    "You write the answer that others will be compared with": _anchor,
}
"""What a prompt of each free reply holds, and who answers it."""


def _number(*parts: str) -> int:
    return int(hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:8], 16)
