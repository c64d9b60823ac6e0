"""Checks a judge's audit of a script by the rules of RARE's evidence validator.

An audit is used only when all of it is right: its keys and their order, the fixed checks with
quotes that stand in the script, and decisions that agree with checks, defects, adversarial probe
and threshold, down to the score. All broken rules are found at once, so that the judge can be told
of all of them. The rules follow Eureka-Maggie/RARE, rubric/judge/overall_v9_validator.py: keys
beyond the wanted ones are left alone, and totals that a judge adds are not read, since scores are
counted from the decisions (paper, appendix A.3).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from core.benchmarks.means import reply_object
from core.benchmarks.script_evidence import (
    Broken,
    evidence_problems,
    is_text,
    lacking,
    listed,
    plain,
)
from core.benchmarks.script_rubric import (
    ALL_METRICS,
    BLOCK_VERDICTS,
    CAUSAL,
    DECISIONS,
    MAX_PROGRESSION,
    MAX_SCORE,
    PACING,
    TOP_KEYS,
    TURN_CLASSES,
    TURNS_THAT_FORBID_PASS,
    VERSION,
    Metric,
)

Value = dict[str, Any]

_STATUSES = ("complete", "incomplete", "uncertain")
_ANALYSIS_KEYS = ("required_content", "formal_constraints", "style_preferences")
_SEVERITIES = ("major", "critical")
_PROBE_OF_DECISION = {"pass": "not_material", "partial": "material", "fail": "material"}


@dataclass(frozen=True, slots=True)
class ScriptAudit:
    """What a reply says about a script."""

    scores: Mapping[str, int]
    """By metric, 0 to 2; empty where a rule is broken."""
    status: str
    """``complete``, ``incomplete`` or ``uncertain``: the judge's view of the script."""
    broken: tuple[Broken, ...] = ()
    value: Value | None = None
    """The reply's object, where it has one."""


def read_audit(reply: str, script: str) -> ScriptAudit:
    """Return the scores of a reply's audit, or the rules that it breaks."""
    value = reply_object(reply)
    if value is None:
        wanted = "got no single JSON object that can be read, wanted one and nothing else"
        return ScriptAudit({}, "", (Broken("json", "the reply", wanted),))
    broken = tuple(audit_problems(value, script))
    if broken:
        return ScriptAudit({}, "", broken, value)
    scores = {name: DECISIONS[value["audits"][name]["decision"]] for name in ALL_METRICS}
    return ScriptAudit(scores, value["evaluation_stage"], (), value)


def audit_problems(value: Value, script: str) -> Iterator[Broken]:
    """Yield each rule that an audit breaks; nothing for one that can be used."""
    if value.get("rubric_version") != VERSION:
        got = value.get("rubric_version")
        yield Broken("version", "rubric_version", f"got {got!r:.60}, wanted {VERSION!r}")
    order = [key for key in value if key in TOP_KEYS]
    if order != list(TOP_KEYS):
        yield Broken("top_keys", "the reply", f"got the keys {order}, wanted {list(TOP_KEYS)}")
    yield from _analysis(value.get("query_analysis"))
    yield from _integrity(value)
    audits, metrics = _slots(value, "audits"), _slots(value, "metrics")
    if audits is None:
        yield Broken("audit_slots", "audits", f"wanted exactly {list(ALL_METRICS)}")
    if metrics is None:
        yield Broken("metric_slots", "metrics", f"wanted exactly {list(ALL_METRICS)}")
    plain_script = plain(script)
    for name, metric in ALL_METRICS.items():
        if audits is not None:
            yield from _audit(audits[name], name, metric, plain_script)
            yield from _of_incomplete(value, audits[name], name, metric)
        if audits is not None and metrics is not None:
            yield from _metric(metrics[name], audits[name], f"metrics.{name}")


# ------------------------------------------------------------------ the whole
def _slots(value: Value, key: str) -> Value | None:
    found = value.get(key)
    if not isinstance(found, dict) or set(cast(Value, found)) != set(ALL_METRICS):
        return None
    return cast(Value, found)


def _analysis(value: Any) -> Iterator[Broken]:
    where = "query_analysis"
    if not isinstance(value, dict) or set(cast(Value, value)) != set(_ANALYSIS_KEYS):
        yield Broken(where, where, f"wanted exactly the lists {list(_ANALYSIS_KEYS)}")
        return
    lists = cast(Value, value)
    for key in _ANALYSIS_KEYS:
        if not _are_texts(lists[key]):
            yield Broken(where, f"{where}.{key}", "wanted a list of texts that are not empty")
    if lists["required_content"] == []:
        yield Broken("required_content", f"{where}.required_content", "wanted at least one entry")


def _integrity(value: Value) -> Iterator[Broken]:
    where, found = "input_integrity", value.get("input_integrity")
    integrity = cast(Value, found) if isinstance(found, dict) else {}
    status = integrity.get("status")
    if status not in _STATUSES:
        yield Broken("integrity_shape", f"{where}.status", f"wanted one of {list(_STATUSES)}")
    elif value.get("evaluation_stage") != status:
        yield Broken("stage", "evaluation_stage", f"wanted the status of {where}, {status!r}")
    evidence = listed(integrity.get("evidence"))
    if not evidence or not all(map(_is_locator, evidence)):
        wanted = "wanted at least one text or {location, quote, interpretation}"
        yield Broken("integrity_shape", f"{where}.evidence", wanted)
    defects = listed(integrity.get("defects"))
    if defects is None or any(lacking(d, ("location", "reason")) != [] for d in defects):
        wanted = "wanted a list of {location, reason}"
        yield Broken("integrity_shape", f"{where}.defects", wanted)
    elif (status == "complete" and defects) or (status == "incomplete" and not defects):
        wanted = "wanted none for a complete script, at least one for an incomplete one"
        yield Broken("integrity_defects", f"{where}.defects", wanted)
    warnings = listed(value.get("input_warnings"))
    if warnings is None or not all(isinstance(w, str) for w in warnings):
        yield Broken("warnings", "input_warnings", "wanted a list of texts")


def _is_locator(value: Any) -> bool:
    return is_text(value) or lacking(value, ("location", "quote", "interpretation")) == []


def _are_texts(value: Any) -> bool:
    items = listed(value)
    return items is not None and all(map(is_text, items))


# ------------------------------------------------------------------ one metric
def _audit(value: Any, name: str, metric: Metric, plain_script: str) -> Iterator[Broken]:
    where = f"audits.{name}"
    if not isinstance(value, dict):
        yield Broken("checks", where, "wanted an object with checks, probe, defects and decision")
        return
    audit = cast(Value, value)
    shapes = [
        *_checks(audit.get("checks"), metric, where, plain_script),
        *_probe(audit.get("adversarial_probe"), f"{where}.adversarial_probe", plain_script),
        *_defects(audit.get("defects"), f"{where}.defects"),
        *(_turn_shape(audit, where) if name == CAUSAL else ()),
        *(_pacing_shape(audit, where) if name == PACING else ()),
    ]
    yield from shapes
    decision = audit.get("decision")
    if not isinstance(decision, str) or decision not in DECISIONS:
        yield Broken("decision", f"{where}.decision", f"wanted one of {list(DECISIONS)}")
    elif all(broken.rule in ("quote", "check_evidence") for broken in shapes):
        # Only what has its shape can be compared with the decision.
        yield from _agreement(audit, decision, metric, where)
        yield from _turn_agreement(audit, decision, where) if name == CAUSAL else ()
        yield from _pacing_agreement(audit, decision, where) if name == PACING else ()


def _checks(value: Any, metric: Metric, where: str, plain_script: str) -> Iterator[Broken]:
    checks = listed(value)
    names = [cast(Value, c).get("check_id") for c in checks or () if isinstance(c, dict)]
    if checks is None or len(checks) != len(names) or names != list(metric.checks):
        yield Broken("checks", f"{where}.checks", f"wanted exactly {list(metric.checks)}, in order")
        return
    for check in checks:
        here = f"{where}.{check['check_id']}"
        for key in ("supporting_evidence", "counterevidence"):
            yield from evidence_problems(check.get(key), f"{here}.{key}", plain_script)
        support, counter = check.get("supporting_evidence"), check.get("counterevidence")
        if check.get("status") not in ("pass", "fail"):
            yield Broken("check_status", f"{here}.status", "wanted pass or fail")
        elif listed(support) is None or listed(counter) is None:
            continue
        elif check["status"] == "pass" and (not support or counter):
            wanted = "wanted supporting evidence and no counterevidence for a check that passes"
            yield Broken("check_evidence", here, wanted)
        elif check["status"] == "fail" and not counter:
            yield Broken("check_evidence", here, "wanted counterevidence for a check that fails")


def _probe(value: Any, where: str, plain_script: str) -> Iterator[Broken]:
    missing = lacking(value, ("risk", "reason"))
    if missing is None or missing:
        yield Broken("probe_shape", where, "wanted risk, evidence, verdict and reason")
        return
    if value.get("verdict") not in ("material", "not_material"):
        yield Broken("probe_shape", f"{where}.verdict", "wanted material or not_material")
    yield from evidence_problems(value.get("evidence"), f"{where}.evidence", plain_script)
    if value.get("evidence") == []:
        yield Broken("probe_evidence", f"{where}.evidence", "wanted at least one quote")


def _defects(value: Any, where: str) -> Iterator[Broken]:
    defects = listed(value)
    if defects is None:
        yield Broken("defect_shape", where, "wanted a list")
        return
    for number, defect in enumerate(defects):
        if lacking(defect, ("location", "reason")) != [] or (
            defect.get("severity") not in _SEVERITIES
        ):
            wanted = f"wanted location, reason and a severity of {list(_SEVERITIES)}"
            yield Broken("defect_shape", f"{where}[{number}]", wanted)


def _agreement(audit: Value, decision: str, metric: Metric, where: str) -> Iterator[Broken]:
    """Yield where checks, defects, probe and threshold do not fit the decision."""
    has_failed = any(check["status"] == "fail" for check in audit["checks"])
    severities = {defect["severity"] for defect in audit["defects"]}
    hit = audit.get("zero_threshold_hit")
    if decision == "pass" and has_failed:
        yield Broken("pass_checks", where, "a pass wants all three checks to pass")
    if decision != "pass" and not has_failed:
        yield Broken(f"{decision}_checks", where, f"a {decision} wants a check that fails")
    if decision == "pass" and severities:
        yield Broken("pass_defects", f"{where}.defects", "a pass wants no defect")
    if decision == "partial" and "critical" in severities:
        yield Broken("partial_critical", f"{where}.defects", "a partial wants no critical defect")
    elif decision == "partial" and not severities:
        yield Broken("partial_defects", f"{where}.defects", "a partial wants a major defect")
    if decision == "fail" and "critical" not in severities:
        yield Broken("fail_critical", f"{where}.defects", "a fail wants a critical defect")
    if decision == "fail" and hit not in metric.zero_thresholds:
        wanted = f"a fail wants one of {list(metric.zero_thresholds)}"
        yield Broken("fail_threshold", f"{where}.zero_threshold_hit", wanted)
    if decision != "fail" and hit is not None:
        wanted = f"a {decision} wants null"
        yield Broken(f"{decision}_threshold", f"{where}.zero_threshold_hit", wanted)
    if audit["adversarial_probe"]["verdict"] != (wanted := _PROBE_OF_DECISION[decision]):
        text = f"a {decision} wants the verdict {wanted}"
        yield Broken(f"{decision}_probe", f"{where}.adversarial_probe", text)


def _metric(value: Any, audit: Any, where: str) -> Iterator[Broken]:
    missing = lacking(value, ("reason",))
    if missing is None or missing:
        yield Broken("metric_shape", where, "wanted score, max_score and a reason")
        return
    decision = cast(Value, audit).get("decision") if isinstance(audit, dict) else None
    wanted = DECISIONS.get(decision) if isinstance(decision, str) else None
    if wanted is not None and not _is_number(value.get("score"), wanted):
        text = f"got {value.get('score')!r:.20}, wanted {wanted} for {decision}"
        yield Broken("score", f"{where}.score", text)
    if not _is_number(value.get("max_score"), MAX_SCORE):
        yield Broken("max_score", f"{where}.max_score", f"wanted {MAX_SCORE}")


def _is_number(value: Any, wanted: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value == wanted


def _of_incomplete(value: Value, audit: Any, name: str, metric: Metric) -> Iterator[Broken]:
    """Yield where a script without its end is judged as if it had one."""
    integrity = value.get("input_integrity")
    if not isinstance(integrity, dict) or not isinstance(audit, dict):
        return
    if cast(Value, integrity).get("status") != "incomplete":
        return
    found, where = cast(Value, audit), f"audits.{name}"
    got = (found.get("decision"), found.get("zero_threshold_hit"))
    if metric.when_incomplete and got != ("fail", metric.when_incomplete):
        wanted = f"an incomplete script wants fail with {metric.when_incomplete!r}"
        yield Broken("incomplete_fail", where, wanted)
    if not metric.may_pass_incomplete and got[0] == "pass":
        yield Broken("incomplete_pass", where, "an incomplete script cannot pass here")


# ------------------------------------------------------------------ what two metrics have more
def _turn_shape(audit: Value, where: str) -> Iterator[Broken]:
    found = audit.get("critical_turn_dependency")
    if lacking(found, ("reason",)) != [] or (
        cast(Value, found).get("classification") not in TURN_CLASSES
    ):
        wanted = f"wanted a reason and a classification of {list(TURN_CLASSES)}"
        yield Broken("turn_shape", f"{where}.critical_turn_dependency", wanted)


def _turn_agreement(audit: Value, decision: str, where: str) -> Iterator[Broken]:
    classification = audit["critical_turn_dependency"]["classification"]
    if decision == "pass" and classification in TURNS_THAT_FORBID_PASS:
        text = f"a turn that is {classification} forbids pass"
        yield Broken("turn_pass", f"{where}.critical_turn_dependency", text)


def _pacing_shape(audit: Value, where: str) -> Iterator[Broken]:
    progression = listed(audit.get("functional_progression"))
    if not _are_texts(progression) or len(progression or ()) > MAX_PROGRESSION:
        wanted = f"wanted at most {MAX_PROGRESSION} texts"
        yield Broken("progression", f"{where}.functional_progression", wanted)
    blocks = listed(audit.get("block_audit"))
    if not blocks or not all(map(_is_block, blocks)):
        wanted = f"wanted blocks: location, new_function, overlap_with, {list(BLOCK_VERDICTS)}"
        yield Broken("block_shape", f"{where}.block_audit", wanted)
    for key in ("removable_blocks", "underwritten_blocks"):
        problems = listed(audit.get(key))
        if problems is None or any(lacking(p, ("location", "reason")) != [] for p in problems):
            yield Broken("block_lists", f"{where}.{key}", "wanted a list of {location, reason}")


def _is_block(value: Any) -> bool:
    if lacking(value, ("location", "new_function")) != []:
        return False
    overlap = value.get("overlap_with")
    return value.get("verdict") in BLOCK_VERDICTS and (overlap is None or is_text(overlap))


def _pacing_agreement(audit: Value, decision: str, where: str) -> Iterator[Broken]:
    if decision != "fail" and not audit["functional_progression"]:
        wanted = "only a fail may leave it empty"
        yield Broken("progression", f"{where}.functional_progression", wanted)
    if decision != "pass":
        return  # where it names no block, its defects do
    if any(block["verdict"] != "essential" for block in audit["block_audit"]):
        yield Broken("pacing_blocks", f"{where}.block_audit", "a pass wants every block essential")
    if audit["removable_blocks"] or audit["underwritten_blocks"]:
        yield Broken("pacing_lists", where, "a pass wants no removable or underwritten block")
