"""An audit of CARE's decisions by two judges, with and without the anchor.

CARE appendix B.2 and table 4: each judge says whether a hack was there (whether the detection was
right), whether the new [Resist] criterion is an appropriate answer to it, and which subtype of the
taxonomy it is. The outcomes are: both agree with the detection, they disagree, both reject it. The
audit is made twice, once with the anchor among what the judges see and once without; whether the
decision itself was made with an anchor is the run's config. Chase edits are classified only. A
reply that cannot be read makes its case missing; it is never a rejection.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.analysis.choices import YES_NO
from core.analysis.taxonomy import ADAPTIVE, CHASE, OTHER, class_of, listed
from core.evolution.prompt_sections import keep_parts
from core.rows import Row
from core.rubric import Criterion
from core.statistics import krippendorff_alpha
from core.templates import fenced, fill, json_text

ADAPTIVE_FIELDS: Mapping[str, Sequence[str]] = {
    "hacking": YES_NO,
    "constraint": YES_NO,
    "code": (*ADAPTIVE, OTHER),
}
"""What a judge answers about an adaptive decision."""

CHASE_FIELDS: Mapping[str, Sequence[str]] = {"code": (*CHASE, OTHER)}
"""What a judge answers about a chase edit."""

Answers = Mapping[str, Mapping[str, str] | None]
"""A judge's answers by case; None where no reply could be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditCase:
    """One accepted edit, with what its writer saw."""

    key: str
    query_id: str
    step: int
    prompt: str
    response: str
    """The top rollout."""
    before: tuple[Criterion, ...]
    """The rubric that was edited."""
    old: Criterion | None
    """The criterion that the edit rewrote; None for one that was added."""
    new: Criterion
    analysis: str
    """The writer's own account."""
    anchor: str | None


def audit_prompt(template: str, case: AuditCase, *, has_anchor: bool, is_adaptive: bool) -> str:
    """Return the question about one edit; all text from outside stands in fenced sections."""
    values = {
        "prompt": fenced(case.prompt, "task"),
        "rubric": fenced(json_text([c.tagged for c in case.before], indent=1), "rubric"),
        "response": fenced(case.response, "answer"),
        "change": fenced(_change(case), "change"),
        "analysis": fenced(case.analysis or "(none)", "analysis"),
        "codes": listed(ADAPTIVE if is_adaptive else CHASE),
    }
    if has_anchor:
        assert case.anchor is not None, "a case without anchor is not asked about with one"
        values["anchor"] = fenced(case.anchor, "reference_answer")
    return fill(keep_parts(template, {"anchor"} if has_anchor else set()), values)


def _change(case: AuditCase) -> str:
    old = None if case.old is None else case.old.tagged
    return json_text({"replaced": old, "new": case.new.tagged}, indent=1)


# ------------------------------------------------------------------ what the judges said
def adaptive_outcomes(a: Answers, b: Answers) -> Row:
    """Return one arm's table 4: outcomes of detection and constraint, agreement, codes.

    ``a`` and ``b`` are about the same cases. Shares are of the cases that both judges answered.
    """
    both = [i for i in a if a[i] is not None and b.get(i) is not None]
    return {
        "cases": len(a),
        "answered_by_both": len(both),
        "missing": len(a) - len(both),
        "detection": _outcomes(a, b, both, "hacking"),
        "constraint": _outcomes(a, b, both, "constraint"),
        **_code_agreement(a, b, both),
        "codes": _codes(a, b, list(ADAPTIVE)),
    }


def chase_outcomes(a: Answers, b: Answers) -> Row:
    """Return the classification of chase edits by both judges."""
    both = [i for i in a if a[i] is not None and b.get(i) is not None]
    return {
        "cases": len(a),
        "answered_by_both": len(both),
        "missing": len(a) - len(both),
        **_code_agreement(a, b, both),
        "codes": _codes(a, b, list(CHASE)),
    }


def _said(answers: Answers, case: str, field: str) -> str:
    found = answers[case]
    assert found is not None
    return found[field]


def _outcomes(a: Answers, b: Answers, both: Sequence[str], field: str) -> Row:
    yes = [(_said(a, i, field) == "yes") + (_said(b, i, field) == "yes") for i in both]
    counts = {"both_agree": yes.count(2), "disagree": yes.count(1), "both_reject": yes.count(0)}
    shares = {f"{name}_share": n / len(both) if both else None for name, n in counts.items()}
    return {**counts, **shares, "alpha": _alpha(a, b, both, field)}


def _code_agreement(a: Answers, b: Answers, both: Sequence[str]) -> Row:
    pairs = [(_said(a, i, "code"), _said(b, i, "code")) for i in both]
    same_class = [class_of(x) == class_of(y) for x, y in pairs]
    return {
        "same_code_share": sum(x == y for x, y in pairs) / len(pairs) if pairs else None,
        "same_class_share": sum(same_class) / len(pairs) if pairs else None,
        "code_alpha": _alpha(a, b, both, "code"),
    }


def _alpha(a: Answers, b: Answers, both: Sequence[str], field: str) -> float | None:
    """Krippendorff's alpha, nominal; None where it is not defined."""
    ratings = {
        name: {i: _said(answers, i, field) for i in both} for name, answers in (("a", a), ("b", b))
    }
    return krippendorff_alpha(ratings) if both else None


def _codes(a: Answers, b: Answers, order: Sequence[str]) -> list[Row]:
    """How often each judge gave each code, those that somebody gave."""
    counts_a, counts_b = (
        Counter(found["code"] for found in answers.values() if found is not None)
        for answers in (a, b)
    )
    agreed = Counter(
        found["code"]
        for i, found in a.items()
        if found is not None and (other := b.get(i)) is not None and other["code"] == found["code"]
    )
    return [
        {"code": c, "judge_a": counts_a[c], "judge_b": counts_b[c], "both": agreed[c]}
        for c in (*order, OTHER)
        if counts_a[c] or counts_b[c]
    ]
