"""What engines that only keep time answer: replies of the form that is asked for, read from the
prompt and its schema, with scores and edits from the workload.

The judge scores each response by the workload's table; a joint rescoring lets each criterion be
failed by one response, so that a new criterion always tells a group apart. The writer adds one
[llm] criterion to CARE's set, and replaces as many saturated criteria as RARE asks for, always by
texts of their own. So every reply is taken at the first try and every edit is accepted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from drivers.bench.workload import CallKind, RolloutName, Workload, names_in, words_of
from drivers.scripted_replies import contrast_reply, replacement_reply, rescoring_reply
from serve.backends.base import CompletionRequest

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
            return rescoring_reply(request.schema["properties"], _REASON)
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


def _top_level(score: Mapping[str, Any]) -> int:
    return max(score["enum"])


def _contrast(call: CallName, prompt: str) -> str:
    name = call.timed_by
    new = f"[llm] Tells of {words_of('contrast', name.query_id, name.visit)}"
    analysis = "No hack was found. The reference goes deeper in one respect."
    return contrast_reply(prompt, new, analysis)


def _replacement(call: CallName, prompt: str) -> str:
    name = call.timed_by

    def check(key: str) -> str:
        return f"Avoids {words_of('replacement', key, name.query_id, name.visit)}"

    return replacement_reply(prompt, check)
