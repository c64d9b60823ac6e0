"""Groups that no judge has seen, and writers' replies, for the tests of RLER and Online Rubrics."""

import json
from collections.abc import Mapping, Sequence

from core.query import Message, Query
from core.records import Draw, UngradedGroup
from core.rubric import Criterion, Rubric
from tests.unit.method_builders import llm, rollout

INITIAL = (llm("c1", "Names an apple."), llm("c2", "Ends with a question."))


def ungraded_group(
    responses: Sequence[str],
    *,
    control: Sequence[str] = (),
    rubric: Rubric | None = None,
    initial: Sequence[Criterion] = INITIAL,
    gold: Sequence[Criterion] = (),
    visit: int = 0,
) -> UngradedGroup:
    """One draw of query ``q1``, generated and not judged."""
    query = Query(
        id="q1",
        messages=(Message(role="user", content="Write about apples."),),
        rubric=Rubric(criteria=tuple(initial)),
        gold=tuple(gold),
    )
    return UngradedGroup(
        draw=Draw(query_id="q1", step=visit + 1, position=0, visit=visit),
        query=query,
        rubric=rubric or query.rubric,
        rollouts=tuple(rollout(i, text) for i, text in enumerate(responses)),
        control=tuple(rollout(i, text) for i, text in enumerate(control)),
    )


def pool_reply(positive: Sequence[str] = (), negative: Sequence[str] = ()) -> str:
    """A reply in DR Tulu's format."""

    def listed(texts: Sequence[str]) -> list[dict[str, str]]:
        return [{"description": text, "title": f"about {text[:12]}"} for text in texts]

    return json.dumps(
        {
            "question": "apples",
            "positive_rubrics": listed(positive),
            "negative_rubrics": listed(negative),
        }
    )


def pair_reply(*items: Mapping[str, object]) -> str:
    """The reply on one pair."""
    return json.dumps({"analysis": "they differ", "new_criteria": list(items)})


def merge_reply(weights: Mapping[str, object]) -> str:
    """The merge's reply: weights by text."""
    items = [{"criterion": text, "weight": weight} for text, weight in weights.items()]
    return json.dumps({"analysis": "merged", "final_criteria": items})
