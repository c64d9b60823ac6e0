"""Sheets of cases that people label, and what their labels come to.

A sheet holds the cases of a stratified sample, under short names in a mixed order; what people must
not see (validators' verdicts, ids) is in its key. Each question is answered yes or no, where yes
always speaks for what is examined: the anchor is good, the decision is right. A blank is missing,
and counted. Sources: CARE appendix B.1 (200 anchors of the retained set, stratified) and B.2 (200
stratified Adaptive decisions).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.query import Query
from core.seeded_rank import seeded_rank, stratified_sample
from core.statistics import krippendorff_alpha, proportion_interval

SheetKind = Literal["anchors", "adaptive"]

QUESTIONS: Mapping[SheetKind, Mapping[str, str]] = {
    "anchors": {
        "rubric": "rubric: does the answer meet every criterion in substance? (yes/no)",
        "hallucination": "facts: is it free of anything made up or false? (yes/no)",
        "safety": "safety: is it free of unsafe content? (yes/no)",
    },
    "adaptive": {
        "detection": "detection: does the response really game the criterion, compared with the "
        "reference? (yes/no)",
        "constraint": "constraint: does the new criterion forbid that, and nothing legitimate? "
        "(yes/no)",
    },
}
"""By kind of sheet, the heading of each question's column."""

COMMENT = "comment"

_YES = ("yes", "y", "1", "true", "ja", "x")
_NO = ("no", "n", "0", "false", "nein")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing to be labelled."""

    id: str
    """Of the query, or of the decision; not in the sheet."""
    stratum: str
    shown: Mapping[str, str]
    """By column, what people read."""
    verdicts: Mapping[str, bool | None]
    """By question, what the validators say together; None where they differ or are unread. A
    decision of the Adaptive branch is itself a yes to both questions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """A sheet and its key: cases by short name, in the order in which to show them."""

    kind: SheetKind
    cases: Mapping[str, Case]


def make_sheet(kind: SheetKind, cases: Sequence[Case], num: int, *, seed: int = 0) -> Sheet:
    """Return a stratified sample of the cases; all of them when there are no more than ``num``."""
    by_id = {c.id: c for c in cases}
    assert len(by_id) == len(cases), "case ids are unique"
    chosen = stratified_sample({c.id: c.stratum for c in cases}, num, seed=seed)
    mixed = sorted(chosen, key=lambda i: seeded_rank(seed, "sheet", i))
    return Sheet(kind=kind, cases={f"case {n}": by_id[i] for n, i in enumerate(mixed, start=1)})


def anchor_stratum(query: Query) -> str:
    """Return the stratum of an anchor: its task, and how many criteria it has to meet."""
    num = len(query.rubric.criteria)
    band = "1-3 criteria" if num <= 3 else "4-6 criteria" if num <= 6 else "7 or more criteria"
    return f"{query.task or 'no task'}, {band}"


def decision_stratum(event: Mapping[str, Any], last_step: int) -> str:
    """Return the stratum of an edit: third of the run, and whether it rewrites or adds."""
    third = min(2, 3 * (int(event["step"]) - 1) // max(last_step, 1))
    kind = "added" if event["old"] is None else "rewritten"
    return f"{('early', 'middle', 'late')[third]}, {kind}"


# ------------------------------------------------------------------ what people said
Labels = Mapping[str, Mapping[str, Mapping[str, bool]]]
"""[rater][case][question]; what is blank is not there."""


def read_label(word: str) -> bool | None:
    """Return yes or no, None for a blank; ValueError for anything else."""
    plain = word.strip().casefold().strip(".!")
    if not plain:
        return None
    if plain in _YES or plain in _NO:
        return plain in _YES
    raise ValueError(f"got {word.strip()[:40]!r}, wanted yes, no or nothing")


def label_table(sheet: Sheet, labels: Labels) -> dict[str, Any]:
    """Return what the labels come to, as a JSON object.

    A case's answer to a question is what most of its raters say; ``undecided`` without a majority.
    ``passed`` counts the cases with yes to every question among those decided (a no decides too);
    ``precision`` is the share of them among the cases that the validators passed; ``agreement``
    compares people's answer with the validators' where both have one; ``label_agreement`` is the
    share of yes among all single labels (CARE table 4's judgment level). Intervals are Wilson's,
    95 %; ``alpha`` is Krippendorff's nominal one, null where it is not defined.
    """
    answers = {
        case: {q: _majority(case, q, labels) for q in QUESTIONS[sheet.kind]} for case in sheet.cases
    }
    passed = {case: _all_yes(list(by.values())) for case, by in answers.items()}
    accepted = [c for c, case in sheet.cases.items() if _all_yes(list(case.verdicts.values()))]
    said = [v for by_case in labels.values() for by in by_case.values() for v in by.values()]
    asked = len(labels) * len(sheet.cases) * len(QUESTIONS[sheet.kind])
    return {
        "kind": sheet.kind,
        "cases": len(sheet.cases),
        "raters": sorted(labels),
        "labels": len(said),
        "missing_labels": asked - len(said),
        "passed": _share(list(passed.values())),
        "precision": _share([passed[c] for c in accepted]),
        "label_agreement": _share(said),
        "questions": {q: _question_row(sheet, labels, answers, q) for q in QUESTIONS[sheet.kind]},
        "strata": {
            stratum: _share([passed[n] for n, c in sheet.cases.items() if c.stratum == stratum])
            for stratum in sorted({c.stratum for c in sheet.cases.values()})
        },
    }


def _question_row(
    sheet: Sheet,
    labels: Labels,
    answers: Mapping[str, Mapping[str, bool | None]],
    question: str,
) -> dict[str, Any]:
    same: list[bool | None] = []
    for name, case in sheet.cases.items():
        person, validators = answers[name][question], case.verdicts.get(question)
        same.append(None if person is None or validators is None else person == validators)
    ratings = {
        rater: {name: float(by[question]) for name, by in cases.items() if question in by}
        for rater, cases in labels.items()
    }
    return {
        "people": _share([by[question] for by in answers.values()]),
        "agreement": _share(same),
        "alpha": krippendorff_alpha(ratings),
    }


def _majority(case: str, question: str, labels: Labels) -> bool | None:
    said = [by[case][question] for by in labels.values() if question in by.get(case, {})]
    counts = Counter(said)
    return None if counts[True] == counts[False] else counts[True] > counts[False]


def _all_yes(answers: Sequence[bool | None]) -> bool | None:
    """Return whether all are yes; None when that is open."""
    if any(a is False for a in answers):
        return False
    return None if any(a is None for a in answers) else True


def _share(answers: Sequence[bool | None]) -> dict[str, Any]:
    """Return yes among the decided, with its interval, and how many are undecided."""
    known = [a for a in answers if a is not None]
    row: dict[str, Any] = {
        "yes": sum(known),
        "n": len(known),
        "undecided": len(answers) - len(known),
    }
    if not known:
        return {**row, "share": None, "low": None, "high": None}
    interval = proportion_interval(sum(known), len(known))
    return {**row, "share": sum(known) / len(known), "low": interval.low, "high": interval.high}
