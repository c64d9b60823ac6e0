"""The audit of CARE's edits by two judges (CARE appendix B.2 to B.4).

Every accepted adaptive edit is asked about twice a judge, with the anchor and without; every
accepted chase edit is classified once. What is shown is what the writer saw: task, rubric before
the edit, top rollout, edit and analysis.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.analysis.audit import (
    ADAPTIVE_FIELDS,
    CHASE_FIELDS,
    AuditCase,
    adaptive_outcomes,
    audit_prompt,
    chase_outcomes,
)
from core.analysis.evidence import NotInFiles
from core.config_evolution import CareEvolution, RatchetEvolution
from core.grading.visible import visible_response
from core.rows import Row, edit_from_row
from drivers.analyze_models import Question, Roles, ask_choices, evenly
from drivers.analyze_read import AnalysedRun
from drivers.jsonl_files import read_rows
from drivers.run_files import step_files
from serve.prompts import load_prompt

ROLES = ("judge-a", "judge-b")

_Place = tuple[int, str, int]
"""Step, query id, index of a rollout."""


def audit(run: AnalysedRun, roles: Roles, folder: Path, max_cases: int) -> Row:
    """Ask both judges and summarise; NotInFiles when the run has no such edit."""
    adaptive = _cases(run, "adaptive", max_cases)
    chase = _cases(run, "chase", max_cases)
    if not adaptive and not chase:
        raise NotInFiles("no accepted edit of CARE's branches whose rollout is in the files")
    result: Row = {"decided_with_anchor": _decided_with_anchor(run)}
    if adaptive:
        anchored = [c for c in adaptive if c.anchor is not None]
        result["adaptive"] = {
            "decisions": len(adaptive),
            "without_an_anchor_to_show": len(adaptive) - len(anchored),
        }
        result["with_anchor"] = _adaptive_arm(roles, folder, anchored, has_anchor=True)
        result["without_anchor"] = _adaptive_arm(roles, folder, adaptive, has_anchor=False)
    if chase:
        result["chase"] = chase_outcomes(
            *(_asked(r, roles, folder, _chase_questions(chase), "chase edits") for r in ROLES)
        )
    return result


def _decided_with_anchor(run: AnalysedRun) -> bool | None:
    evolution = run.config.evolution
    is_care = isinstance(evolution, CareEvolution | RatchetEvolution)
    return evolution.care.anchor if is_care else None


# ------------------------------------------------------------------ questions
def _adaptive_arm(
    roles: Roles, folder: Path, cases: Sequence[AuditCase], *, has_anchor: bool
) -> Row:
    if not cases:
        return {"missing": "no decision's query has an anchor"}
    template = load_prompt("audit_adaptive")
    arm = "with anchor" if has_anchor else "without anchor"
    questions = [
        Question(
            key=f"{arm} {c.key}",
            prompt=audit_prompt(template, c, has_anchor=has_anchor, is_adaptive=True),
            fields=ADAPTIVE_FIELDS,
        )
        for c in cases
    ]
    return adaptive_outcomes(
        *(_asked(role, roles, folder, questions, f"decisions {arm}") for role in ROLES)
    )


def _chase_questions(cases: Sequence[AuditCase]) -> list[Question]:
    template = load_prompt("audit_chase")
    return [
        Question(
            key=f"chase {c.key}",
            prompt=audit_prompt(template, c, has_anchor=c.anchor is not None, is_adaptive=False),
            fields=CHASE_FIELDS,
        )
        for c in cases
    ]


def _asked(
    role: str, roles: Roles, folder: Path, questions: Sequence[Question], what: str
) -> dict[str, dict[str, str] | None]:
    path = folder / f"audit_{role}.jsonl"
    return ask_choices(roles[role], path, questions, f"{role}, {what}")


# ------------------------------------------------------------------ cases
def _cases(run: AnalysedRun, branch: str, max_cases: int) -> list[AuditCase]:
    """The accepted edits of a branch whose rollout is there, in order of time."""
    lines = [
        line
        for line in run.events
        if line["branch"] == branch
        and line["status"] == "accepted"
        and line["new"] is not None
        and line["evidence"]["rollouts"]
    ]
    lines = evenly(lines, max_cases)
    places = [(x["step"], x["query_id"], x["evidence"]["rollouts"][0]) for x in lines]
    responses = _responses(run, places)
    pairs = zip(lines, places, strict=True)
    return [_case(run, line, responses[p]) for line, p in pairs if p in responses]


def _case(run: AnalysedRun, line: Row, response: str) -> AuditCase:
    edit = edit_from_row(line)
    assert edit.new is not None, "lines without a new criterion are left out"
    query = run.queries.query(line["query_id"])
    case = AuditCase(
        key=f"{line['query_id']} v{line['to_version']} {edit.new.id}",
        query_id=query.id,
        step=line["step"],
        prompt=query.prompt_text,
        response=visible_response(response),
        before=run.rubrics[line["query_id"], line["from_version"]].criteria,
        old=edit.old,
        new=edit.new,
        analysis=edit.evidence.analysis,
        anchor=None,
    )
    return case if query.anchor is None else replace(case, anchor=query.anchor.response)


def _responses(run: AnalysedRun, places: Sequence[_Place]) -> dict[_Place, str]:
    """Return the responses at these places, those that are in the files."""
    wanted, steps = set(places), {step for step, _, _ in places}
    found: dict[_Place, str] = {}
    for step, path in step_files(run.files.rollouts):
        for row in read_rows(path) if step in steps else ():
            place = (step, row["query_id"], row["index"])
            if place in wanted:
                found[place] = row["response"]
    return found
