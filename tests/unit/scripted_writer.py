"""A writer that answers every kind of request by rule, from what it is shown: the same request has
the same answer in every life of a run."""

import hashlib
import json
import random
from collections.abc import Mapping

from core.evolution.rare_task_reply import TRIGGER, scoring_rule
from core.rubric import Criterion
from core.writer_requests import (
    ContrastRequest,
    MergeRequest,
    MetaAnalysisRequest,
    MetaMergeRequest,
    MetaRefineRequest,
    PairRequest,
    PoolRequest,
    ReplacementRequest,
    TaskRevisionRequest,
    WriterRequest,
)
from tests.unit.pool_builders import merge_reply, pair_reply, pool_reply

_LISTED = """apple river castle mountain violin candle lantern harbor meadow thunder copper garden
    whisper shadow feather marble orchard compass velvet ember"""
_WORDS = _LISTED.split()


def number_of(*parts: object) -> int:
    """A number that depends on the parts alone."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def text_of(*parts: object) -> str:
    """A criterion text that depends on the parts alone; no two are alike."""
    return " ".join(random.Random(number_of(*parts)).sample(_WORDS, 6))


def scripted_reply(request: WriterRequest) -> str:
    """Return the raw reply to a request of any method."""
    match request:
        case ContrastRequest():
            return _contrast(request)
        case ReplacementRequest():
            return json.dumps({"updates": [_update(request, i) for i in _chosen(request)]})
        case PoolRequest():
            texts = [text_of("pool", k, *request.responses) for k in range(3)]
            return pool_reply(texts[:2], texts[2:])
        case PairRequest():
            text = text_of("pair", request.response_a, request.response_b)
            return pair_reply({"quote": "", "criterion": text, "weight": 2})
        case MergeRequest():
            return merge_reply({c.text: c.weight for c in request.candidates[:2]})
        case TaskRevisionRequest():
            return _revision(request)
        case MetaAnalysisRequest():
            return "The rubric is too kind."
        case MetaRefineRequest():
            return f"<rubric><item>{text_of('meta', request.sample.response)}</item></rubric>"
        case MetaMergeRequest():
            items = sorted(set(request.refinements))[:3]
            return f"<rubric>{''.join(f'<item>{i}</item>' for i in items)}</rubric>"


def _contrast(request: ContrastRequest) -> str:
    """Mostly one new criterion, at times a veto, at times nothing, at times one left out."""
    items = [c.tagged for c in (*request.satisfied, *request.unsatisfied)]
    number = number_of(request.response, *items)
    if number % 5:
        tag = "[llm]" if number % 3 else "[Resist]"
        items.append(f"{tag} {text_of('contrast', number)}")
    if number % 4 == 0 and len(items) > 2:
        items.pop(0)
    return f"<ANALYSIS>a gap</ANALYSIS><FINAL_SET>{json.dumps(items)}</FINAL_SET>"


def _chosen(request: ReplacementRequest) -> tuple[str, ...]:
    return request.saturated_ids[: request.num_updates]


def _update(request: ReplacementRequest, criterion_id: str) -> Mapping[str, object]:
    top = request.rubric.criterion(criterion_id).max
    return {
        "id": criterion_id,
        "polarity": "negative",
        "diagnosis": {
            "difference": "one is longer",
            "best_rollout_ids": [],
            "weaker_rollout_ids": [],
            "learning_direction": "shorter",
            "nonredundancy": "new",
        },
        "rubric": {
            "id": criterion_id,
            "check": text_of("rare", criterion_id, request.rubric.version, *request.responses),
            "max_points": top,
            "scoring_rule": _levels(top),
        },
    }


def _levels(top: int) -> str:
    return "; ".join(f"{level} = level {chr(97 + level)}" for level in range(top + 1))


def _revision(request: TaskRevisionRequest) -> str:
    """The first criterion is revised, the others come back as they were shown."""
    first, *others = request.rubric.criteria
    check = text_of("task", request.rubric.version, *(c.response for c in request.cases))
    criteria = [_entry(first, check, _levels(first.max))]
    criteria += [_entry(c, c.text, scoring_rule(c)) for c in others]
    return json.dumps(
        {
            "task_id": request.task,
            "rubric_version": request.rubric.version + 1,
            "generated_at_step": request.step,
            "generated_from_trigger": TRIGGER,
            "diagnosis": {
                "mastered": "",
                "unreachable_now": "",
                "current_frontier": "",
                "rationale": "most do it",
            },
            "criteria": criteria,
        }
    )


def _entry(criterion: Criterion, check: str, rule: str) -> Mapping[str, object]:
    return {
        "id": criterion.id,
        "check": check,
        "scoring_rule": rule,
        "max_points": criterion.max,
    }
