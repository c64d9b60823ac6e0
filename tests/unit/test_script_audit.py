"""The evidence validator: an audit is used when all of it is right, and each rule can break it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.benchmarks import script_audit, script_evidence
from core.benchmarks.script_audit import read_audit
from core.benchmarks.script_evidence import plain, quote_stands
from core.benchmarks.script_rubric import ALL_METRICS, CAUSAL, METRICS, PACING, TOP_KEYS
from tests.unit.script_audits import (
    SCRIPT,
    Audit,
    as_reply,
    decide,
    defect,
    incomplete,
    perfect,
    quote,
)

PROMPT = Path(__file__).parents[2] / "prompts" / "bench_script_metrics.txt"
TONE = "tone_style_alignment"
ENDING = "setup_payoff_ending"

Change = Callable[[Audit], Any]


def tone(audit: Audit) -> Audit:
    return audit["audits"][TONE]


def check(audit: Audit) -> Audit:
    return tone(audit)["checks"][1]


def partial() -> Audit:
    return decide(perfect(), TONE, "partial")


def failed() -> Audit:
    return decide(perfect(), TONE, "fail")


def all_pass(audit: Audit) -> None:
    tone(audit)["checks"][0] |= {"status": "pass", "counterevidence": []}


def probe(audit: Audit) -> Audit:
    return tone(audit)["adversarial_probe"]


def pacing(audit: Audit) -> Audit:
    return audit["audits"][PACING]


def reordered(audit: Audit) -> None:
    audit["metrics"] = audit.pop("metrics")
    audit["audits"] = audit.pop("audits")


def swapped(audit: Audit) -> None:
    tone(audit)["checks"].reverse()


BREAKS: list[tuple[str, Callable[[], Audit], Change]] = [
    ("version", perfect, lambda a: a.update(rubric_version="microfilm_overall_12_v8")),
    ("top_keys", perfect, reordered),
    ("query_analysis", perfect, lambda a: a["query_analysis"].pop("style_preferences")),
    ("query_analysis", perfect, lambda a: a["query_analysis"].update(formal_constraints=[""])),
    ("required_content", perfect, lambda a: a["query_analysis"].update(required_content=[])),
    ("integrity_shape", perfect, lambda a: a["input_integrity"].update(status="whole")),
    ("integrity_shape", perfect, lambda a: a["input_integrity"].update(evidence=[])),
    ("integrity_shape", perfect, lambda a: a["input_integrity"].update(defects=["cut"])),
    (
        "integrity_defects",
        perfect,
        lambda a: a["input_integrity"].update(defects=[{"location": "S03", "reason": "cut"}]),
    ),
    ("integrity_defects", incomplete, lambda a: a["input_integrity"].update(defects=[])),
    ("stage", perfect, lambda a: a.update(evaluation_stage="uncertain")),
    ("warnings", perfect, lambda a: a.update(input_warnings="none")),
    ("audit_slots", perfect, lambda a: a["audits"].pop(TONE)),
    ("metric_slots", perfect, lambda a: a["metrics"].update(extra={"score": 2})),
    ("checks", perfect, lambda a: tone(a)["checks"].pop()),
    ("checks", perfect, swapped),
    ("checks", perfect, lambda a: a["audits"].update({TONE: "pass"})),
    ("check_status", perfect, lambda a: check(a).update(status="maybe")),
    ("check_evidence", perfect, lambda a: check(a).update(supporting_evidence=[])),
    ("check_evidence", perfect, lambda a: check(a).update(counterevidence=[quote()])),
    (
        "check_evidence",
        partial,
        lambda a: tone(a)["checks"][0].update(counterevidence=[], supporting_evidence=[quote()]),
    ),
    ("evidence_shape", perfect, lambda a: check(a).update(counterevidence="none")),
    ("evidence_shape", perfect, lambda a: check(a).update(supporting_evidence=["S02"])),
    ("evidence_shape", perfect, lambda a: check(a)["supporting_evidence"][0].pop("location")),
    ("quote", perfect, lambda a: check(a).update(supporting_evidence=[quote("A dog barks.")])),
    ("quote", perfect, lambda a: check(a).update(supporting_evidence=[quote("\u2014 ?!")])),
    (
        "quote",
        perfect,
        lambda a: probe(a).update(evidence=[quote("A dog barks.")]),
    ),
    ("probe_shape", perfect, lambda a: probe(a).pop("risk")),
    ("probe_shape", perfect, lambda a: probe(a).update(verdict="no")),
    ("probe_evidence", perfect, lambda a: probe(a).update(evidence=[])),
    ("defect_shape", partial, lambda a: tone(a)["defects"][0].update(severity="minor")),
    ("defect_shape", perfect, lambda a: tone(a).update(defects=None)),
    ("decision", perfect, lambda a: tone(a).update(decision="good")),
    (
        "pass_checks",
        perfect,
        lambda a: check(a).update(status="fail", counterevidence=[quote("It hesitates")]),
    ),
    ("pass_defects", perfect, lambda a: tone(a).update(defects=[defect("major")])),
    ("pass_probe", perfect, lambda a: probe(a).update(verdict="material")),
    (
        "pass_threshold",
        perfect,
        lambda a: tone(a).update(zero_threshold_hit=ALL_METRICS[TONE].zero_thresholds[0]),
    ),
    ("partial_checks", partial, all_pass),
    ("partial_defects", partial, lambda a: tone(a).update(defects=[])),
    ("partial_critical", partial, lambda a: tone(a)["defects"].append(defect("critical"))),
    ("partial_probe", partial, lambda a: probe(a).update(verdict="not_material")),
    (
        "partial_threshold",
        partial,
        lambda a: tone(a).update(zero_threshold_hit=ALL_METRICS[TONE].zero_thresholds[0]),
    ),
    ("fail_checks", failed, all_pass),
    ("fail_critical", failed, lambda a: tone(a).update(defects=[defect("major")])),
    ("fail_threshold", failed, lambda a: tone(a).update(zero_threshold_hit=None)),
    ("fail_threshold", failed, lambda a: tone(a).update(zero_threshold_hit="too_dull")),
    ("fail_probe", failed, lambda a: probe(a).update(verdict="not_material")),
    ("turn_shape", perfect, lambda a: a["audits"][CAUSAL].pop("critical_turn_dependency")),
    (
        "turn_shape",
        perfect,
        lambda a: a["audits"][CAUSAL]["critical_turn_dependency"].update(classification="luck"),
    ),
    *(
        (
            "turn_pass",
            perfect,
            lambda a, c=c: a["audits"][CAUSAL]["critical_turn_dependency"].update(classification=c),
        )
        for c in ("coincidence", "missing")
    ),
    ("progression", perfect, lambda a: pacing(a).update(functional_progression=["x"] * 9)),
    ("progression", perfect, lambda a: pacing(a).update(functional_progression=[])),
    ("block_shape", perfect, lambda a: pacing(a).update(block_audit=[])),
    (
        "block_shape",
        perfect,
        lambda a: pacing(a)["block_audit"][0].update(verdict="needed"),
    ),
    ("block_lists", perfect, lambda a: pacing(a).update(removable_blocks=["S01"])),
    (
        "pacing_blocks",
        perfect,
        lambda a: pacing(a)["block_audit"][0].update(verdict="mergeable"),
    ),
    (
        "pacing_lists",
        perfect,
        lambda a: pacing(a).update(
            underwritten_blocks=[{"location": "S03", "reason": "thin"}]
        ),
    ),
    ("metric_shape", perfect, lambda a: a["metrics"][TONE].pop("reason")),
    ("score", perfect, lambda a: a["metrics"][TONE].update(score=1)),
    ("score", partial, lambda a: a["metrics"][TONE].update(score=True)),
    ("max_score", perfect, lambda a: a["metrics"][TONE].update(max_score=3)),
    ("incomplete_fail", incomplete, lambda a: decide(a, ENDING, "partial")["audits"][ENDING].update(
        zero_threshold_hit=None)),
    ("incomplete_fail", incomplete, lambda a: decide(a, ENDING, "fail")),
    (
        "incomplete_pass",
        incomplete,
        lambda a: (
            a["audits"].update({TONE: perfect()["audits"][TONE]}),
            a["metrics"][TONE].update(score=2),
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "start", "change"), BREAKS, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(BREAKS)]
)
def test_each_rule_is_broken_by_exactly_its_fault(
    rule: str, start: Callable[[], Audit], change: Change
) -> None:
    audit = start()
    assert read_audit(as_reply(audit), SCRIPT).broken == ()
    change(audit)
    read = read_audit(as_reply(audit), SCRIPT)
    assert {broken.rule for broken in read.broken} == {rule}
    assert read.scores == {}


def test_every_rule_has_its_fault() -> None:
    source = "".join(
        Path(module.__file__ or "").read_text(encoding="utf-8")
        for module in (script_audit, script_evidence)
    )
    rules = set(re.findall(r'Broken\(\s*"(\w+)"', source)) | {"query_analysis"}
    for ending in re.findall(r'Broken\(\s*f"\{decision\}_(\w+)"', source):
        decisions = ("partial", "fail") if ending == "checks" else ("pass", "partial", "fail")
        rules |= {f"{decision}_{ending}" for decision in decisions}
    # A fail has a rule of its own for its threshold, and what is no JSON is tested below.
    assert rules - {"json"} == {rule for rule, _, _ in BREAKS}


def test_a_reply_that_is_no_object_breaks_one_rule() -> None:
    for text in ("", "no", "[1]", as_reply(perfect())[:-1], "<think>" + as_reply(perfect())):
        assert [b.rule for b in read_audit(text, SCRIPT).broken] == ["json"]


def test_a_right_audit_gives_its_decisions_as_points() -> None:
    audit = decide(decide(perfect(), TONE, "partial"), CAUSAL, "fail")
    audit["audits"][CAUSAL]["critical_turn_dependency"]["classification"] = "missing"
    read = read_audit("```json\n" + as_reply(audit) + "\n```", SCRIPT)
    assert read.broken == ()
    assert (read.scores[TONE], read.scores[CAUSAL], sum(read.scores.values())) == (1, 0, 21)
    assert read.status == "complete"


def test_totals_of_the_judge_are_not_read() -> None:
    audit = perfect() | {"total_score": 3, "overall_score_100": 12.5}
    assert sum(read_audit(as_reply(audit), SCRIPT).scores.values()) == 24


def test_an_uncertain_script_may_have_any_decision() -> None:
    audit = perfect()
    audit["evaluation_stage"] = audit["input_integrity"]["status"] = "uncertain"
    assert read_audit(as_reply(audit), SCRIPT).broken == ()


def test_all_broken_rules_are_told_at_once() -> None:
    audit = perfect()
    audit["evaluation_stage"] = "uncertain"
    audit["metrics"][TONE]["score"] = 0
    check(audit)["supporting_evidence"] = [quote("A dog barks.")]
    rules = [b.rule for b in read_audit(as_reply(audit), SCRIPT).broken]
    assert sorted(rules) == ["quote", "score", "stage"]


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("The moth climbs into the light.", True),
        ("the MOTH climbs, into the light", True),  # marks, spaces and case do not matter
        ("\uff34\uff48\uff45 moth", True),  # full-width letters are the same under NFKC
        ("Stay on, little one", True),
        ("A moth falls \u2026 It hesitates", True),
        ("A moth falls ... It hesitates \u2026\u2026 The moth climbs", True),
        ("It hesitates \u2026 A moth falls", False),  # out of order
        ("beats its wings \u2026 its wings", False),  # the second fragment may not overlap
        ("A moth falls \u2026 into the sea", False),
        ("\u2026 A moth falls", True),
        ("A moth sits", False),
        ("!", False),
        ("", False),
    ],
)
def test_a_quote_stands_in_the_script_whatever_its_marks(text: str, stands: bool) -> None:
    assert quote_stands(text, plain(SCRIPT)) is stands


def test_there_are_twelve_metrics_in_four_categories_with_three_checks_each() -> None:
    assert [len(metrics) for metrics in METRICS.values()] == [3, 3, 3, 3]
    checks = [c for metric in ALL_METRICS.values() for c in metric.checks]
    assert (len(set(checks)), len(ALL_METRICS)) == (36, 12)


def test_the_prompt_names_every_metric_check_threshold_and_key_in_order() -> None:
    text = PROMPT.read_text(encoding="utf-8")
    place = 0
    for category, metrics in METRICS.items():
        place = text.index(f"## Category {category}\n", place)
        for name, metric in metrics.items():
            place = text.index(f"\n{name}: ", place)
            for check_id in metric.checks:
                place = text.index(f"\n- {check_id}: ", place)
            for level in ("\n2: ", " 1: ", " 0: "):
                place = text.index(level, place)
            line = f"\nZero thresholds: {'; '.join(metric.zero_thresholds)}\n"
            place = text.index(line, place)
    for key in TOP_KEYS:
        place = text.index(f'"{key}": ', place)
