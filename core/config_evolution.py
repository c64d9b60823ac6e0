"""The config of how rubrics evolve: one class a method, chosen by ``evolution.method``.

What a method does not have it does not take: an unknown key is refused. The defaults of a method
are its paper's; gates and triggers go beyond the papers and are off everywhere but in ``ratchet``.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from core.config_values import Part, Processes

Scope = Literal["query", "task"]
"""Whose rubric it is: each query's own, or one shared by all queries of a task."""


# ------------------------------------------------------------------ gates and triggers
class GatesConfig(Part):
    """What an accepted edit must also pass before it is committed."""

    anchor_passes: bool = False
    """The anchor itself must pass a new [Resist] criterion (one judge call)."""
    discriminates: bool = False
    """A new criterion must tell two rollouts of the group apart, or be failed by the top rollout
    (one joint judge call)."""
    not_redundant: bool = False
    """A new criterion must not be a near duplicate or the contrary of one that stays."""
    similarity: float = Field(default=0.9, gt=0.0, le=1.0)
    """From here on two texts are near duplicates."""
    max_active: int | None = Field(default=None, ge=1)
    """Most criteria of a rubric; the least telling [llm] ones beyond it are retired."""

    @property
    def is_any_on(self) -> bool:
        """Whether any gate looks at edits."""
        is_checked = self.anchor_passes or self.discriminates or self.not_redundant
        return is_checked or self.max_active is not None


class TriggerConfig(Part):
    """When a group is contrasted at all (CARE, limitation 1)."""

    when: Literal["always", "every", "signals"] = "always"
    """``every``: in every ``every_steps``-th step. ``signals``: only where cheap signs say that
    hacking is likely: a top reward near the ceiling, or a top rollout with repeated n-grams,
    placeholder text, a foreign script, praise of itself, or a length far from the anchor's."""
    every_steps: int = Field(default=4, ge=1)
    reward_ceiling: float = Field(default=0.9, gt=0.0, le=1.0)
    """A top reward from here on is near the ceiling."""
    length_ratio: float = Field(default=3.0, gt=1.0)
    """A top rollout this many times longer or shorter than the anchor is far from it."""


# ------------------------------------------------------------------ what the methods share
class CareConfig(Part):
    """CARE's switches and limits (CARE sections 3.2 and 3.4)."""

    adaptive: bool = True
    chase: bool = True
    veto: bool = True
    """False is the ablation without veto: it turns ``reward.veto`` of the run off as well."""
    anchor: bool = True
    max_new: int = Field(default=1, ge=1)
    """Changes one reply may make: criteria that it rewrites or adds, all of one branch."""
    max_criteria: int = Field(default=24, ge=1)
    max_chars: int = Field(default=1000, ge=1)
    """Longest criterion text."""

    @model_validator(mode="after")
    def _has_a_branch(self) -> Self:
        if not (self.adaptive or self.chase):
            raise ValueError("got adaptive and chase both off, wanted one of them (or `static`)")
        return self


class RareConfig(Part):
    """RARE at sample level (RARE section 3.2)."""

    polarity: Literal["negative", "positive", "mixed"] = "negative"
    budget: int = Field(default=3, ge=1)
    max_attempts: int = Field(default=5, ge=1)
    """Tries of the writer; the reason of a refusal is fed back."""


class RareTaskConfig(Part):
    """RARE at task level (RARE section 3.3 and appendix A.2.2)."""

    revisions: int = Field(default=5, ge=1)
    """Revisions of a run, evenly spaced: after step round(i * steps / (revisions + 1))."""
    evidence_steps: int = Field(default=3, ge=1)
    min_groups: int = Field(default=12, ge=2)
    max_groups: int = Field(default=16, ge=2)
    max_mean_shift: float = Field(default=0.35, gt=0.0, le=1.0)
    """Largest change of the representatives' mean reward that the gate lets pass."""
    max_attempts: int = Field(default=5, ge=1)

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> Self:
        if self.min_groups > self.max_groups:
            raise ValueError(
                f"got min_groups={self.min_groups} over max_groups={self.max_groups}, wanted at "
                "most that many"
            )
        return self


class RlerConfig(Part):
    """RLER's adaptive pool beside the initial criteria (DR Tulu; RARE appendix A.2)."""

    max_new: int = Field(default=5, ge=1)
    """Most criteria that one call of the writer adds."""
    max_active: int = Field(default=5, ge=1)
    """Most adaptive criteria kept for the next visit, by score deviation over the group."""
    negative: bool = True
    """Also ask for criteria of weight -1 (what a good response does not do)."""
    max_points: int = Field(default=2, ge=1)
    """Scale 0..max of a new criterion."""


class OnlineRubricsConfig(Part):
    """Online Rubrics: criteria from pairs of current and control rollouts, for one step only."""

    control: Literal["reference", "previous"] = "reference"
    """Policy of the control rollouts: the initial one, or the one before the last update."""
    control_group_size: int = Field(default=8, ge=1)
    """Control rollouts a query; each is paired with the current rollout of the same index."""
    control_workers: Processes = 1
    """Rollout workers of the control policy, sized like ``rollout``'s."""


class MpoConfig(Part):
    """MPO: a meta judge refines the shared rubric from scored rollouts."""

    every_steps: int | None = Field(default=20, ge=1)
    """Steps between revisions; None spaces ``revisions`` of them evenly."""
    revisions: int | None = Field(default=None, ge=1)
    num_samples: int = Field(default=16, ge=1)
    """Rollouts of the step that the meta judge analyses, drawn without replacement."""
    max_points: int = Field(default=5, ge=1)
    """Scale 0..max of every criterion it writes."""
    max_criteria: int = Field(default=24, ge=1)

    @model_validator(mode="after")
    def _has_one_schedule(self) -> Self:
        if (self.every_steps is None) == (self.revisions is None):
            raise ValueError(
                f"got every_steps={self.every_steps} and revisions={self.revisions}, wanted one "
                "of them (null the other)"
            )
        return self


# ------------------------------------------------------------------ methods
class _Evolving(Part):
    """What every method that evolves has."""

    deadline_s: float = Field(default=120.0, gt=0.0)
    """Longest wait for one edit: before the update (same_step), at the query's next draw
    (next_visit), or before the next step's groups are judged (task)."""


class StaticEvolution(Part):
    """A fixed rubric."""

    method: Literal["static"] = "static"
    scope: Scope = "query"
    universal: bool = False
    """Add the two generic criteria against hacking (CARE section 4.1, after RLCF)."""


class CareEvolution(_Evolving):
    """CARE."""

    method: Literal["care"] = "care"
    apply: Literal["next_visit", "same_step"] = "next_visit"
    approval: Literal["automatic", "person"] = "automatic"
    """``person``: edits wait until ``ratchet rubrics approve`` commits them."""
    care: CareConfig = CareConfig()
    trigger: TriggerConfig = TriggerConfig()
    gates: GatesConfig = GatesConfig()


class RareEvolution(_Evolving):
    """RARE: sample level in the same step, or task level for the next one."""

    method: Literal["rare"] = "rare"
    scope: Scope = "query"
    approval: Literal["automatic", "person"] = "automatic"
    rare: RareConfig = RareConfig()
    """Read with ``scope: query``."""
    task: RareTaskConfig = RareTaskConfig()
    """Read with ``scope: task``."""


class RlerEvolution(_Evolving):
    """RLER."""

    method: Literal["rler"] = "rler"
    rler: RlerConfig = RlerConfig()


class OnlineRubricsEvolution(_Evolving):
    """Online Rubrics."""

    method: Literal["online_rubrics"] = "online_rubrics"
    online: OnlineRubricsConfig = OnlineRubricsConfig()


class MpoEvolution(_Evolving):
    """MPO, on one rubric a task."""

    method: Literal["mpo"] = "mpo"
    mpo: MpoConfig = MpoConfig()


class RatchetTrigger(TriggerConfig):
    """The trigger of ``ratchet``: a config that sets one key of it leaves the others on."""

    when: Literal["always", "every", "signals"] = "signals"


class RatchetGates(GatesConfig):
    """The gates of ``ratchet``: a config that sets one key of them leaves the others on."""

    anchor_passes: bool = True
    discriminates: bool = True
    not_redundant: bool = True
    max_active: int | None = Field(default=16, ge=1)


class RatchetEvolution(_Evolving):
    """RARE's replacement in the same step, then CARE's contrast for the next visit, with gates."""

    method: Literal["ratchet"] = "ratchet"
    approval: Literal["automatic", "person"] = "automatic"
    care: CareConfig = CareConfig()
    rare: RareConfig = RareConfig()
    trigger: RatchetTrigger = RatchetTrigger()
    gates: RatchetGates = RatchetGates()


EvolutionConfig = Annotated[
    StaticEvolution
    | CareEvolution
    | RareEvolution
    | RlerEvolution
    | OnlineRubricsEvolution
    | MpoEvolution
    | RatchetEvolution,
    Field(discriminator="method"),
]


def rubric_scope(evolution: EvolutionConfig) -> Scope:
    """Return whose rubric the method changes."""
    if isinstance(evolution, StaticEvolution | RareEvolution):
        return evolution.scope
    return "task" if isinstance(evolution, MpoEvolution) else "query"


def deadline_s(evolution: EvolutionConfig) -> float:
    """Return the longest wait for one edit; 0 for a method without edits."""
    return 0.0 if isinstance(evolution, StaticEvolution) else evolution.deadline_s
