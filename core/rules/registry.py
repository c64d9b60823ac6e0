"""All rules by name, their checks at load, and the measure of a rule on a case.

Rewardable rules and gold rules are kept apart: the rubric writer may use the first only.
"""

from pydantic import ValidationError

from core.rubric import Frozen, Rule
from core.rules.content import CONTENT
from core.rules.form import FORM
from core.rules.gold import GOLD
from core.rules.repetition import REPETITION
from core.rules.spec import Case, Measure, RuleSpec
from core.validation import first_problem

REWARDABLE: dict[str, RuleSpec] = {**FORM.specs, **CONTENT.specs, **REPETITION.specs}
"""Rules that may be rewarded and that the writer may use."""

RULES: dict[str, RuleSpec] = {**REWARDABLE, **GOLD.specs}
"""All rules."""


def parsed_args(rule: Rule) -> Frozen:
    """Return a rule's arguments with defaults; ValueError says what is wrong with them."""
    spec = RULES.get(rule.name)
    if spec is None:
        raise ValueError(f"got rule {rule.name!r}, wanted one of {', '.join(sorted(RULES))}")
    try:
        return spec.args.model_validate(rule.args)
    except ValidationError as e:
        wanted = ", ".join(spec.args.model_fields) or "none"
        raise ValueError(
            f"rule {rule.name!r}: {first_problem(e)} (got {rule.args}, arguments are: {wanted})"
        ) from e


def check_rule(rule: Rule, max_score: int = 1) -> str | None:
    """Return what is wrong with a rule on a criterion of this maximum, None if nothing is."""
    if max_score < 1:
        return f"rule {rule.name!r}: got max {max_score}, wanted at least 1"
    try:
        parsed_args(rule)
    except ValueError as e:
        return str(e)
    return None


def measure(rule: Rule, looked_at: Case) -> Measure:
    """Return the rule's measure of a case; ValueError for a bad rule, UndecidedError if stuck."""
    return RULES[rule.name].measure(parsed_args(rule), looked_at)
