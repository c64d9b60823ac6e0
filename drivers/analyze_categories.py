"""Classifies a run's replacements by what they are about (RARE section 5.3)."""

from pathlib import Path

from core.analysis.categories import FIELDS, RevisionCase, category_prompt, category_table
from core.analysis.evidence import events_of
from core.rows import Row
from drivers.analyze_models import Question, Roles, ask_choices, evenly
from drivers.analyze_read import AnalysedRun
from serve.prompts import load_prompt

ROLES = ("judge",)


def revision_categories(run: AnalysedRun, roles: Roles, folder: Path, max_cases: int) -> Row:
    """Ask the judge about each replacement and count; NotInFiles without replacements."""
    cases = [
        RevisionCase(
            key=f"{e.group.query_id} v{e.group.rubric.version} {p.new.id}",
            prompt=run.queries.query(e.group.query_id).prompt_text,
            old=p.old,
            new=p.new,
            polarity=p.polarity,
            direction=p.reason,
        )
        for e in events_of([run.evidence])
        for p in e.pairs
    ]
    template = load_prompt("revision_category")
    questions = [
        Question(key=c.key, prompt=category_prompt(template, c), fields=FIELDS)
        for c in evenly(cases, max_cases)
    ]
    path = folder / "categories_judge.jsonl"
    answers = ask_choices(roles["judge"], path, questions, "revision categories")
    return {"in_the_run": len(cases), **category_table(answers)}
