"""``ratchet rubrics health``: how well each criterion of a run still does its work.

The numbers come from the run's rollouts (``core/evolution/health.py``). ``--resample`` asks the
run's own judge again, ``--label`` asks a model for the faults of each criterion; what these cost is
kept in ``health.json`` of the run and shown again as long as the criterion is the same.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from actors.rubric_log import RubricLog
from core.config import RunConfig
from core.config_served import ServedModelConfig, WriterConfig
from core.errors import ConfigError
from core.evolution.health import CriterionHealth, disagreement, rubric_health, signs
from core.evolution.rift import Label, RubricLabels
from core.query import is_shared
from core.records import JudgeRequest
from core.rows import Row, criterion_row, verdict_from_row
from core.rubric import Criterion, Rubric
from core.validation import first_problem
from drivers.rubrics_health_text import health_text
from drivers.rubrics_rollouts import (
    Histories,
    Place,
    RunQueries,
    read_places,
    read_verdicts,
    spread,
)
from drivers.rubrics_run import find_run, open_log, rubric_named
from drivers.run_files import RunFiles, write_json

if TYPE_CHECKING:  # the clients of models take seconds to import
    from drivers.rubrics_models import Asked

_MAX_PROMPTS = 3
_NUM_SHOWN_RESPONSES = 2


def health_command(
    args: argparse.Namespace,
    write: Callable[[Sequence[str]], None],
    write_object: Callable[[Any], None],
) -> int:
    """Compute, ask where asked to, and show; returns the exit code.

    1 when a model was asked and not one of its replies could be used.
    """
    _check(args)
    run = HealthOfRun(find_run(args.run), args.rubric)
    is_answered = True
    if args.resample:
        is_answered = run.resample(args.resample)
    if args.label:
        is_answered = run.label(_labeller(run.config, args)) and is_answered
    result = {"steps": run.verdicts.last_step, "rubrics": run.rows}
    is_whole = args.all or args.rubric is not None
    write_object(result) if args.json else write(health_text(result, is_whole=is_whole))
    return 0 if is_answered else 1


class HealthOfRun:
    """The criteria of a run's current rubrics, what its rollouts and what models say about them."""

    def __init__(self, files: RunFiles, rubric: str | None) -> None:
        self.config = files.read_config()
        self._files = files
        self._queries = RunQueries(self.config)
        with open_log(files) as log:
            self._histories = _histories(log, rubric)
        self.verdicts = read_verdicts(files, self.config, self._histories)
        self._healths = {i: self._health(i) for i in self._histories}
        self.rows = {
            i: _rubric_row(self._histories[i][-1].rubric, health)
            for i, health in self._healths.items()
        }
        """What is shown and kept, by rubric id."""
        self._add_kept()

    def _health(self, rubric_id: str) -> tuple[CriterionHealth, ...]:
        history = self._histories[rubric_id]
        return rubric_health(
            [v.rubric for v in history],
            {v.version: v.step for v in history},
            self.verdicts.groups[rubric_id],
            self.config.reward,
            self.verdicts.last_step,
        )

    # -------------------------------------------------------------- what is kept
    def _add_kept(self) -> None:
        """Take over what models said before about criteria that are still the same."""
        kept = _read_kept(self._files)
        for rubric_id, row in self.rows.items():
            before = kept.get(rubric_id, {})
            if before.get("version") == row["version"]:
                row["missing_criteria"] = before.get("missing_criteria")
            known = {json.dumps(c["criterion"]): c for c in before.get("criteria", [])}
            for criterion in row["criteria"]:
                same = known.get(json.dumps(criterion["criterion"]), {})
                for name in ("disagreement", "label"):
                    criterion[name] = same.get(name)

    def _keep(self) -> None:
        """Write health.json at once: what was paid for outlives a failure of the next part."""
        write_json(self._files.health, {"rubrics": _read_kept(self._files) | self.rows})

    # -------------------------------------------------------------- asking the judge again
    def resample(self, count: int) -> bool:
        """Ask the run's judge again for graded rollouts; False when no verdict came."""
        from drivers.rubrics_models import judge_again

        places = [p for i in self._histories for p in self.verdicts.graded[i] if self._standing(p)]
        picked = spread(sorted(places, key=lambda p: (p.step, p.query_id, p.index)), count)
        rows = read_places(self._files, picked)
        if not rows:
            raise ConfigError("got no graded rollout of these rubrics to ask the judge about again")
        pairs = judge_again(
            self.config.judge, [self._asked(place, row) for place, row in rows.items()]
        )
        for rubric_id, row in self.rows.items():
            for criterion in row["criteria"]:
                found = pairs.get((rubric_id, criterion["criterion"]["id"]))
                if found:
                    criterion["disagreement"] = asdict(disagreement(found))
        self._keep()
        return any(again.score is not None for found in pairs.values() for _, again in found)

    def _standing(self, place: Place) -> tuple[Criterion, ...]:
        """Return the current criteria that stood, unchanged, in the version of a rollout."""
        healths = self._healths[place.rubric_id]
        return tuple(h.criterion for h in healths if h.since_version <= place.version)

    def _asked(self, place: Place, row: Row) -> "Asked":
        from drivers.rubrics_models import Asked

        criteria = tuple(c for c in self._standing(place) if c.id in row["verdicts"])
        return Asked(
            rubric_id=place.rubric_id,
            request=JudgeRequest(
                query_id=place.query_id,
                prompt=self._queries.query(place.query_id).prompt_text,
                response=row["response"],
                criteria=criteria,
            ),
            before={c.id: verdict_from_row(c.id, row["verdicts"][c.id]) for c in criteria},
        )

    # -------------------------------------------------------------- labels
    def label(self, labeller: ServedModelConfig) -> bool:
        """Ask a model for the faults of each criterion; False when not one label came."""
        from drivers.rubrics_models import Unlabelled, label

        examples = {i: _examples(self.verdicts.graded[i]) for i in self._histories}
        rows = read_places(self._files, {p for places in examples.values() for p in places})
        asked = [
            Unlabelled(
                rubric=history[-1].rubric,
                prompts=self._prompts(rubric_id),
                responses=[rows[p]["response"] for p in examples[rubric_id] if p in rows],
                full_rates={h.criterion.id: h.full_rate for h in self._healths[rubric_id]},
            )
            for rubric_id, history in self._histories.items()
        ]
        found = label(labeller, asked)
        for row, labels in zip(self.rows.values(), found, strict=True):
            _put_labels(row, labels)
        self._keep()
        return any(x.modes is not None for f in found for x in (*f.criteria.values(), f.missing))

    def _prompts(self, rubric_id: str) -> list[str]:
        """The rubric's query, or some of those that share it."""
        graded = self.verdicts.graded[rubric_id]
        ids = list(dict.fromkeys(p.query_id for p in reversed(graded)))
        if not ids and not is_shared(rubric_id):
            ids = [rubric_id]
        return [self._queries.query(i).prompt_text for i in ids[:_MAX_PROMPTS]]


def _check(args: argparse.Namespace) -> None:
    if args.resample < 0:
        raise ConfigError(f"got --resample {args.resample}, wanted a number of rollouts")
    if (args.model or args.base_url or args.api_key_env) and not args.label:
        raise ConfigError(
            "got a model without --label, wanted it with --label: --resample asks the run's judge"
        )


def _histories(log: RubricLog, rubric: str | None) -> Histories:
    ids = log.query_ids()
    chosen = ids if rubric is None and ids else [rubric_named(log, rubric)]
    return {i: log.history(i) for i in chosen}


def _read_kept(files: RunFiles) -> dict[str, Any]:
    if not files.health.is_file():
        return {}
    try:
        return dict(json.loads(files.health.read_bytes())["rubrics"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"got {files.health}, which is not what this command writes, wanted its own file: "
            "delete it"
        ) from None


# ------------------------------------------------------------------ rows
def _rubric_row(rubric: Rubric, healths: Sequence[CriterionHealth]) -> Row:
    return {
        "version": rubric.version,
        "missing_criteria": None,
        "criteria": [_criterion_row(h) for h in healths],
    }


def _criterion_row(health: CriterionHealth) -> Row:
    return {
        **asdict(health),
        "criterion": criterion_row(health.criterion),
        "signs": list(signs(health)),
        "disagreement": None,
        "label": None,
    }


def _label_row(label: Label) -> Row:
    modes = None if label.modes is None else list(label.modes)
    return {"modes": modes, "reason": label.reason, "failure": label.failure}


def _put_labels(row: Row, labels: RubricLabels) -> None:
    row["missing_criteria"] = _label_row(labels.missing)
    for criterion in row["criteria"]:
        criterion["label"] = _label_row(labels.criteria[criterion["criterion"]["id"]])


# ------------------------------------------------------------------ asking models
def _labeller(config: RunConfig, args: argparse.Namespace) -> ServedModelConfig:
    """Return the model that labels: the run's writer, or the one that was named."""
    changes: dict[str, Any] = {}
    if args.model:
        changes |= {"backend": "openai", "model": args.model}
        if config.writer.backend != "openai":
            changes |= {"base_url": None}
    if args.base_url:
        changes["base_url"] = args.base_url
    if args.api_key_env:
        changes["api_key_env"] = args.api_key_env
    try:
        return WriterConfig.model_validate(config.writer.model_dump() | changes)
    except ValidationError as error:
        raise ConfigError(f"a model that cannot be asked: {first_problem(error)}") from None


def _examples(graded: Sequence[Place]) -> list[Place]:
    """The best and the worst rollout of the last step that graded any."""
    last = [p for p in graded if p.step == graded[-1].step] if graded else []
    by_reward = sorted(last, key=lambda p: p.reward)
    return by_reward[:: max(1, len(by_reward) - 1)][:_NUM_SHOWN_RESPONSES]
