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

_MARK = "Scripted"
_NUM_UPDATES = re.compile(r"\(replace (\d+) of these\)")


def reply_to(body: Mapping[str, Any]) -> str:
    """Return the text that answers a request; ValueError for one that the chain does not make."""
    prompt = "\n".join(str(m["content"]) for m in body["messages"])
    form = body.get("response_format")
    if form is not None:
        return json.dumps(_of_schema(prompt, form["json_schema"]["schema"]["properties"]))
    for sign, answer in _FREE.items():
        if sign in prompt:
            return answer(prompt)
    raise ValueError(f"got a request that is not of the chain, beginning {prompt[:200]!r}")


def _of_schema(prompt: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    if "hallucination" in asked:
        return _validation(prompt)
    if set(asked) == {"criteria"}:
        return _rescoring(asked["criteria"])
    return {
        key: {"reason": f"{_MARK} reason.", "score": _score(prompt, key, place, entry)}
        for place, (key, entry) in enumerate(asked.items())
    }


def _score(prompt: str, key: str, place: int, entry: Mapping[str, Any]) -> int:
    levels: list[int] = entry["properties"]["score"]["enum"]
    return levels[-1] if place == 0 else levels[_number(prompt, key) % len(levels)]


def _rescoring(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Each criterion is failed by one response, so that a new one tells the group apart."""
    entry = asked["items"]["properties"]
    cell = entry["scores"]["items"]["properties"]
    names, top = cell["rollout_id"]["enum"], max(cell["score"]["enum"])
    return {
        "criteria": [
            {
                "id": key,
                "scores": [
                    {
                        "rollout_id": name,
                        "reason": f"{_MARK} reason.",
                        "score": top * (i != place % len(names)),
                    }
                    for i, name in enumerate(names)
                ],
            }
            for place, key in enumerate(entry["id"]["enum"])
        ]
    }


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
    kept = [*_listed(prompt, "satisfied_criteria"), *_listed(prompt, "unsatisfied_criteria")]
    kept.append(f"[llm] {_MARK}: names the detail {_number(prompt) % 997}.")
    items = json.dumps(kept)
    return f"<ANALYSIS>{_MARK}: no hack.</ANALYSIS>\n<FINAL_SET>\n{items}\n</FINAL_SET>"


def _replacement(prompt: str) -> str:
    maxima = {c["id"]: c["max_points"] for c in _listed(prompt, "rubric")}
    number = _NUM_UPDATES.search(prompt)
    assert number is not None, "the prompt of a replacement says how many are wanted"
    chosen = _listed(prompt, "saturated_ids")[: int(number[1])]
    updates = [
        {
            "id": key,
            "polarity": "negative",
            "diagnosis": {
                "difference": f"{_MARK} difference",
                "best_rollout_ids": ["R1"],
                "weaker_rollout_ids": ["R0"],
                "learning_direction": f"{_MARK} direction",
                "nonredundancy": f"{_MARK} reason",
            },
            "rubric": {
                "id": key,
                "check": f"{_MARK}: avoids the fault {_number(prompt, key) % 997}",
                "max_points": maxima[key],
                "scoring_rule": _levels(maxima[key]),
            },
        }
        for key in chosen
    ]
    return json.dumps({"updates": updates})


def _rubric(prompt: str) -> str:
    criteria = [
        {
            "id": name,
            "difference": f"{_MARK} difference",
            "better": [f"R{place % 2}"],
            "weaker": [f"R{2 + place % 2}"],
            "check": f"{_MARK}: {what} {_number(prompt, name) % 997}",
            "scoring_rule": _levels(1),
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


def _levels(top: int) -> str:
    return "; ".join(f"{level} = degree {chr(97 + level)}" for level in range(top, -1, -1))


def _listed(prompt: str, label: str) -> list[Any]:
    """Return the JSON list in the prompt's section of this name; none without the section."""
    pattern = rf"^<{label} (?P<mark>\w+)>\n(?P<body>.*?)\n</{label} (?P=mark)>$"
    found = re.search(pattern, prompt, re.M | re.S)
    return json.loads(found["body"]) if found is not None else []


def _number(*parts: str) -> int:
    return int(hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:8], 16)
