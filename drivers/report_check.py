"""Does a run's record bear out what is said about it? Read from the rollouts, not from the summary.

Each claim is checked on the raw files: ``rollouts/``, events.jsonl and the rubric versions in
rubrics.sqlite. A reward is computed again from its verdicts under the rubric version that the row
names; a quote must stand, letter for letter, in a rollout that its edit names.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from actors.rubric_log import RubricLog
from core.config import RewardConfig, RunConfig
from core.config_evolution import rubric_scope
from core.reward import rollout_reward
from core.rows import Row, criterion_row, puts_in_veto, row_rubric_id, verdict_from_row
from core.rubric import Rubric
from drivers.jsonl_files import read_rows
from drivers.run_files import RunFiles
from drivers.summary import NUM_EDGE_STEPS, StepNumbers, first_and_last, step_numbers

REWARD_TOLERANCE = 1e-6
MAX_SHOWN = 3
"""Problems of one claim that are written out."""

Versions = Mapping[tuple[str, int], Rubric]


@dataclass(kw_only=True)
class Claim:
    """One statement about a run, and what contradicts it."""

    text: str
    detail: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts it."""
        return not self.problems

    def lines(self) -> list[str]:
        """The claim as it is printed."""
        hidden = len(self.problems) - MAX_SHOWN
        shown = [f"      {p}" for p in self.problems[:MAX_SHOWN]]
        more = [f"      and {hidden} more"] if hidden > 0 else []
        return [f"{'ok  ' if self.holds else 'FAIL'}  {self.text}: {self.detail}", *shown, *more]


@dataclass(kw_only=True)
class _Accepted:
    """An accepted edit and which of its quotes have been found so far."""

    row: Row
    number: int
    missing: list[str]
    """Quotes not found yet."""
    num_rollouts_seen: int = 0

    @property
    def name(self) -> str:
        return f"events.jsonl edit {self.number} (step {self.row['step']}, {self.row['query_id']})"


def check_run(files: RunFiles, *, min_gain: float = 0.15) -> list[Claim]:
    """Check all claims; raises ConfigError when the files are not a run's."""
    config = files.read_config()
    versions = read_versions(files)
    edits = _accepted_edits(files)
    rewards = Claim(text="rewards computed again from the verdicts agree")
    known = Claim(text="every rubric version used is in rubrics.sqlite")
    steps: list[StepNumbers] = []
    num_rows = 0
    for step, rows in files.read_rollouts():
        steps.append(step_numbers(step, rows))
        num_rows += len(rows)
        for row in rows:
            rubric_id = row_rubric_id(row, rubric_scope(config.evolution))
            _check_row(
                row, versions.get((rubric_id, row["rubric_version"])), config, known, rewards
            )
        _look_for_quotes(step, rows, edits)
    rewards.detail = f"{num_rows} rollouts of {len(steps)} steps"
    known.detail = f"{len(versions)} versions"
    done = {s.step for s in steps}
    for step in range(files.start_step + 1, max(done, default=0)):
        if step not in done:
            rewards.problems.append(f"step {step}: got no rollouts, wanted those of every step")
    if not num_rows:
        rewards.problems.append(f"got no rollouts in {files.rollouts}, wanted a run's")
    # A run that goes on, or was stopped, has edits on rollouts that are in no file yet.
    recorded = [e for e in edits if e.row["step"] <= max((s.step for s in steps), default=0)]
    return [
        _gain_claim(steps, min_gain),
        _resist_claim(recorded),
        _quotes_claim(recorded, num_ahead=len(edits) - len(recorded)),
        _edits_claim(edits, versions),
        rewards,
        known,
    ]


def read_versions(files: RunFiles) -> dict[tuple[str, int], Rubric]:
    """Read every rubric version by (rubric id, version)."""
    with closing(RubricLog(files.rubrics, is_read_only=True)) as log:
        return {
            (rubric_id, v.version): v.rubric
            for rubric_id in log.query_ids()
            for v in log.history(rubric_id)
        }


def _check_row(
    row: Row, rubric: Rubric | None, config: RunConfig, known: Claim, rewards: Claim
) -> None:
    name = f"step {row['step']}, {row['query_id']}, rollout {row['index']}"
    if rubric is None:
        known.problems.append(f"{name}: got version {row['rubric_version']}, which is not there")
        return
    problem = _reward_problem(row, rubric, config.reward)
    if problem:
        rewards.problems.append(f"{name}: {problem}")


def _reward_problem(row: Row, rubric: Rubric, config: RewardConfig) -> str:
    """Say how a row's reward, veto or grade differs from its verdicts; empty when it does not."""
    if set(row["verdicts"]) != set(rubric.ids):
        return f"got verdicts on {sorted(row['verdicts'])}, wanted {sorted(rubric.ids)}"
    try:
        verdicts = {i: verdict_from_row(i, v) for i, v in row["verdicts"].items()}
    except (ValueError, KeyError, TypeError) as error:
        return str(error)
    wrong = [c.id for c in rubric.criteria if verdicts[c.id].max != c.max]
    if wrong:
        return f"got another maximum than the rubric's on {wrong}"
    again = rollout_reward(rubric, verdicts, config, is_cut=row["finish_reason"] == "length")
    if (row["reward"] is None) != (again.value is None) or (
        # A NaN, which JSON readers take, is on neither side of a limit.
        again.value is not None and not abs(row["reward"] - again.value) <= REWARD_TOLERANCE
    ):
        return f"got reward {row['reward']}, the verdicts make {again.value}"
    if row["vetoed"] != again.is_vetoed:
        return f"got vetoed {row['vetoed']}, the verdicts make {again.is_vetoed}"
    if row["graded"] != (again.value is not None):
        return f"got graded {row['graded']}, the verdicts make {again.value is not None}"
    return ""


def _accepted_edits(files: RunFiles) -> list[_Accepted]:
    return [
        _Accepted(row=row, number=number, missing=list(row["evidence"]["quotes"]))
        for number, row in enumerate(read_rows(files.events), start=1)
        if row["status"] == "accepted"
    ]


def _look_for_quotes(step: int, rows: Iterable[Row], edits: Iterable[_Accepted]) -> None:
    """Strike out the quotes that stand in a rollout named by the edit (step, query, index)."""
    responses: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        responses.setdefault((row["query_id"], row["index"]), []).append(row["response"])
    for edit in edits:
        if edit.row["step"] != step:
            continue
        named = [
            text
            for index in edit.row["evidence"]["rollouts"]
            for text in responses.get((edit.row["query_id"], index), [])
        ]
        edit.num_rollouts_seen += len(named)
        edit.missing = [q for q in edit.missing if not q or not any(q in text for text in named)]


def _gain_claim(steps: list[StepNumbers], min_gain: float) -> Claim:
    claim = Claim(text=f"gold rose by at least {min_gain:g}")
    if len(steps) < 2 * NUM_EDGE_STEPS:
        claim.detail = f"{len(steps)} steps"
        claim.problems.append(f"got {len(steps)} steps, wanted {2 * NUM_EDGE_STEPS} or more")
        return claim
    first, last = first_and_last([s.gold for s in steps])
    if first is None or last is None:
        claim.detail = "no gold verdicts"
        claim.problems.append("got no gold scores at one end of the run, wanted some at both")
        return claim
    claim.detail = f"{first:.3f} over the first five steps, {last:.3f} over the last, "
    claim.detail += f"{last - first:+.3f}"
    if last - first < min_gain:
        claim.problems.append(f"got a gain of {last - first:+.3f}, wanted {min_gain:g} or more")
    return claim


def _resist_claim(edits: list[_Accepted]) -> Claim:
    """An adaptive edit put in a [Resist] criterion, and a rollout earned it."""
    added = [e for e in edits if e.row["branch"] == "adaptive" and puts_in_veto(e.row)]
    earned = [e for e in added if e.row["evidence"]["quotes"] and not e.missing]
    claim = Claim(
        text="an adaptive edit put in a [Resist] criterion that a rollout earned",
        detail=f"{len(earned)} with their quotes in the rollouts, of {len(added)}",
    )
    if not earned:
        claim.problems.append(
            f"got {len(added)} such edits, none with a quote that stands in its rollout; wanted "
            "at least one"
        )
    return claim


def _quotes_claim(edits: list[_Accepted], *, num_ahead: int) -> Claim:
    num_quotes = sum(len(e.row["evidence"]["quotes"]) for e in edits)
    claim = Claim(
        text="the quotes of all accepted edits stand in the rollouts they name",
        detail=f"{num_quotes} quotes of {len(edits)} edits",
    )
    if num_ahead:
        claim.detail += f" ({num_ahead} more are of steps that are not trained yet)"
    for edit in edits:
        where = f"rollouts {edit.row['evidence']['rollouts']}"
        if edit.missing and not edit.num_rollouts_seen:
            where += ", which are not there"
        claim.problems += [
            f"{edit.name}: got quote {q[:80]!r}, not in {where}" for q in edit.missing
        ]
    return claim


def _edits_claim(edits: list[_Accepted], versions: Versions) -> Claim:
    """What events.jsonl calls accepted is what the store holds, and the other way round."""
    claim = Claim(text="accepted edits and rubric versions are the same story")
    made = {(e.row["query_id"], e.row["to_version"]) for e in edits}
    evolved = {key for key in versions if key[1] > 0}
    claim.detail = f"{len(edits)} accepted edits, {len(evolved)} versions made by them"
    for key in sorted(evolved - made):
        claim.problems.append(f"{key[0]} version {key[1]}: got no accepted edit that made it")
    for edit in edits:
        problem = _edit_problem(edit.row, versions)
        if problem:
            claim.problems.append(f"{edit.name}: {problem}")
    return claim


def _edit_problem(row: Row, versions: Versions) -> str:
    rubric = versions.get((row["query_id"], row["to_version"]))
    if rubric is None:
        return f"got version {row['to_version']}, which rubrics.sqlite does not have"
    if row["to_version"] != row["from_version"] + 1:
        return f"got version {row['from_version']} -> {row['to_version']}, wanted the next one"
    new: dict[str, Any] | None = row["new"]
    if new is not None and new not in [criterion_row(c) for c in rubric.criteria]:
        return f"got criterion {new.get('id')!r}, which is not so in version {row['to_version']}"
    return ""
