"""The rule-based rubric writer for CARE's contrast: no model, pure, deterministic.

``write_contrast`` answers as a model would, with ``<ANALYSIS>`` and ``<FINAL_SET>`` (CARE appendix
E.2): first the hack check, and only when it finds nothing the quality gap. It writes at most one
new criterion, a canonical sentence that code can judge, and leaves every other one as it is.
It sees the prompt, the criteria with their rules, the rollout and the anchor, and nothing else of
the run: no step, no gold, no reward.
"""

import json
from collections.abc import Iterable

from core.rubric import TAGS, Criterion, CriterionKind, Rule
from core.rules.contrast import Contrast, Finding, asked_words, listed_words, plain_line
from core.rules.detectors import findings
from core.rules.gaps import gaps
from core.rules.phrases import text_from_rule
from core.rules.verifiers import rule_of
from core.rules.words import Text, words_of
from core.writer_requests import ContrastRequest

_GAMEABLE_NAMES = (
    "mentions mention_points contains_all contains_any keyword_in_sentences min_words "
    "min_sentences bullets starts_with ends_with regex"
)
_GAMEABLE = frozenset(_GAMEABLE_NAMES.split())
"""Rules that ask for presence or amount, from which piling up profits."""


def write_contrast(request: ContrastRequest) -> str:
    """Return the raw reply on one contrast."""
    criteria = (*request.satisfied, *request.unsatisfied)
    contrast = Contrast(
        response=Text(request.response),
        anchor=Text(request.anchor.response) if request.anchor else None,
        prompt=Text(request.prompt),
        asked=asked_words(request.prompt) or listed_words(criteria),
    )
    satisfied = [c for c in request.satisfied if not c.is_resist]
    if request.is_adaptive and satisfied:
        for finding in findings(contrast):
            text = _new_text(finding.rule, criteria, "resist")
            if text is not None and contrast.anchor_passes(finding.rule):
                return _reply(
                    _hack_analysis(finding, satisfied), criteria, f"{TAGS['resist']} {text}"
                )
    if request.is_chase:
        for gap in gaps(contrast):
            text = _new_text(gap.rule, criteria, "llm")
            if text is not None:
                return _reply(_gap_analysis(gap), criteria, f"{TAGS['llm']} {text}")
    return _reply(_nothing_found(request), criteria, None)


def _new_text(rule: Rule, criteria: Iterable[Criterion], kind: CriterionKind) -> str | None:
    """Return the canonical sentence, None when the set has this rule already.

    A veto may repeat the rule of an [llm] criterion with another limit, never the same sentence.
    """
    text = text_from_rule(rule)
    for criterion in criteria:
        known = rule_of(criterion)
        is_same_rule = known is not None and known.name == rule.name
        is_same_text = " ".join(criterion.text.split()).casefold() == text.casefold()
        if is_same_text or (is_same_rule and (kind == "llm" or criterion.is_resist)):
            return None
    return text


def _exploited(finding: Finding, satisfied: list[Criterion]) -> Criterion:
    """Return the satisfied criterion that profits most plausibly from the pattern."""
    quote = set(words_of(finding.quote))

    def plausibility(place: int) -> tuple[bool, int, int]:
        rule = rule_of(satisfied[place])
        is_gameable = rule is not None and rule.name in _GAMEABLE
        return is_gameable, len(quote & set(words_of(satisfied[place].text))), place

    return satisfied[max(range(len(satisfied)), key=plausibility)]


def _hack_analysis(finding: Finding, satisfied: list[Criterion]) -> str:
    exploited = plain_line(_exploited(finding, satisfied).text)
    return (
        f"Hack check: {finding.pattern}.\n"
        f"Exploited criterion, satisfied all the same: {exploited}\n"
        f'Evidence in the response: "{finding.quote}"\n'
        f"Numbers: {plain_line(finding.seen)}.\n"
        "Change: one [Resist] criterion is added that the anchor passes; the others stay."
    )


def _gap_analysis(gap: Finding) -> str:
    return (
        "Hack check: no pattern that code can see.\n"
        f"Largest gap to the anchor: {gap.pattern} ({plain_line(gap.seen)}).\n"
        "Change: one [llm] criterion is added that the anchor passes; the others stay."
    )


def _nothing_found(request: ContrastRequest) -> str:
    checked = [
        name
        for name, is_on in (("hack pattern", request.is_adaptive), ("gap", request.is_chase))
        if is_on
    ]
    return f"No new {' and no '.join(checked)} that code can see; the set stays as it is."


def _reply(analysis: str, criteria: Iterable[Criterion], new: str | None) -> str:
    items = [c.tagged for c in criteria] + ([new] if new is not None else [])
    written = json.dumps(items, indent=1).replace("<", "\\u003c").replace(">", "\\u003e")
    return f"<ANALYSIS>\n{analysis}\n</ANALYSIS>\n<FINAL_SET>\n{written}\n</FINAL_SET>"
