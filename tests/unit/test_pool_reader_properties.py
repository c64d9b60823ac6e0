"""10,000 damaged replies for the readers of RLER and Online Rubrics: nothing raised but what the
reader documents, no weight or text out of range, no criterion lost or doubled."""

import json
from collections.abc import Callable

import pytest

from core.config_evolution import RlerConfig
from core.errors import WriterReplyError
from core.evolution.online_rubrics import (
    local_rubric,
    merge_request,
    read_candidates,
    read_merge,
    rollout_pairs,
)
from core.evolution.rler import grown_rubric
from core.evolution.rler_reply import MAX_CHARS
from core.evolution.similarity import normal_text
from core.records import Evolution
from core.rubric import Rubric
from tests.unit.damaged_replies import read_damaged
from tests.unit.method_builders import completion, llm
from tests.unit.pool_builders import (
    INITIAL,
    merge_reply,
    pair_reply,
    pool_reply,
    ungraded_group,
)

RLER = RlerConfig(max_new=3)

POOL_REPLIES = (
    pool_reply(["Names a variety.", "Has a rhyme."], ["Praises itself."]),
    f"```json\n{pool_reply(['Cites 2 sources.'], ['Repeats a word 3 times.'])}\n```",
    f"<think>{pool_reply(['A draft.'])}</think>{pool_reply(['Names an apple', 'Is kind.'])}",
    "{'positive_rubrics': ['Is short.', {'description': 'Is plain.'}], 'negative_rubrics': []}",
    pool_reply(),
    "I'm sorry, I can't help with that.",
)
ITEMS = (
    {"quote": "Apples are red", "criterion": "Names a colour.", "weight": 3},
    {"quote": "", "criterion": "Has 2 sentences.", "weight": "2"},
    {"quote": "no", "criterion": "Names an apple.", "weight": 1},
)
PAIR_REPLIES = (
    pair_reply(*ITEMS),
    f"First, my analysis.\n{pair_reply(*ITEMS[:2])}",
    f"<think>{pair_reply(ITEMS[1])}</think>\n```json\n{pair_reply(ITEMS[0])}\n```",
    "{'new_criteria': {'criterion': 'Is kind.', 'weight': 4}}",
    pair_reply(),
)
MERGE_REPLIES = (
    merge_reply({"Names a colour.": 3, "Has 2 sentences.": 2}),
    f"```json\n{merge_reply({'Names a colour or a size.': 5})}\n```",
    json.dumps({"result": json.loads(merge_reply({"Is kind.": 1}))}),
    "{'final_criteria': [{'criterion': 'Is plain.', 'weight': 1.0}]}",
)


def check(evolution: Evolution, before: Rubric, max_new: int, prefix: str) -> bool:
    """What holds of any next rubric; whether anything is new."""
    rubric = evolution.rubric
    assert rubric.criteria[: len(INITIAL)] == INITIAL
    new = [c for c in rubric.criteria if c not in before.criteria]
    assert len(new) <= max_new
    assert rubric.version == before.version + (rubric.criteria != before.criteria)
    texts = [normal_text(c.text) for c in rubric.criteria]
    assert len(set(texts)) == len(texts)
    for criterion in new:
        assert criterion.id.startswith(prefix)
        assert 0 < len(criterion.text) <= MAX_CHARS
        assert "\n" not in criterion.text
        criterion.text.encode("utf-8")
    accepted = [e.new for e in evolution.edits if e.status == "accepted" and e.new is not None]
    assert accepted == new
    return bool(new)


def read_pool(text: str, finish_reason: str) -> bool:
    active = llm("pool_0_1", "Is written in rhyme.", max=2)
    rubric = Rubric(criteria=INITIAL).with_criteria((*INITIAL, active))
    group = ungraded_group(("An apple.", "Two apples."), rubric=rubric, visit=1)
    try:
        evolution = grown_rubric(group, completion(text, finish_reason), RLER, rubric.criteria)
    except WriterReplyError:
        return False
    assert active in evolution.rubric.criteria
    assert all(c.weight in (1.0, -1.0) for c in evolution.rubric.criteria)
    return check(evolution, rubric, RLER.max_new, "pool_1_")


def read_pair(text: str, finish_reason: str) -> bool:
    group = ungraded_group(("Apples are red.",), control=("Red.",))
    pairs = rollout_pairs(group)
    candidates = read_candidates(pairs, [completion(text, finish_reason)])
    assert len(candidates.failures) <= 1
    for candidate in candidates.items:
        assert candidate.weight in range(1, 101)
        assert candidate.quote in "Apples are red."
    assert merge_request(group, candidates) is None
    return bool(candidates.items)


def read_merged(text: str, finish_reason: str) -> bool:
    group = ungraded_group(("Apples are red.", "Plums."), control=("Red.", "Blue."))
    pairs = rollout_pairs(group)
    candidates = read_candidates(pairs, [completion(PAIR_REPLIES[0]), completion(PAIR_REPLIES[3])])
    request = merge_request(group, candidates)
    assert request is not None
    try:
        merged = read_merge(completion(text, finish_reason), request)
    except WriterReplyError:
        return False
    evolution = local_rubric(group, merged, candidates)
    assert all(c.weight in range(1, 101) for c in evolution.rubric.criteria)
    return check(evolution, group.rubric, len(request.candidates), "local_0_")


READERS: dict[str, tuple[tuple[str, ...], Callable[[str, str], bool]]] = {
    "RLER's writer": (POOL_REPLIES, read_pool),
    "Online Rubrics' pairs": (PAIR_REPLIES, read_pair),
    "Online Rubrics' merge": (MERGE_REPLIES, read_merged),
}


@pytest.mark.parametrize("name", READERS)
def test_no_damaged_reply_breaks_a_reader(name: str) -> None:
    num_used = read_damaged(*READERS[name])
    assert 100 < num_used < 9_900, "the mutations must neither ruin nor spare all"


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_replies_hold_too(name: str) -> None:
    replies, read = READERS[name]
    used = [read(text, "stop") for text in replies]
    assert any(used)
