"""Audits of the fixture script as a judge would write them, to be broken one rule at a time."""

import json
from pathlib import Path
from typing import Any

from core.benchmarks.script_rubric import (
    ALL_METRICS,
    CAUSAL,
    DECISIONS,
    PACING,
    TOP_KEYS,
    VERSION,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "script_metrics"
SCRIPT = (FIXTURES / "script.md").read_text(encoding="utf-8")

Audit = dict[str, Any]


def quote(text: str = "The moth climbs into the light.") -> Audit:
    return {"location": "S02", "quote": text, "interpretation": "shows it"}


def defect(severity: str) -> Audit:
    return {"location": "S03", "reason": "thin", "severity": severity}


def perfect() -> Audit:
    """Every metric passes."""
    audits: Audit = {}
    for name, metric in ALL_METRICS.items():
        checks = [
            {
                "check_id": check,
                "status": "pass",
                "supporting_evidence": [quote()],
                "counterevidence": [],
            }
            for check in metric.checks
        ]
        probe = {"risk": "r", "evidence": [quote()], "verdict": "not_material", "reason": "small"}
        audits[name] = {
            "checks": checks,
            "adversarial_probe": probe,
            "defects": [],
            "zero_threshold_hit": None,
            "decision": "pass",
        }
    audits[CAUSAL]["critical_turn_dependency"] = {"classification": "established", "reason": "S01"}
    block = {"location": "S01", "new_function": "opens", "overlap_with": None}
    audits[PACING] |= {
        "functional_progression": ["fear", "choice", "price"],
        "block_audit": [{**block, "verdict": "essential"}],
        "removable_blocks": [],
        "underwritten_blocks": [],
    }
    values: tuple[Any, ...] = (
        VERSION,
        {"required_content": ["a lamp"], "formal_constraints": [], "style_preferences": []},
        {
            "status": "complete",
            "evidence": ["three scenes announced, three written"],
            "defects": [],
        },
        "complete",
        [],
        audits,
        {name: {"score": 2, "max_score": 2, "reason": "all three"} for name in ALL_METRICS},
    )
    return dict(zip(TOP_KEYS, values, strict=True))


def decide(audit: Audit, name: str, decision: str, threshold: str | None = None) -> Audit:
    """Make one metric ``partial`` or ``fail``, with all that belongs to it."""
    one = audit["audits"][name]
    one["checks"][0] |= {"status": "fail", "counterevidence": [quote("It hesitates")]}
    one["adversarial_probe"]["verdict"] = "material"
    one["defects"] = [defect("critical" if decision == "fail" else "major")]
    one["decision"] = decision
    if decision == "fail":
        one["zero_threshold_hit"] = threshold or ALL_METRICS[name].zero_thresholds[0]
    audit["metrics"][name]["score"] = DECISIONS[decision]
    return audit


def incomplete() -> Audit:
    """An audit of a script without its end that keeps every rule of one."""
    audit = perfect()
    audit["evaluation_stage"] = audit["input_integrity"]["status"] = "incomplete"
    audit["input_integrity"]["defects"] = [{"location": "S03", "reason": "breaks off"}]
    for name, metric in ALL_METRICS.items():
        if metric.when_incomplete:
            decide(audit, name, "fail", metric.when_incomplete)
        elif not metric.may_pass_incomplete:
            decide(audit, name, "partial")
    return audit


def as_reply(audit: Audit) -> str:
    return json.dumps(audit, ensure_ascii=False)
