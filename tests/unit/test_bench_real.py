"""The endpoint of the benchmark ``real``: its replies are such as judge and writer can read."""

import json

from core.evolution.care_prompt import contrast_prompt
from core.grading.reply import read_verdicts
from core.grading.schema import judge_schema
from core.query import Anchor
from core.rubric import Criterion
from core.writer_requests import ContrastRequest
from drivers.bench.real import arms_in_order, config_of, make_queries
from drivers.bench.real_endpoint import reply_to
from serve.prompts import load_prompt

METHODS = ("static", "care")
CRITERIA = tuple(Criterion(id=f"c{i}", text=f"Is it good {i}?") for i in range(4))


def asked(prompt: str) -> dict[str, object]:
    return {"model": "paced", "messages": [{"role": "user", "content": prompt}]}


def test_a_judge_gets_a_score_for_every_criterion_and_they_differ_by_response() -> None:
    schema = judge_schema(CRITERIA, "ids")
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    scores = set()
    for number in range(8):
        text = reply_to(asked(f"grade response {number}") | {"response_format": form})
        verdicts = read_verdicts(text, CRITERIA, "stop", template="ids")
        assert all(v.failure is None for v in verdicts)
        scores.add(tuple(v.score for v in verdicts))
    assert len(scores) > 1


def test_a_contrast_is_answered_with_the_whole_rubric_and_one_criterion_more() -> None:
    request = ContrastRequest(
        query_id="q",
        prompt="Write.",
        satisfied=CRITERIA[:1],
        unsatisfied=CRITERIA[1:],
        response="an answer",
        anchor=Anchor(response="a better one"),
    )
    reply = reply_to(asked(contrast_prompt(load_prompt("care_evolve"), request)))
    texts = json.loads(reply.split("<FINAL_SET>")[1].split("</FINAL_SET>")[0])
    assert texts[:-1] == [c.tagged for c in CRITERIA]
    assert texts[-1].startswith("[llm] ")


def test_no_method_is_always_later_and_both_share_queries_and_sizes() -> None:
    arms = arms_in_order(is_short=False)
    places = {m: [i for i, a in enumerate(arms) if (a.method, a.age) == (m, 1)] for m in METHODS}
    assert sum(places["static"]) == sum(places["care"])
    configs = [config_of(a, "http://127.0.0.1:1/v1", 3, 0) for a in arms]
    assert len({(c.sampling, c.learner, c.judge) for c in configs}) == 1
    assert {c.loop.groups_per_step for c in configs} == {len(make_queries()) // 2}
