"""What the rubric writer is asked: one record a kind of request.

Each has the id that logs name it by, and nothing that its prompt does not show. Responses are the
visible part of rollouts. ``error`` says why the previous try was refused; empty on the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.query import Anchor
from core.records import Verdict
from core.rubric import Criterion, Rubric


# ------------------------------------------------------------------ CARE and RARE, sample level
@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastRequest:
    """CARE's contrast of the top rollout with the anchor (section 3.4, prompt in appendix E.2)."""

    query_id: str
    prompt: str
    satisfied: tuple[Criterion, ...]
    unsatisfied: tuple[Criterion, ...]
    response: str
    """The top rollout."""
    anchor: Anchor | None
    """None in the ablation without anchor."""
    is_adaptive: bool = True
    """Whether the hack check is asked for."""
    is_chase: bool = True
    """Whether the quality gap is asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplacementRequest:
    """RARE's replacement of saturated criteria (RARE section 3.2 and appendix A.2.1)."""

    query_id: str
    prompt: str
    rubric: Rubric
    saturated_ids: tuple[str, ...]
    num_updates: int
    """Exactly this many replacements are wanted: min(B, number saturated)."""
    polarity: Literal["negative", "positive", "mixed"]
    responses: tuple[str, ...]
    """[G]"""
    verdicts: tuple[Mapping[str, Verdict], ...]
    """[G], by criterion id, for the scores and reasons shown to the writer."""
    error: str = ""
    """Why the previous try was refused; empty on the first."""


# ------------------------------------------------------------------ RARE, task level
@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCase:
    """A group's representative: the evidence on one query (RARE appendix A.2.2)."""

    query_id: str
    prompt: str
    response: str
    """The valid rollout nearest the group's median reward."""
    reward: float
    """Its normalised reward under the current rubric."""
    group_mean: float
    verdicts: Mapping[str, Verdict]
    """By criterion id, of the representative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRevisionRequest:
    """RARE's revision of a shared rubric from representatives across queries."""

    query_id: str
    """The shared rubric's id."""
    task: str
    step: int
    rubric: Rubric
    cases: tuple[TaskCase, ...]
    error: str = ""


# ------------------------------------------------------------------ RLER
@dataclass(frozen=True, kw_only=True, slots=True)
class PoolRequest:
    """RLER's new criteria from the differences between the rollouts of one query."""

    query_id: str
    prompt: str
    responses: tuple[str, ...]
    """[G]"""
    initial: tuple[Criterion, ...]
    active: tuple[Criterion, ...]
    """The adaptive criteria that are in force."""
    max_new: int
    is_negative_asked: bool
    """Whether criteria of what a good response does not do are asked for too."""
    max_points: int


# ------------------------------------------------------------------ Online Rubrics
@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedText:
    """A candidate criterion."""

    text: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRequest:
    """Online Rubrics' criteria from one pair; which one is the current policy's is not told."""

    query_id: str
    prompt: str
    existing: tuple[Criterion, ...]
    response_a: str
    response_b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRequest:
    """Online Rubrics' merging of the candidates of all pairs: nothing may be added."""

    query_id: str
    prompt: str
    existing: tuple[Criterion, ...]
    candidates: tuple[WeightedText, ...]


# ------------------------------------------------------------------ MPO
@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSample:
    """A rollout with its scores, for the meta judge."""

    query_id: str
    prompt: str
    response: str
    reward: float
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaAnalysisRequest:
    """MPO: what rubric and scores got wrong on one sample."""

    query_id: str
    """The shared rubric's id."""
    rubric: Rubric
    sample: ScoredSample


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaRefineRequest:
    """MPO: the criteria that the analysis of one sample asks for."""

    query_id: str
    rubric: Rubric
    sample: ScoredSample
    analysis: str
    max_points: int
    max_criteria: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaMergeRequest:
    """MPO: one set without overlap from the refinements of all samples."""

    query_id: str
    rubric: Rubric
    refinements: tuple[str, ...]
    max_points: int
    max_criteria: int


WriterRequest = (
    ContrastRequest
    | ReplacementRequest
    | TaskRevisionRequest
    | PoolRequest
    | PairRequest
    | MergeRequest
    | MetaAnalysisRequest
    | MetaRefineRequest
    | MetaMergeRequest
)
