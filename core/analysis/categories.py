"""What replacements are about: revision categories, evaluation dimensions, and one by the other.

RARE section 5.3, figure 4(b) and appendix A.4: a judge sees the query, the old and the new
criterion and the writer's learning direction, no evaluation scores, and chooses one category and
one dimension. The stored paper names five of its categories (narrative function, concrete scene
details, progression, continuity, setup and payoff) without their definitions; the other categories
and all wording are ours. The dimensions are the four categories of the paper's twelve metrics,
said so that they fit other kinds of text too. The gains that the figure shows beside them are of
evaluations, not of a run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.rows import Row
from core.rubric import Criterion
from core.templates import fenced, fill, json_text

CATEGORIES: Mapping[str, str] = {
    "narrative_function": "what a part does for the whole: every scene or passage has a purpose",
    "scene_details": "concrete details: what can be seen, heard, named or counted",
    "progression": "things develop: stakes, tension, argument or understanding move on",
    "continuity": "states, facts, names and causes stay consistent from part to part",
    "setup_and_payoff": "what is prepared is resolved, and what is resolved was prepared",
    "requirement_coverage": "an element or constraint that the query asks for",
    "motivation": "why somebody acts: motives, choices and their consequences",
    "style_and_tone": "language, register, tone or form",
    "economy": "no padding, repetition or superfluous part; pace",
    "other": "none of these",
}
"""The first five are the paper's."""

DIMENSIONS: Mapping[str, str] = {
    "query_fulfillment": "it does what the query asks, in detail and tone",
    "narrative_coherence": "causes, characters (or claims) and states hang together",
    "cinematic_executability": "it can be carried out: observable, feasible, paced",
    "dramatic_effectiveness": "it engages, pays off, and is its own",
}

FIELDS: Mapping[str, Sequence[str]] = {
    "category": tuple(CATEGORIES),
    "dimension": tuple(DIMENSIONS),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionCase:
    """One replacement to be classified."""

    key: str
    prompt: str
    old: Criterion
    new: Criterion
    polarity: str
    direction: str
    """What the writer said it should teach."""


def category_prompt(template: str, case: RevisionCase) -> str:
    """Return the question about one replacement."""
    change = {"old": _criterion(case.old), "new": _criterion(case.new), "polarity": case.polarity}
    return fill(
        template,
        {
            "prompt": fenced(case.prompt, "query"),
            "change": fenced(json_text(change, indent=1), "change"),
            "direction": fenced(case.direction or "(none)", "direction"),
            "categories": _listed(CATEGORIES),
            "dimensions": _listed(DIMENSIONS),
        },
    )


def category_table(answers: Mapping[str, Mapping[str, str] | None]) -> Row:
    """Return counts and shares of categories, and category by dimension.

    Shares are of the replacements that were classified; the others are counted as missing.
    """
    known = [found for found in answers.values() if found is not None]
    categories = Counter(found["category"] for found in known)
    cells = Counter((found["category"], found["dimension"]) for found in known)
    return {
        "replacements": len(answers),
        "classified": len(known),
        "missing": len(answers) - len(known),
        "categories": [
            {
                "category": name,
                "count": categories[name],
                "share": categories[name] / len(known),
                **{dimension: cells[name, dimension] for dimension in DIMENSIONS},
            }
            for name in CATEGORIES
            if categories[name]
        ],
    }


def _criterion(criterion: Criterion) -> Row:
    levels = criterion.levels or {}
    shown = {str(level): levels[level] for level in sorted(levels)}
    return {"text": criterion.text, "max": criterion.max, **({"levels": shown} if shown else {})}


def _listed(meanings: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {meaning}." for name, meaning in meanings.items())
