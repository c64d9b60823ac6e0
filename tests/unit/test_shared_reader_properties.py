"""10,000 damaged replies for each reader of the methods with a shared rubric.

Nothing is raised but the documented error; what is read keeps every rule of its reader.
"""

import json
from collections.abc import Callable, Sequence

import pytest

from core.errors import WriterReplyError
from core.evolution.mpo import mpo_evolution
from core.evolution.mpo_reply import (
    MAX_ANALYSIS_WORDS,
    read_analysis,
    read_merge,
    read_refinement,
)
from core.evolution.rare_task_reply import read_revision
from core.records import Completion
from tests.unit.damaged_replies import read_damaged
from tests.unit.method_builders import completion
from tests.unit.test_mpo import ITEM, MERGE, REFINE, RUBRIC, SAMPLE, rubric_text
from tests.unit.test_rare_task_reply import GOOD, REQUEST
from tests.unit.test_rare_task_reply import RUBRIC as SHARED

_GOOD = json.dumps(GOOD)
REVISIONS = (_GOOD, f"```json\n{json.dumps(GOOD, indent=1)}\n```", f"<think>{{}}</think>{_GOOD}")
ITEMS = (
    rubric_text(ITEM, "Style\n- (0): no\n- (1): half\n- (2): yes"),
    rubric_text("draft") + "\nthen:\n" + rubric_text(ITEM),
    f"<think><rubric></think>```\n{rubric_text(ITEM, 'Facts')}\n```",
    "<item>One</item><item>Two</item>",
)


def check_revision(reply: Completion) -> None:
    rubric, diagnosis = read_revision(reply, REQUEST)
    assert (rubric.ids, rubric.caps, rubric.version) == (SHARED.ids, SHARED.caps, 5)
    assert [(c.max, c.weight) for c in rubric.criteria] == [
        (c.max, c.weight) for c in SHARED.criteria
    ]
    assert rubric.criteria[2] == SHARED.criteria[2]
    assert rubric.criteria != SHARED.criteria
    for old, new in zip(SHARED.criteria, rubric.criteria, strict=True):
        assert new == old or sorted(new.levels or {}) == list(range(old.max + 1))
    rubric.model_dump_json().encode("utf-8")
    assert diagnosis


def check_analysis(reply: Completion) -> None:
    text = read_analysis(reply)
    assert text.strip()
    assert len(text.split()) <= MAX_ANALYSIS_WORDS
    text.encode("utf-8")


def check_refinement(reply: Completion) -> None:
    read_refinement(reply, REFINE).encode("utf-8")


def check_merge(reply: Completion) -> None:
    items = read_merge(reply, MERGE, [SAMPLE.response])
    assert 0 < len(items) <= MERGE.max_criteria
    rubric = mpo_evolution(RUBRIC, items, MERGE, "merged").rubric
    assert len(rubric.criteria) == len(items)
    assert all(c.max == MERGE.max_points for c in rubric.criteria)
    rubric.model_dump_json().encode("utf-8")


READERS: dict[str, tuple[Sequence[str], Callable[[Completion], None]]] = {
    "a revision": (REVISIONS, check_revision),
    "an analysis": (("Too kind.\nIt repeats itself.", *ITEMS), check_analysis),
    "a refinement": (ITEMS, check_refinement),
    "a merge": (ITEMS, check_merge),
}


@pytest.mark.parametrize("name", READERS)
def test_no_damaged_reply_breaks_a_reader(name: str) -> None:
    replies, check = READERS[name]
    refusals: list[str] = []

    def read(text: str, finish_reason: str) -> bool:
        try:
            check(completion(text, finish_reason))
        except WriterReplyError as refusal:
            refusals.append(str(refusal))
            return False
        return True

    assert 0 < read_damaged(replies, read) < 10_000
    assert all(refusals)
