"""Replies of the right form without a model, read from a prompt and its schema.

For benchmarks that only keep time and for rehearsals: what they decide, texts and scores, is given;
the forms are those that CARE's and RARE's prompts ask for, so that every reply is taken at the
first try. A prompt without the section that is looked for is a ValueError.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_NUM_UPDATES = re.compile(r"\(replace (\d+) of these\)")


def contrast_reply(prompt: str, new: str, analysis: str) -> str:
    """Return CARE's reply: the rubric of both lists and one tagged criterion more."""
    kept = [*listed(prompt, "satisfied_criteria"), *listed(prompt, "unsatisfied_criteria"), new]
    items = json.dumps(kept)
    return f"<ANALYSIS>\n{analysis}\n</ANALYSIS>\n<FINAL_SET>\n{items}\n</FINAL_SET>"


def replacement_reply(prompt: str, check: Callable[[str], str]) -> str:
    """Return RARE's reply: as many saturated criteria as are asked for, each replaced by the check
    that ``check`` gives for its id."""
    number = _NUM_UPDATES.search(prompt)
    if number is None:
        raise ValueError("got a prompt that says no number, wanted how many are to be replaced")
    maxima = {c["id"]: c["max_points"] for c in listed(prompt, "rubric")}
    chosen = listed(prompt, "saturated_ids")[: int(number[1])]
    return json.dumps({"updates": [_update(key, check(key), maxima[key]) for key in chosen]})


def _update(key: str, check: str, top: int) -> dict[str, Any]:
    return {
        "id": key,
        "polarity": "negative",
        "diagnosis": {
            "difference": "one is more careful",
            "best_rollout_ids": ["R1"],
            "weaker_rollout_ids": ["R0"],
            "learning_direction": "take care",
            "nonredundancy": "no other criterion looks at it",
        },
        "rubric": {"id": key, "check": check, "max_points": top, "scoring_rule": levels(top)},
    }


def rescoring_reply(properties: Mapping[str, Any], reason: str) -> str:
    """Return a joint rescoring in which each criterion is failed by one response, so that a new
    criterion always tells a group apart."""
    entry = properties["criteria"]["items"]["properties"]
    cell = entry["scores"]["items"]["properties"]
    names, top = cell["rollout_id"]["enum"], max(cell["score"]["enum"])
    criteria = [
        {
            "id": key,
            "scores": [
                {
                    "rollout_id": name,
                    "reason": reason,
                    "score": top * (i != place % len(names)),
                }
                for i, name in enumerate(names)
            ],
        }
        for place, key in enumerate(entry["id"]["enum"])
    ]
    return json.dumps({"criteria": criteria})


def levels(top: int) -> str:
    """Return a scoring rule that names every level from ``top`` to 0."""
    return "; ".join(f"{level} = degree {chr(97 + level)}" for level in range(top, -1, -1))


def listed(prompt: str, label: str) -> list[Any]:
    """Return the JSON list in the prompt's section of this name."""
    pattern = rf"^<{label} (?P<mark>[0-9a-f]{{10}})>\n(?P<body>.*?)\n</{label} (?P=mark)>$"
    found = re.search(pattern, prompt, re.M | re.S)
    if found is None:
        raise ValueError(f"got a prompt without the section {label!r}, wanted one")
    return json.loads(found["body"])
