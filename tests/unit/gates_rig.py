"""The loop on fakes whose scores stand in a table, for the tests of gates and triggers.

Each step has two groups of two rollouts, ``rollout 0`` and ``rollout 1`` of its query; the judge's
scores stand by criterion text: (rollout 0, rollout 1, anchor).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from core.records import GenerateRequest, JudgeRequest, Rollout, RubricEdit, Verdict
from core.rubric import Criterion
from core.writer_requests import ContrastRequest, ReplacementRequest
from tests.fakes import FakeJudge, FakePool, FakeStore, FakeWriter
from tests.unit.loop_rig import Rig, make_config, replacement_reply

Scores = tuple[int | None, int | None, int | None]

BASE: Mapping[str, Scores] = {"Is it short": (1, 0, 1), "Is it kind": (1, 0, 1)}
"""Rollout 0 is the top one and satisfies all."""
ALL_GATES = {"anchor_passes": True, "discriminates": True, "not_redundant": True}


class NamedPool(FakePool):
    """Rollouts that say which of the group they are."""

    async def generate(self, request: GenerateRequest) -> Rollout:
        rollout = await super().generate(request)
        return replace(rollout, response=f"rollout {request.index} of {request.query_id}")


class TableJudge(FakeJudge):
    """Scores from a table; None is a judge that could not be reached."""

    def __init__(self, table: Mapping[str, Scores]) -> None:
        super().__init__()
        self.table = {**BASE, **table}

    def verdict(self, criterion: Criterion, response: str) -> Verdict:
        place = 2 if response == "a good answer" else int(response.split()[1])
        score = self.table[criterion.text][place]
        return Verdict(
            criterion_id=criterion.id,
            score=score,
            max=criterion.max,
            failure="unavailable" if score is None else None,
        )

    @property
    def on_anchor(self) -> list[JudgeRequest]:
        return [r for r in self.requests if r.response == "a good answer"]


def contrast_reply(new: str) -> Callable[[object], str]:
    """A writer that adds ``new`` ("[llm] ..." or "[Resist] ...") to every set."""

    def reply(request: object) -> str:
        assert isinstance(request, ContrastRequest)
        items = [*(c.tagged for c in (*request.satisfied, *request.unsatisfied)), new]
        return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps(items)}</FINAL_SET>"

    return reply


def rig(
    folder: Path,
    new: str | Callable[[object], str],
    table: Mapping[str, Scores],
    *,
    gates: Mapping[str, object] = ALL_GATES,
    steps: int = 1,
    store: FakeStore | None = None,
    **evolution: object,
) -> Rig:
    """One or more steps of CARE in the same step, with gates."""
    tree = {"method": "care", "apply": "same_step", "gates": dict(gates), **evolution}
    config = make_config(loop__steps=steps, evolution=tree)
    reply = contrast_reply(new) if isinstance(new, str) else new
    return Rig(
        config,
        folder,
        pool=NamedPool(),
        judge=TableJudge(table),
        writer=FakeWriter(reply),
        store=store or FakeStore(),
    )


def edits(made: Rig) -> list[RubricEdit]:
    return [edit for _, edit, _, _ in made.recorder.edits]


def total(made: Rig, name: str) -> float:
    return sum(metrics.get(name, 0.0) for _, _, metrics in made.recorder.steps)


def versions(made: Rig) -> list[int]:
    return [g.rubric.version for _, groups, _ in made.recorder.steps for g in groups]


def ratchet(folder: Path, table: Mapping[str, Scores], **evolution: object) -> Rig:
    def reply(request: object) -> str:
        if isinstance(request, ReplacementRequest):
            return replacement_reply(request)
        return contrast_reply("[Resist] No praise")(request)

    tree = {"method": "ratchet", "trigger": {"when": "always"}, **evolution}
    return Rig(
        make_config(loop__steps=4, evolution=tree),
        folder,
        pool=NamedPool(),
        judge=TableJudge(table),
        writer=FakeWriter(reply),
    )


SATURATED: Mapping[str, Scores] = {
    "Is it short": (1, 1, 1),
    "Is it kind": (1, 1, 1),
    "Fresh check c1": (0, 1, 1),
    "Fresh check c2": (1, 1, 1),
    "No praise": (1, 0, 1),
}
"""Both criteria are saturated; the replacement of c1 tells the rollouts apart, that of c2 not."""
