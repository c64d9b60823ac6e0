"""What engines that only keep time answer: replies of the form that is asked for, read from the
prompt and its schema, with scores and edits from the workload.

The judge scores each response by the workload's table; a joint rescoring lets each criterion be
failed by one response, so that a new criterion always tells a group apart. The writer adds one
[llm] criterion to CARE's set, and replaces as many saturated criteria as RARE asks for, always by
texts of their own. So every reply is taken at the first try and every edit is accepted.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from drivers.bench.workload import CallKind, RolloutName, Workload, names_in, words_of
from serve.backends.base import CompletionRequest

_NUM_UPDATES = re.compile(r"\(replace (\d+) of these\)")
_REASON = "It is told where it stands and what it says."
_NOBODY = RolloutName(query_id="q0", visit=0, index=0)
"""A text that is no rollout's, such as an anchor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallName:
    """Which call it is: its kind and the rollouts that it shows."""

    kind: CallKind
    rollouts: tuple[RolloutName, ...]

    @property
    def timed_by(self) -> RolloutName:
        """The name that decides its time: a call about a group is the same call whichever of its
        rollouts are shown."""
        first = self.rollouts[0]
        return first if self.kind == "judge" else replace(first, index=0)


def call_name(request: CompletionRequest) -> CallName:
    """Return what is asked."""
    rollouts = tuple(names_in(request.prompt)) or (_NOBODY,)
    if request.schema is None:
        kind: CallKind = "contrast" if "<satisfied_criteria " in request.prompt else "replacement"
    else:
        kind = "rescore" if set(request.schema["properties"]) == {"criteria"} else "judge"
    return CallName(kind=kind, rollouts=rollouts)


def reply_text(call: CallName, request: CompletionRequest, workload: Workload) -> str:
    """Return the reply to it."""
    match call.kind:
        case "judge":
            assert request.schema is not None, "a judge call has a schema"
            return _scores(call.rollouts[0], request.schema["properties"], workload)
        case "rescore":
            assert request.schema is not None, "a joint rescoring has a schema"
            return _joint_scores(request.schema["properties"]["criteria"])
        case "contrast":
            return _contrast(call, request.prompt)
        case "replacement":
            return _replacement(call, request.prompt)


def _scores(name: RolloutName, asked: Mapping[str, Any], workload: Workload) -> str:
    scores = {
        key: {
            "reason": _REASON,
            "score": _top_level(asked[key]["properties"]["score"]) * workload.is_met(name, place),
        }
        for place, key in enumerate(asked)
    }
    return json.dumps(scores)


def _joint_scores(asked: Mapping[str, Any]) -> str:
    entry = asked["items"]["properties"]
    cell = entry["scores"]["items"]["properties"]
    rollout_ids, top = cell["rollout_id"]["enum"], _top_level(cell["score"])
    criteria = [
        {
            "id": key,
            "scores": [
                {
                    "rollout_id": rollout_id,
                    "reason": _REASON,
                    "score": top * (i != place % len(rollout_ids)),
                }
                for i, rollout_id in enumerate(rollout_ids)
            ],
        }
        for place, key in enumerate(entry["id"]["enum"])
    ]
    return json.dumps({"criteria": criteria})


def _top_level(score: Mapping[str, Any]) -> int:
    return max(score["enum"])


def _contrast(call: CallName, prompt: str) -> str:
    name = call.timed_by
    items = [*_listed(prompt, "satisfied_criteria"), *_listed(prompt, "unsatisfied_criteria")]
    items.append(f"[llm] Tells of {words_of('contrast', name.query_id, name.visit)}")
    analysis = "No hack was found. The reference goes deeper in one respect."
    return f"<ANALYSIS>\n{analysis}\n</ANALYSIS>\n<FINAL_SET>\n{json.dumps(items)}\n</FINAL_SET>"


def _replacement(call: CallName, prompt: str) -> str:
    name = call.timed_by
    maxima = {c["id"]: c["max_points"] for c in _listed(prompt, "rubric")}
    number = _NUM_UPDATES.search(prompt)
    assert number is not None, "the prompt of a replacement says how many are wanted"
    chosen = _listed(prompt, "saturated_ids")[: int(number[1])]
    updates = [
        {
            "id": key,
            "polarity": "negative",
            "diagnosis": {
                "difference": "one is more careful",
                "best_rollout_ids": ["R1"],
                "weaker_rollout_ids": ["R0"],
                "learning_direction": "take care",
                "nonredundancy": "no other criterion looks at it",
            },
            "rubric": {
                "id": key,
                "check": f"Avoids {words_of('replacement', key, name.query_id, name.visit)}",
                "max_points": maxima[key],
                "scoring_rule": _levels(maxima[key]),
            },
        }
        for key in chosen
    ]
    return json.dumps({"updates": updates})


def _levels(top: int) -> str:
    return "; ".join(f"{level} = degree {chr(97 + level)}" for level in range(top, -1, -1))


def _listed(prompt: str, label: str) -> list[Any]:
    """Return the JSON list in the prompt's section of this name."""
    found = re.search(
        rf"^<{label} (?P<mark>[0-9a-f]{{10}})>\n(?P<body>.*?)\n</{label} (?P=mark)>$",
        prompt,
        re.M | re.S,
    )
    assert found is not None, f"the prompt has a section {label}"
    return json.loads(found["body"])
