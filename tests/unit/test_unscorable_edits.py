"""Where code is the judge, a criterion that code cannot decide never enters a rubric: every rollout
of its query would be without a reward from then on."""

import json
from pathlib import Path

import pytest

from core.writer_requests import ContrastRequest, WriterRequest
from tests.fakes import FakeWriter
from tests.unit.loop_rig import Rig, make_config
from tests.unit.pool_builders import pool_reply

DECIDABLE, VAGUE = "The response has at least 12 words.", "The response moves the reader."


def writer(text: str) -> FakeWriter:
    def reply(request: WriterRequest) -> str:
        if not isinstance(request, ContrastRequest):
            return pool_reply([text])
        items = [*(c.tagged for c in (*request.satisfied, *request.unsatisfied)), f"[llm] {text}"]
        return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps(items)}</FINAL_SET>"

    return FakeWriter(reply)


@pytest.mark.parametrize(
    "evolution",
    [{"method": "care"}, {"method": "care", "apply": "same_step"}, {"method": "rler"}],
)
@pytest.mark.parametrize(
    ("backend", "text", "is_in"),
    [("rules", DECIDABLE, True), ("rules", VAGUE, False), ("openai", VAGUE, True)],
)
async def test_a_new_criterion_must_be_one_that_the_judge_can_score(
    evolution: dict[str, object], backend: str, text: str, is_in: bool, tmp_path: Path
) -> None:
    config = make_config(
        loop__steps=1, judge={"backend": backend, "model": "fake"}, evolution=evolution
    )
    run = Rig(config, tmp_path, writer=writer(text))
    await run.run()
    new = [e for _, e, _, _ in run.recorder.edits if e.new is not None]
    assert {e.status for e in new} == {"accepted" if is_in else "refused"}
    if not is_in:
        assert "judge.backend=rules cannot decide" in new[0].reason
        assert {g.rubric.version for _, groups, _ in run.recorder.steps for g in groups} == {0}
    for _, groups, _ in run.recorder.steps:
        for group in groups:
            assert {r.graded.is_graded for r in group.rollouts} == {True}
