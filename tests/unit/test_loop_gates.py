"""Gates and triggers in the loop on fakes: what is refused, what it costs, what is written."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.records import JudgeReply, JudgeRequest
from core.rubric import Criterion
from tests.fakes import FakeStore
from tests.unit.gates_rig import (
    ALL_GATES,
    Scores,
    TableJudge,
    edits,
    rig,
    total,
    versions,
)


# ------------------------------------------------------------------ without gates
async def test_without_gates_nothing_is_asked_beyond_the_rollouts(tmp_path: Path) -> None:
    made = rig(
        tmp_path, "[Resist] No praise", {"No praise": (0, 1, 0)}, gates={}, apply="next_visit"
    )
    await made.run()
    assert [e.status for e in edits(made)] == ["accepted", "accepted"]
    # Two groups of two rollouts; the anchor fails the criterion, and nobody asks.
    assert len(made.judge.requests) == 4
    assert made.judge.rescores == []


# ------------------------------------------------------------------ the anchor
async def test_a_resist_criterion_that_the_anchor_passes_comes_in(tmp_path: Path) -> None:
    made = rig(tmp_path, "[Resist] No praise", {"No praise": (0, 1, 1)})
    await made.run()
    assert versions(made) == [1, 1]
    assert [r.criteria[0].text for r in made.judge.on_anchor] == ["No praise"] * 2
    # The gate's joint call is the one that rewards the group: one a group, not two.
    assert len(made.judge.rescores) == 2
    assert total(made, "evolving_rubrics/rescored_calls") == 2
    assert total(made, "evolving_rubrics/refused_by_gate") == 0
    # Rollout 0: 2 of 3 but vetoed; rollout 1: 1 of 3.
    rewards = [s.reward for _, groups, _ in made.recorder.steps for g in groups for s in g.rollouts]
    assert rewards == [0.0, pytest.approx(1 / 3)] * 2


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (0, "gate anchor: the anchor has 0 of 1 on 'a1'"),
        (None, "gate anchor: the anchor has no score on 'a1' (unavailable)"),
    ],
)
async def test_a_resist_criterion_that_the_anchor_does_not_pass_is_refused(
    tmp_path: Path, score: int | None, reason: str
) -> None:
    made = rig(tmp_path, "[Resist] No praise", {"No praise": (0, 1, score)})
    await made.run()
    assert versions(made) == [0, 0]
    assert {(e.status, e.branch) for e in edits(made)} == {("refused", "adaptive")}
    assert all(e.reason.startswith(reason) for e in edits(made))
    assert [e.new.text for e in edits(made) if e.new] == ["No praise"] * 2
    # It is refused before the group is asked for.
    assert made.judge.rescores == []
    assert made.store.commits == []
    assert total(made, "evolving_rubrics/refused_by_gate/anchor") == 2
    assert total(made, "evolving_rubrics/refused_by_gate") == 2


async def test_the_anchor_is_not_asked_about_an_llm_criterion(tmp_path: Path) -> None:
    made = rig(tmp_path, "[llm] Names a source", {"Names a source": (0, 1, 0)})
    await made.run()
    assert versions(made) == [1, 1]
    assert made.judge.on_anchor == []


async def test_a_criterion_that_becomes_a_veto_is_held_against_the_anchor(tmp_path: Path) -> None:
    """The text stays and the kind changes: the adaptive branch's rewrite."""

    def reply(request: object) -> str:
        items = ["[Resist] Is it short", "[llm] Is it kind"]
        return f"<ANALYSIS>hack</ANALYSIS><FINAL_SET>{json.dumps(items)}</FINAL_SET>"

    made = rig(tmp_path, reply, {"Is it short": (1, 0, 0)})
    await made.run()
    assert [e.status for e in edits(made)] == ["refused"] * 2
    assert all(e.reason.startswith("gate anchor") for e in edits(made))
    assert {r.criteria for r in made.judge.on_anchor} == {
        (Criterion(id="c1", text="Is it short", kind="resist"),)
    }


# ------------------------------------------------------------------ the group
@pytest.mark.parametrize(
    ("scores", "is_in"),
    [((0, 1, 1), True), ((1, 0, 1), True), ((0, 0, 1), True), ((1, 1, 1), False)],
)
async def test_a_criterion_must_tell_rollouts_apart_or_be_failed_by_the_top_one(
    tmp_path: Path, scores: Scores, is_in: bool
) -> None:
    made = rig(tmp_path, "[llm] Names a source", {"Names a source": scores})
    await made.run()
    assert versions(made) == [int(is_in)] * 2
    assert len(made.judge.rescores) == 2
    if not is_in:
        assert {e.reason for e in edits(made)} == {
            "gate discriminates: 2 of 2 rollouts have scores on 'a1', all 1 of 1, and the top one "
            "does not fail it"
        }
    assert total(made, "evolving_rubrics/refused_by_gate/discriminates") == (0 if is_in else 2)


async def test_a_rollout_without_a_reward_is_not_told_apart_from_others(tmp_path: Path) -> None:
    # Rollout 1 is ungraded: the judge has no score for it on c2.
    table: Mapping[str, Scores] = {"Is it kind": (1, None, 1), "Names a source": (1, 0, 1)}
    made = rig(tmp_path, "[llm] Names a source", table)
    await made.run()
    assert {e.reason for e in edits(made)} == {
        "gate discriminates: 1 of 1 rollouts have scores on 'a1', all 1 of 1, and the top one does "
        "not fail it"
    }


async def test_a_rollout_that_has_no_reward_anyway_keeps_no_edit_from_the_same_step(
    tmp_path: Path,
) -> None:
    table: Mapping[str, Scores] = {"Is it kind": (1, None, 1), "Names a source": (0, None, 1)}
    made = rig(tmp_path, "[llm] Names a source", table, gates={})
    await made.run()
    assert versions(made) == [1, 1]
    rewards = {tuple(r.reward for r in g.rollouts) for _, gs, _ in made.recorder.steps for g in gs}
    assert rewards == {(2 / 3, None)}


async def test_a_judge_that_gives_no_score_refuses_and_raises_nothing(tmp_path: Path) -> None:
    made = rig(tmp_path, "[llm] Names a source", {"Names a source": (None, None, 1)})
    await made.run()
    assert versions(made) == [0, 0]
    assert {(e.status, e.reason) for e in edits(made)} == {
        (
            "refused",
            "gate discriminates: none of 2 rollouts has a score on 'a1' (unavailable)",
        )
    }


async def test_a_gate_that_takes_too_long_is_cut_off_at_the_deadline(tmp_path: Path) -> None:
    class Stuck(TableJudge):
        async def grade(self, request: JudgeRequest) -> JudgeReply:
            if request.response == "a good answer":
                await asyncio.sleep(60)
            return await super().grade(request)

    made = rig(tmp_path, "[Resist] No praise", {"No praise": (0, 1, 1)}, deadline_s=0.2)
    made.judge = Stuck({"No praise": (0, 1, 1)})
    await made.run()
    assert [(e.status, e.reason) for e in edits(made)] == [("failed", "no edit within 0.2 s")] * 2
    assert versions(made) == [0, 0]


async def test_what_a_gate_asked_is_not_paid_again(tmp_path: Path) -> None:
    table: Mapping[str, Scores] = {"No praise": (0, 1, 1)}
    first = rig(tmp_path / "a", "[Resist] No praise", table)
    await first.run()
    store = FakeStore()
    store.verdicts = first.store.verdicts
    second = rig(tmp_path / "b", "[Resist] No praise", table, store=store)
    await second.run()
    assert versions(second) == [1, 1]
    assert second.judge.requests == []
    assert second.judge.rescores == []


async def test_one_joint_call_an_event_also_where_a_cell_has_no_score(tmp_path: Path) -> None:
    # The top rollout fails it, so the gate lets it pass; the other one's score is missing, so the
    # group cannot be rewarded under it.
    made = rig(tmp_path, "[Resist] No praise", {"No praise": (0, None, 1)})
    await made.run()
    assert len(made.judge.rescores) == 2  # one for each of two groups
    assert [e.status for e in edits(made)] == ["failed"] * 2
    assert versions(made) == [0, 0]


# ------------------------------------------------------------------ the texts
@pytest.mark.parametrize(
    ("new", "word"),
    [
        ("Is it never kind", "'a1' is contrary to 'c2' ([llm] Is it kind)"),
        ("Does it include kind", "'a1' asks for the same as 'c2' ([llm] Is it kind)"),
    ],
)
async def test_a_contrary_or_a_duplicate_is_refused_before_anything_is_asked(
    tmp_path: Path, new: str, word: str
) -> None:
    made = rig(tmp_path, f"[Resist] {new}", {new: (0, 1, 1)})
    await made.run()
    assert {(e.status, e.reason) for e in edits(made)} == {("refused", f"gate redundant: {word}")}
    assert made.judge.on_anchor == []
    assert made.judge.rescores == []
    assert total(made, "evolving_rubrics/refused_by_gate/redundant") == 2


# ------------------------------------------------------------------ the cap
async def test_what_is_over_the_cap_goes_in_the_same_version(tmp_path: Path) -> None:
    # Over both rollouts c1 has scores 1, 0 (deviation 1/2), c2 has 1, 1 (deviation 0).
    table: Mapping[str, Scores] = {"Is it kind": (1, 1, 1), "No praise": (0, 1, 1)}
    made = rig(tmp_path, "[Resist] No praise", table, gates={**ALL_GATES, "max_active": 2})
    await made.run()
    assert versions(made) == [1, 1]
    for commit in made.store.commits:
        assert commit.rubric.ids == ("c1", "a1")
        added, gone = commit.edits
        assert (added.old, added.new and added.new.id) == (None, "a1")
        assert (gone.status, gone.branch, gone.new) == ("accepted", "adaptive", None)
        assert gone.old is not None
        assert gone.old.id == "c2"
        assert gone.reason == (
            "retired: score deviation 0.00 over the group, 3 criteria for at most 2"
        )
    assert [(e.old and e.old.id, v, w) for _, e, v, w in made.recorder.edits] == [
        (None, 0, 1),
        ("c2", 0, 1),
    ] * 2
    # Two of each: criteria that came in are told from those that went.
    assert total(made, "evolving_rubrics/branch_adaptive") == 2
    assert total(made, "evolving_rubrics/num_new_rubrics") == 2
    assert total(made, "evolving_rubrics/num_overrides") == 0
    assert total(made, "evolving_rubrics/retired") == 2
    for _, groups, _ in made.recorder.steps:
        assert all(set(s.graded.verdicts) == {"c1", "a1"} for g in groups for s in g.rollouts)


async def test_a_rewritten_criterion_does_not_go_by_its_old_scores(tmp_path: Path) -> None:
    """c2 is rewritten; under its old text it was the least telling one."""

    def reply(request: object) -> str:
        items = ["[llm] Is it short", "[llm] Is it kind to children"]
        return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps(items)}</FINAL_SET>"

    table: Mapping[str, Scores] = {"Is it kind": (1, 1, 1), "Is it kind to children": (0, 1, 1)}
    made = rig(tmp_path, reply, table, gates={"max_active": 1})
    await made.run()
    assert [[c.text for c in commit.rubric.criteria] for commit in made.store.commits] == [
        ["Is it kind to children"]
    ] * 2


# ------------------------------------------------------------------ triggers
async def test_only_every_second_step_is_contrasted(tmp_path: Path) -> None:
    trigger = {"when": "every", "every_steps": 2}
    table: Mapping[str, Scores] = {"Names a source": (0, 1, 1)}
    made = rig(tmp_path, "[llm] Names a source", table, gates={}, steps=4, trigger=trigger)
    await made.run()
    assert sorted(c.step for c in made.store.commits) == [2, 2, 4, 4]
    assert len(made.writer.requests) == 4
    assert [m["evolving_rubrics/not_triggered"] for _, _, m in made.recorder.steps] == [2, 0, 2, 0]


async def test_signals_ask_the_writer_only_near_the_ceiling(tmp_path: Path) -> None:
    trigger = {"when": "signals", "reward_ceiling": 0.9}
    low = rig(tmp_path / "a", "[llm] Names a source", {"Is it kind": (0, 1, 1)}, trigger=trigger)
    await low.run()
    assert low.writer.requests == []
    assert total(low, "evolving_rubrics/not_triggered") == 2
    full = rig(
        tmp_path / "b", "[llm] Names a source", {"Names a source": (0, 1, 1)}, trigger=trigger
    )
    await full.run()
    assert len(full.writer.requests) == 2
    assert total(full, "evolving_rubrics/not_triggered") == 0
