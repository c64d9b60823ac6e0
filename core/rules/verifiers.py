"""Criteria decided by code: the embedded judge's knowledge.

``check_rule`` tells at load what is wrong with a rule; ``decide`` scores one response on one
criterion. A criterion is decidable when it carries a rule or when its text is a canonical sentence
(``core/rules/phrases.py``). What code cannot decide is a failed verdict, never a score.
"""

from core.records import Verdict
from core.rubric import Criterion, Rule
from core.rules.phrases import rule_from_text
from core.rules.registry import REWARDABLE, RULES, check_rule, measure
from core.rules.spec import UndecidedError, case

__all__ = ["REWARDABLE", "RULES", "check_rule", "decide", "is_decidable", "measure", "rule_of"]


def rule_of(criterion: Criterion) -> Rule | None:
    """Return the rule that decides a criterion: its own, or the one that its text states."""
    return criterion.rule or rule_from_text(criterion.text)


def is_decidable(criterion: Criterion) -> bool:
    """Whether code can decide this criterion."""
    rule = rule_of(criterion)
    return rule is not None and check_rule(rule, criterion.max) is None


def decide(criterion: Criterion, response: str, prompt: str) -> Verdict:
    """Score a response on a criterion: an integer 0..max, or the failure ``undecidable``."""
    rule = rule_of(criterion)
    if rule is None:
        return _undecided(criterion, "no rule in code decides this text; use a model as judge")
    try:
        found = measure(rule, case(response, prompt, criterion.max))
    except (KeyError, ValueError, UndecidedError) as e:
        error = check_rule(rule, criterion.max) or str(e)
        return _undecided(criterion, error)
    return Verdict(
        criterion_id=criterion.id,
        score=found.score(criterion.max),
        max=criterion.max,
        reason=found.reason,
    )


def _undecided(criterion: Criterion, reason: str) -> Verdict:
    return Verdict(
        criterion_id=criterion.id,
        score=None,
        max=criterion.max,
        reason=reason,
        failure="undecidable",
    )
