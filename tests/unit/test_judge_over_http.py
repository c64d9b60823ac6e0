"""The judge over a real HTTP endpoint: each way in which a reply can go wrong, one test a kind."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from core.config_served import JudgeConfig
from core.records import JudgeReply, JudgeRequest
from core.rubric import Criterion
from serve.backends.openai import OpenAIBackend
from serve.judge import Judge
from serve.limits import CallLimiter, CallSlots
from tests.stub_openai import Reply, StubOpenAI

TONE = Criterion(id="tone", text="The tone is warm.")
DEPTH = Criterion(id="depth", text="The answer goes into causes.", max=3)
REQUEST = JudgeRequest(query_id="q", prompt="Why?", response="Because.", criteria=(TONE, DEPTH))
GOOD = json.dumps({"c1": {"reason": "r", "score": 1}, "c2": {"reason": "r", "score": 2}})
WORST = json.dumps({"c1": {"reason": "r", "score": 0}, "c2": {"reason": "r", "score": 0}})

Outcome = list[tuple[float | None, str | None]]
SCORED: Outcome = [(1, None), (2, None)]


async def graded(
    *replies: Reply, request: JudgeRequest = REQUEST, **fields: Any
) -> tuple[JudgeReply, list[dict[str, Any]]]:
    """The judge's answer when the endpoint gives these replies in turn, and what it was sent."""
    with StubOpenAI(lambda body, number: replies[number]) as stub:
        config = JudgeConfig.model_validate(
            {"backend": "openai", "model": "j", "base_url": stub.base_url, "timeout_s": 10.0}
            | fields
        )
        slots = CallSlots(CallLimiter("stub"), "judge", config.max_concurrency)
        backend = OpenAIBackend(config, SecretStr("none"), slots)
        reply = await Judge(config, backend).grade(request)
        await backend.close()
    return reply, [seen.body for seen in stub.seen]


def outcome(reply: JudgeReply) -> Outcome:
    return [(v.score, v.failure) for v in reply.verdicts]


def prompt_of(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"]


def body_of(message: dict[str, Any], finish_reason: str = "stop") -> Reply:
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 512}
    return Reply(raw=json.dumps({"model": "j", "choices": [choice], "usage": usage}).encode())


# ------------------------------------------------------------------ replies that can be read
@pytest.mark.parametrize(
    "reply",
    [
        Reply(text=f"<think>A draft: {WORST}</think>\n{GOOD}"),
        Reply(text=f"A draft: {WORST}</think>{GOOD}"),  # the template opened the reasoning
        body_of({"content": GOOD, "reasoning_content": f"A draft: {WORST}"}),
        body_of(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": WORST}]},
                    {"type": "text", "text": GOOD},
                ]
            }
        ),
    ],
)
async def test_a_judge_that_thinks_is_read_after_its_reasoning(reply: Reply) -> None:
    answer, sent = await graded(reply)
    assert outcome(answer) == SCORED
    assert len(sent) == 1


async def test_a_fenced_reply_costs_no_second_call() -> None:
    answer, sent = await graded(Reply(text=f"```json\n{GOOD}\n```"))
    assert outcome(answer) == SCORED
    assert len(sent) == 1


# ------------------------------------------------------------------ form: one repair try
BLANKS = '{"c1": {"reason": "r", "score": 1},' + " \n" * 2000
DIGITS = '{"c1": {"reason": "r", "score": 1}, "c2": {"reason": "r", "score": ' + "9" * 3000
WORDS = '{"c1": {"reason": "r", "score": 1}, "c2": {"reason": "' + "warm warm " * 400


@pytest.mark.parametrize("looping", [BLANKS, DIGITS, WORDS])
async def test_a_reply_that_runs_in_circles_is_asked_again_without_structure(looping: str) -> None:
    second = json.dumps({"c2": {"reason": "r", "score": 3}})
    answer, sent = await graded(Reply(text=looping, finish_reason="length"), Reply(text=second))
    assert outcome(answer) == [(1, None), (3, None)]  # what was complete stands
    assert ["response_format" in body for body in sent] == [True, False]
    assert "over and over until it was cut" in prompt_of(sent[1])


@pytest.mark.parametrize("looping", [BLANKS, DIGITS, WORDS])
async def test_a_reply_that_runs_in_circles_twice_is_truncated(looping: str) -> None:
    cut = Reply(text=looping, finish_reason="length")
    answer, sent = await graded(cut, cut)
    assert outcome(answer) == [(1, None), (None, "truncated")]
    assert len(sent) == 2


async def test_a_cut_reply_is_truncated_from_where_it_was_cut() -> None:
    cut = Reply(text=GOOD[:-12], finish_reason="length")
    answer, sent = await graded(cut, cut)
    assert outcome(answer) == [(1, None), (None, "truncated")]
    assert '"c2": truncated' in prompt_of(sent[1])
    assert "response_format" in sent[1]


@pytest.mark.parametrize(
    "cut",
    [
        Reply(text="<think>Let me see. The tone", finish_reason="length"),
        Reply(text="", finish_reason="length"),
        body_of({"content": None, "reasoning_content": "Let me see"}, "length"),
    ],
)
async def test_reasoning_that_used_up_the_tokens_is_truncated(cut: Reply) -> None:
    answer, sent = await graded(cut, cut)
    assert outcome(answer) == [(None, "truncated")] * 2
    assert len(sent) == 2


@pytest.mark.parametrize("empty", [Reply(text=""), Reply(text=" \n\n "), Reply(text=None)])
async def test_an_empty_reply_is_asked_again_and_then_unparsable(empty: Reply) -> None:
    answer, sent = await graded(empty, Reply(text=GOOD))
    assert outcome(answer) == SCORED
    assert "unparsable. the reply is empty" in prompt_of(sent[1])
    answer, sent = await graded(empty, empty)
    assert outcome(answer) == [(None, "unparsable")] * 2
    assert len(sent) == 2


async def test_prose_twice_is_unparsable() -> None:
    answer, sent = await graded(Reply(text="Nice answer."), Reply(text="A nice answer indeed."))
    assert outcome(answer) == [(None, "unparsable")] * 2
    assert "Nice answer." in prompt_of(sent[1])


async def test_a_criterion_left_out_twice_is_missing() -> None:
    half = Reply(text=json.dumps({"c1": {"reason": "r", "score": 1}}))
    answer, sent = await graded(half, half)
    assert outcome(answer) == [(1, None), (None, "missing")]
    properties = sent[1]["response_format"]["json_schema"]["schema"]["properties"]
    assert list(properties) == ["c2"]


async def test_a_score_outside_the_levels_is_never_clamped() -> None:
    wrong = Reply(text=GOOD.replace('"score": 2', '"score": 90'))
    answer, sent = await graded(wrong, wrong)
    assert outcome(answer) == [(1, None), (None, "out_of_scale")]
    assert len(sent) == 2


async def test_two_values_for_one_criterion_are_a_conflict() -> None:
    text = '{"c1": {"score": 1}, "c2": {"score": 2}, "c2": {"score": 0}}'
    answer, sent = await graded(Reply(text=text), Reply(text=text))
    assert outcome(answer) == [(1, None), (None, "conflict")]
    assert len(sent) == 2


# ------------------------------------------------------------------ no reply: no repair
@pytest.mark.parametrize(
    "refusal",
    [
        Reply(text=None, refusal="I will not grade this."),
        Reply(text="", finish_reason="refusal"),
        Reply(text="I'm sorry, but I can't help with grading this."),
    ],
)
async def test_a_judge_that_declines_is_refused_and_not_asked_again(refusal: Reply) -> None:
    answer, sent = await graded(refusal)
    assert outcome(answer) == [(None, "refused")] * 2
    assert len(sent) == 1


@pytest.mark.parametrize(
    "filtered",
    [
        Reply(text=None, finish_reason="content_filter"),
        Reply(text=GOOD, finish_reason="content_filter"),
        Reply(text=None, finish_reason="SAFETY"),
        Reply(status=400, error={"message": "no", "code": "content_filter"}),
    ],
)
async def test_a_filtered_reply_is_not_asked_again(filtered: Reply) -> None:
    answer, sent = await graded(filtered)
    assert outcome(answer) == [(None, "filtered")] * 2
    assert len(sent) == 1


async def test_an_endpoint_that_never_answers_is_a_timeout() -> None:
    answer, sent = await graded(Reply(text=GOOD, delay_s=30), timeout_s=0.4)
    assert outcome(answer) == [(None, "timeout")] * 2
    assert len(sent) == 1


async def test_an_endpoint_that_is_down_is_unavailable() -> None:
    answer, sent = await graded(*[Reply(status=503)] * 2, max_attempts=2)
    assert outcome(answer) == [(None, "unavailable")] * 2
    assert len(sent) == 2


async def test_an_error_told_as_text_is_unavailable_and_never_a_score() -> None:
    answer, _ = await graded(Reply(text="[ERROR] judge failed: HTTP 503 after 3 tries"))
    assert outcome(answer) == [(None, "unavailable")] * 2


async def test_structured_output_that_is_refused_is_left_out_and_the_reply_read() -> None:
    no = Reply(status=400, error={"message": "unknown field", "param": "response_format"})
    answer, sent = await graded(no, Reply(text=GOOD))
    assert outcome(answer) == SCORED
    assert ["response_format" in body for body in sent] == [True, False]


# ------------------------------------------------------------------ one call a criterion
@pytest.mark.parametrize("template", ["ids", "verbatim"])
async def test_a_response_with_half_a_character_is_sent_and_judged(template: str) -> None:
    odd = JudgeRequest(
        query_id="q", prompt="W\ud800hy?", response="B\udfffecause.\0", criteria=(TONE,)
    )
    good = {"c1": {"reason": "r", "score": 1}} if template == "ids" else {TONE.text: "1"}
    reply, bodies = await graded(Reply(text=json.dumps(good)), request=odd, template=template)
    assert outcome(reply) == [(1, None)]
    assert "W?hy?" in prompt_of(bodies[0])
    assert "B?ecause." in prompt_of(bodies[0])


def asked_about(body: dict[str, Any], criteria: Sequence[Criterion]) -> list[str]:
    return [c.id for c in criteria if c.text in prompt_of(body)]


async def test_each_criterion_alone_is_asked_side_by_side_and_repaired_alone() -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if asked_about(body, [TONE]):
            return Reply(text='{"c1": {"reason": "r", "score": 1}}', delay_s=0.3)
        is_repair = "could not be used" in prompt_of(body)
        return Reply(text='{"c1": {"reason": "r", "score": 3}}' if is_repair else "Hm.")

    with StubOpenAI(answer) as stub:
        config = JudgeConfig(
            backend="openai", model="j", base_url=stub.base_url, per_criterion=True
        )
        slots = CallSlots(CallLimiter("stub"), "judge", 8)
        backend = OpenAIBackend(config, SecretStr("none"), slots)
        reply = await Judge(config, backend).grade(REQUEST)
        await backend.close()
    assert [v.criterion_id for v in reply.verdicts] == ["tone", "depth"]
    assert outcome(reply) == [(1, None), (3, None)]
    assert sorted(asked_about(s.body, [TONE, DEPTH])[0] for s in stub.seen) == [
        "depth",
        "depth",
        "tone",
    ]
    assert all(len(asked_about(s.body, [TONE, DEPTH])) == 1 for s in stub.seen)
    assert stub.most_in_flight == 2
    assert (reply.usage.calls, reply.usage.prompt_tokens) == (3, 300)
