"""Ratchet with its gates in the loop: replacements one by one, then the contrast."""

from collections.abc import Mapping
from pathlib import Path

from core.writer_requests import ContrastRequest, ReplacementRequest
from tests.fakes import FakeWriter
from tests.unit.gates_rig import (
    SATURATED,
    Scores,
    edits,
    ratchet,
    total,
    versions,
)
from tests.unit.loop_rig import replacement_reply


async def test_ratchet_keeps_the_replacement_that_tells_and_then_contrasts(tmp_path: Path) -> None:
    made = ratchet(tmp_path, SATURATED)
    await made.run()
    by_query: dict[str, list[str]] = {}
    for commit in made.store.commits:
        texts = " / ".join(c.text for c in commit.rubric.criteria)
        by_query.setdefault(commit.query_id, []).append(f"{commit.rubric.version}: {texts}")
    assert len(by_query) == 8
    for history in by_query.values():
        assert history == [
            "1: Fresh check c1 / Is it kind",
            "2: Fresh check c1 / Is it kind / No praise",
        ]
    seen = [(e.branch, e.status, e.old and e.old.id) for e in edits(made)]
    assert seen.count(("replacement", "accepted", "c1")) == 8
    assert seen.count(("replacement", "refused", "c2")) == 8
    assert seen.count(("adaptive", "accepted", None)) == 8
    # The group is rewarded under version 1: rollout 0 has 1 of 2, rollout 1 has 2 of 2.
    rewards = [
        [s.reward for s in g.rollouts] for _, groups, _ in made.recorder.steps for g in groups
    ]
    assert rewards == [[0.5, 1.0]] * 8
    assert versions(made) == [1] * 8


async def test_ratchets_calls_are_two_of_the_writer_and_three_of_the_judge_an_event(
    tmp_path: Path,
) -> None:
    made = ratchet(tmp_path, SATURATED)
    await made.run()
    assert len(made.writer.requests) == 8 * 2
    # One joint call for the replacements; one for the gate on the new [Resist]; the anchor once.
    assert len(made.judge.rescores) == 8 * 2
    assert len(made.judge.on_anchor) == 8
    assert len(made.judge.requests) == 8 * 2 + 8


async def test_of_two_replacements_that_say_the_same_the_first_comes_in(tmp_path: Path) -> None:
    checks = {"c1": "It gives a source", "c2": "It mentions a source"}

    def reply(request: object) -> str:
        if isinstance(request, ContrastRequest):
            return ""
        assert isinstance(request, ReplacementRequest)
        text = replacement_reply(request)
        for criterion_id, check in checks.items():
            text = text.replace(f"Fresh check {criterion_id}", check)
        return text

    apart: Mapping[str, Scores] = dict.fromkeys(checks.values(), (0, 1, 1))
    made = ratchet(tmp_path, {**SATURATED, **apart})
    made.writer = FakeWriter(reply)
    await made.run()
    replaced = [e for e in edits(made) if e.branch == "replacement"]
    assert [(e.status, e.reason) for e in replaced] == [
        ("accepted", "negative"),
        ("refused", "gate redundant: 'c2' asks for the same as 'c1' ([llm] It gives a source)"),
    ] * 8


async def test_when_every_replacement_is_refused_the_group_keeps_rubric_and_rewards(
    tmp_path: Path,
) -> None:
    table: Mapping[str, Scores] = {**SATURATED, "Fresh check c1": (1, 1, 1), "No praise": (1, 1, 1)}
    made = ratchet(tmp_path, table)
    await made.run()
    assert made.store.commits == []
    assert {e.status for e in edits(made)} == {"refused"}
    rewards = [s.reward for _, groups, _ in made.recorder.steps for g in groups for s in g.rollouts]
    assert rewards == [1.0] * 16
    # Two replacements a group; what the contrasts of the last step did is told after its metrics.
    assert total(made, "evolving_rubrics/refused_by_gate/discriminates") >= 8 * 2


async def test_gates_that_are_off_leave_replacements_as_rare_has_them(tmp_path: Path) -> None:
    off = {"anchor_passes": False, "discriminates": False, "not_redundant": False}
    made = ratchet(tmp_path, SATURATED, gates={**off, "max_active": None})
    await made.run()
    first = [c for c in made.store.commits if c.rubric.version == 1]
    assert {tuple(c.text for c in commit.rubric.criteria) for commit in first} == {
        ("Fresh check c1", "Fresh check c2")
    }
    assert made.judge.on_anchor == []
