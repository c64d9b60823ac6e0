"""The rubric writer with a scripted backend, and by rules."""

import dataclasses
from typing import get_args

import pytest

from core.config_served import WriterConfig
from core.query import Anchor
from core.records import Completion, Verdict
from core.rubric import Criterion, Rubric
from core.writer_requests import (
    ContrastRequest,
    PairRequest,
    ReplacementRequest,
    WriterRequest,
)
from serve.backends.base import CompletionRequest
from serve.identity import writer_identity
from serve.prompts import load_prompt
from serve.writer import RubricWriter, _visible
from serve.writer_prompts import WRITER_PROMPTS, writer_templates

C1 = Criterion(id="c1", text="The answer names a cause.")
C2 = Criterion(id="c2", text="The answer is polite.")
MODEL = WriterConfig(backend="openai", model="m", base_url="http://127.0.0.1:9/v1")
CONTRAST = ContrastRequest(
    query_id="q",
    prompt="Why is the sky blue?",
    satisfied=(C1,),
    unsatisfied=(C2,),
    response="<think>hidden plan</think>The air scatters blue light.",
    anchor=Anchor(response="Rayleigh scattering."),
)


class RecordingBackend:
    """Answers every prompt with the same reply and keeps the prompts."""

    def __init__(self, reply: Completion) -> None:
        self.reply = reply
        self.asked: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        return self.reply

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""


def replacement(error: str = "") -> ReplacementRequest:
    verdicts = {c.id: Verdict(criterion_id=c.id, score=1, max=1, reason="yes") for c in (C1, C2)}
    return ReplacementRequest(
        query_id="q",
        prompt="Why is the sky blue?",
        rubric=Rubric(criteria=(C1, C2)),
        saturated_ids=("c1",),
        num_updates=1,
        polarity="negative",
        responses=("Scattering.", "<think>hidden plan</think>Because of the air."),
        verdicts=(verdicts, verdicts),
        error=error,
    )


async def test_a_contrast_is_asked_with_everything_but_the_reasoning() -> None:
    reply = Completion(text="<FINAL_SET>[]</FINAL_SET>", finish_reason="stop", model="m")
    backend = RecordingBackend(reply)
    assert await RubricWriter(MODEL, backend).write(CONTRAST) is reply
    prompt = backend.asked[0].prompt
    for part in ("[llm] The answer names a cause.", "Rayleigh scattering.", "scatters blue light"):
        assert part in prompt
    assert "hidden plan" not in prompt


async def test_a_replacement_shows_the_rollouts_and_the_last_refusal() -> None:
    backend = RecordingBackend(Completion(text="{}", finish_reason="stop", model="m"))
    await RubricWriter(MODEL, backend).write(replacement(error="got two updates, wanted one"))
    prompt = backend.asked[0].prompt
    for part in ("Scattering.", "Because of the air.", "got two updates, wanted one"):
        assert part in prompt
    assert "hidden plan" not in prompt


async def test_a_failure_is_handed_on_and_nothing_raises() -> None:
    failed = Completion(text="", finish_reason="", model="m", failure="timeout")
    assert (
        await RubricWriter(MODEL, RecordingBackend(failed)).write(CONTRAST)
    ).failure == "timeout"


async def test_the_writer_in_code_answers_in_the_models_format() -> None:
    reply = await RubricWriter(WriterConfig()).write(CONTRAST)
    assert reply.failure is None
    assert "<FINAL_SET>" in reply.text
    assert C1.text in reply.text
    assert (await RubricWriter(WriterConfig()).write(CONTRAST)).text == reply.text


async def test_the_writer_in_code_answers_a_replacement_as_json() -> None:
    reply = await RubricWriter(WriterConfig()).write(replacement())
    assert reply.failure is None
    assert '"updates"' in reply.text


def test_the_identity_names_model_and_template() -> None:
    assert writer_identity(MODEL) != writer_identity(MODEL.model_copy(update={"model": "n"}))
    assert "care_evolve#" in writer_identity(MODEL)


@pytest.mark.parametrize("kind", list(WRITER_PROMPTS), ids=lambda kind: kind.__name__)
def test_each_kind_of_request_has_a_template_that_exists(kind: type) -> None:
    assert load_prompt(WRITER_PROMPTS[kind].template).strip()
    assert WRITER_PROMPTS[kind].template in writer_templates()
    assert kind in get_args(WriterRequest)


async def test_the_writer_in_code_says_of_other_requests_that_it_cannot_decide() -> None:
    pair = PairRequest(query_id="q", prompt="p", existing=(), response_a="a", response_b="b")
    reply = await RubricWriter(WriterConfig()).write(pair)
    assert (reply.text, reply.failure) == ("", "undecidable")
    assert "PairRequest" in reply.detail


async def test_a_pair_is_shown_without_reasoning() -> None:
    thinks = "<think>hidden plan</think>seen"
    pair = PairRequest(query_id="q", prompt="p", existing=(), response_a=thinks, response_b=thinks)
    assert _visible(pair) == dataclasses.replace(pair, response_a="seen", response_b="seen")
