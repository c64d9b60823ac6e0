"""All data formats by name, and which of them claim a row."""

from collections.abc import Mapping

from core.formats import (
    advanced_if,
    auto_rubric,
    chasing_tail,
    dr_tulu,
    general_requirements,
    healthbench,
    native,
    online_rubrics,
    open_rubrics,
    plain,
    rar,
    rare,
    research_rubrics,
    rlcf_requirements,
    rubric_arm,
    tinker,
    wildchecklists,
)
from core.formats.base import Fields, Format

FORMATS: Mapping[str, Format] = {
    known.name: known
    for known in (
        native.FORMAT,
        plain.FORMAT,
        wildchecklists.FORMAT,
        general_requirements.FORMAT,
        rlcf_requirements.FORMAT,
        rare.FORMAT,
        rare.QUERIES,
        dr_tulu.FORMAT,
        rar.FORMAT,
        rar.EXPLICIT,
        healthbench.FORMAT,
        healthbench.PROFESSIONAL,
        chasing_tail.FORMAT,
        online_rubrics.FORMAT,
        open_rubrics.FORMAT,
        rubric_arm.FORMAT,
        research_rubrics.FORMAT,
        advanced_if.FORMAT,
        auto_rubric.FORMAT,
        tinker.FORMAT,
    )
}


def claims(fields: Fields) -> dict[str, str]:
    """Return the formats that claim a row, each with what tells it."""
    found = {name: known.claim(fields) for name, known in FORMATS.items()}
    return {name: why for name, why in found.items() if why}
