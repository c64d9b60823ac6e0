"""RARE at task level: revise a rubric that all queries of a task share (section 3.3, A.2.2).

What is decided here, all of it pure: the steps after which a run revises, which groups of the last
steps are evidence and which rollout represents each, whether a candidate passes the gate, and the
edits that come of it. Where the paper is silent the numbers are those of the released code: at
least half of a group graded, thirds by group mean, the limits of the evidence's size. A group that
was graded under another version of the rubric than the one to revise is no evidence: its scores do
not tell what the current criteria do (ours; the released schedule never comes to it).
"""

import hashlib
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.config import RewardConfig
from core.config_evolution import RareTaskConfig
from core.grading.visible import visible_response
from core.records import (
    EditStatus,
    Evidence,
    Evolution,
    GradedGroup,
    GradedRollout,
    RubricEdit,
    Verdict,
)
from core.reward import rollout_reward
from core.rubric import Rubric
from core.writer_requests import TaskCase, TaskRevisionRequest

MAX_PROMPT_CHARS = 500_000
MAX_PROMPT_TOKENS = 100_000
_CHARS_A_TOKEN = 4
_DIGITS = 9
"""Rewards closer than this are equal: sums of scores are exact, their quotients are not."""
_ROUNDING = 1e-9


# ------------------------------------------------------------------ when
def revision_steps(num_steps: int, revisions: int) -> tuple[int, ...]:
    """Return the steps after which the rubric is revised: round(i * steps / (revisions + 1)).

    Halves are rounded up. In a short run steps may fall together, or on the last one, after which
    nothing trains: such a revision is left out.
    """
    parts = revisions + 1
    steps = {(2 * i * num_steps + parts) // (2 * parts) for i in range(1, parts)}
    return tuple(sorted(s for s in steps if 1 <= s < num_steps))


# ------------------------------------------------------------------ evidence
@dataclass(frozen=True, kw_only=True, slots=True)
class Representative:
    """The graded rollout of a group that is nearest the group's median reward."""

    group: GradedGroup
    member: GradedRollout
    reward: float
    group_mean: float
    num_graded: int

    @property
    def response(self) -> str:
        """The part of the rollout that is judged and shown."""
        return visible_response(self.member.rollout.response)

    @property
    def case(self) -> TaskCase:
        """What the writer sees of it."""
        return TaskCase(
            query_id=self.group.query.id,
            prompt=self.group.query.prompt_text,
            response=self.response,
            reward=self.reward,
            group_mean=self.group_mean,
            verdicts=self.member.verdicts,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEvidence:
    """What a revision rests on; ``reason`` says why there is none."""

    representatives: tuple[Representative, ...] = ()
    """By group mean, lowest first."""
    reason: str = ""


def representative(group: GradedGroup, reward: RewardConfig) -> Representative | None:
    """Return the group's representative; None when less than half of the group is graded.

    Equally near rollouts are told apart by the SHA-256 of their response.
    """
    rewards = [rollout_reward(group.rubric, r.verdicts, reward).value for r in group.rollouts]
    graded = [(m, r) for m, r in zip(group.rollouts, rewards, strict=True) if r is not None]
    if not graded or len(graded) < math.ceil(len(group.rollouts) / 2):
        return None
    values = [r for _, r in graded]
    median = statistics.median(values)

    def distance(pair: tuple[GradedRollout, float]) -> tuple[float, str, int]:
        member, value = pair
        text = member.rollout.response.encode("utf-8", "surrogatepass")
        near = round(abs(value - median), _DIGITS)
        return near, hashlib.sha256(text).hexdigest(), member.rollout.index

    member, value = min(graded, key=distance)
    return Representative(
        group=group,
        member=member,
        reward=value,
        group_mean=math.fsum(values) / len(values),
        num_graded=len(graded),
    )


def task_evidence(
    groups: Sequence[GradedGroup],
    rubric: Rubric,
    task: RareTaskConfig,
    reward: RewardConfig,
    draw_seed: str,
) -> TaskEvidence:
    """Return the representatives of a task's groups of the last steps.

    ``rubric`` is the one to revise. One group a query: the one with more graded rollouts, then the
    later one. More than ``max_groups`` are drawn by thirds of the group mean.
    """
    current = [g for g in groups if g.rubric.version == rubric.version]
    found = [r for g in current if (r := representative(g, reward)) is not None]
    best: dict[str, Representative] = {}
    for r in found:
        known = best.get(r.group.query.id)
        if known is None or _preference(r) > _preference(known):
            best[r.group.query.id] = r
    if len(best) < task.min_groups:
        return TaskEvidence(
            reason=f"got {len(best)} queries with a group that is half graded under version "
            f"{rubric.version}, of {len(groups)} groups in the last {task.evidence_steps} steps; "
            f"wanted {task.min_groups}"
        )
    ranked = sorted(best.values(), key=lambda r: (round(r.group_mean, _DIGITS), r.group.query.id))
    if len(ranked) > task.max_groups:
        ranked = _drawn_by_thirds(ranked, task.max_groups, draw_seed)
    return TaskEvidence(representatives=tuple(ranked))


def _preference(r: Representative) -> tuple[int, int, int]:
    return r.num_graded, r.group.draw.step, r.group.draw.visit


def _drawn_by_thirds(
    ranked: Sequence[Representative], num_wanted: int, draw_seed: str
) -> list[Representative]:
    """Draw 5, 6 and 5 of the low, middle and high third for 16; other numbers likewise."""
    base, rest = divmod(num_wanted, 3)
    counts = (base + (rest == 2), base + (rest == 1), base + (rest == 2))
    rng = seeded(draw_seed)
    bounds = [len(ranked) * i // 3 for i in range(4)]
    drawn: list[Representative] = []
    for i, count in enumerate(counts):
        places = sorted(rng.sample(range(bounds[i], bounds[i + 1]), count))
        drawn += [ranked[place] for place in places]
    return drawn


def seeded(text: str) -> random.Random:
    """Return a random source that depends on the text alone: the same draw after a resume."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return random.Random(int(digest[:16], 16))


def evidence_seed(task: str, step: int, seed: int) -> str:
    """Return what the draw of ``task_evidence`` is seeded with, as in the released code."""
    return f"{task}:{step}:{seed}"


def fitting_request(
    request: TaskRevisionRequest,
    shown: Callable[[TaskRevisionRequest], str],
    min_groups: int,
) -> TaskRevisionRequest | None:
    """Return the request with as many cases as its prompt has room for; None below ``min_groups``.

    ``shown`` returns the text that fills the prompt. The middle case goes first: the ends of the
    ranking tell more about what is mastered and what is out of reach.
    """
    while not _fits(shown(request)):
        cases = request.cases
        if len(cases) <= min_groups:
            return None
        middle = len(cases) // 2
        request = replace(request, cases=cases[:middle] + cases[middle + 1 :])
    return request


def _fits(text: str) -> bool:
    return len(text) <= MAX_PROMPT_CHARS and num_tokens(text) <= MAX_PROMPT_TOKENS


def num_tokens(text: str) -> float:
    """Estimate tokens: a character of an unspaced script is one, any other a quarter."""
    num_wide = sum(is_unspaced(char) for char in text)
    return num_wide + (len(text) - num_wide) / _CHARS_A_TOKEN


def is_unspaced(char: str) -> bool:
    """Whether a character is of CJK: ideographs, kana, hangul, and their full-width signs."""
    return "\u2e80" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7af" or char >= "\uf900"


# ------------------------------------------------------------------ gate
@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """What rescoring the representatives with a candidate rubric showed."""

    refusal: Literal["", "valid", "distinct", "shift"]
    """The rule that the candidate broke, or empty."""
    reason: str
    """The numbers, whatever the result."""


def gate(
    representatives: Sequence[Representative],
    rescored: Sequence[Mapping[str, Verdict]],
    candidate: Rubric,
    task: RareTaskConfig,
    reward: RewardConfig,
) -> GateResult:
    """Return whether the candidate discriminates and keeps the scale (A.2.2).

    ``rescored`` are the verdicts under the candidate, in the representatives' order. Enough of them
    must have all scores, their new rewards must hold at least two values, and the means of old and
    new rewards, over the same representatives, may differ by ``max_mean_shift`` at most.
    """
    pairs: list[tuple[float, float]] = []
    for r, verdicts in zip(representatives, rescored, strict=True):
        new = rollout_reward(candidate, verdicts, reward).value
        if new is not None:
            pairs.append((r.reward, new))
    num_valid = len(pairs)
    if num_valid < task.min_groups:
        return GateResult(
            refusal="valid",
            reason=f"gate: got scores of {num_valid} of {len(representatives)} representatives, "
            f"wanted {task.min_groups}",
        )
    num_distinct = len({round(new, _DIGITS) for _, new in pairs})
    old_mean = math.fsum(old for old, _ in pairs) / num_valid
    new_mean = math.fsum(new for _, new in pairs) / num_valid
    shift = abs(new_mean - old_mean)
    numbers = (
        f"gate: {num_valid} representatives, {num_distinct} distinct new rewards, mean "
        f"{old_mean:.4f} before and {new_mean:.4f} after"
    )
    if num_distinct < 2:
        return GateResult(refusal="distinct", reason=f"{numbers}; wanted 2 distinct rewards")
    if shift > task.max_mean_shift + _ROUNDING:
        return GateResult(
            refusal="shift",
            reason=f"{numbers}; wanted a shift of at most {task.max_mean_shift:g}",
        )
    return GateResult(refusal="", reason=numbers)


# ------------------------------------------------------------------ result
def task_evolution(
    rubric: Rubric, candidate: Rubric, diagnosis: str, reason: str, status: EditStatus
) -> Evolution:
    """Return the candidate, one edit a changed criterion; the old rubric unless ``accepted``."""
    edits = tuple(
        RubricEdit(
            method="rare",
            branch="task",
            status=status,
            reason=reason,
            old=old,
            new=new,
            evidence=Evidence(analysis=diagnosis),
        )
        for old, new in zip(rubric.criteria, candidate.criteria, strict=True)
        if old != new
    )
    return Evolution(rubric=candidate if status == "accepted" else rubric, edits=edits)
