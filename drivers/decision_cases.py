"""A run's Adaptive decisions as cases for people: the response that was caught beside its anchor.

CARE appendix B.2 audits whether the Adaptive branch detects hacking rightly and puts in the right
constraint. A decision is an accepted adaptive edit of events.jsonl; it is shown with the request,
the rubric that the response was graded under, the response and the anchor. A decision whose
response is in no file of the run (one that a person approved names none) is left out and counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from actors.rubric_log import RubricLog
from core.errors import ConfigError
from core.label_sheets import QUESTIONS, Case, decision_stratum
from core.rows import Row
from core.rubric import Rubric
from drivers.asking import say
from drivers.jsonl_files import read_rows
from drivers.rubrics_rollouts import RunQueries
from drivers.rubrics_run import find_run, open_log
from drivers.run_files import RunFiles, step_files

_Place = tuple[int, str, int]
"""(step, query id, index) of a rollout."""


def decision_cases(run: str) -> list[Case]:
    """Return a case for each Adaptive decision of a run; ConfigError when it has none."""
    files = find_run(run)
    events = [e for e in read_rows(files.events) if _is_decision(e)]
    places = {number: place for number, e in enumerate(events) if (place := _place(e))}
    rollouts = _rollouts(files, set(places.values()))
    last_step = max((step for step, _ in step_files(files.rollouts)), default=0)
    queries = RunQueries(files.read_config())
    cases: list[Case] = []
    with open_log(files) as log:
        for number, event in enumerate(events):
            rollout = rollouts.get(places[number]) if number in places else None
            if rollout is not None:
                shown = _shown(event, rollout, _rubric(log, rollout), queries)
                cases.append(_case(number, event, shown, last_step))
    if not cases:
        raise ConfigError(
            f"got {len(events)} adaptive decisions in {files.events}, none with its response on "
            "file, wanted a run of CARE (or ratchet) in which the adaptive branch made an edit"
        )
    if len(cases) < len(events):
        say(f"{len(events) - len(cases)} decisions without a response on file are left out")
    return cases


def _is_decision(event: Row) -> bool:
    return event["branch"] == "adaptive" and event["status"] == "accepted"


def _place(event: Row) -> _Place | None:
    rollouts: Sequence[int] = event["evidence"]["rollouts"]
    return (event["step"], event["query_id"], rollouts[0]) if rollouts else None


def _rollouts(files: RunFiles, wanted: set[_Place]) -> dict[_Place, Row]:
    steps = {step for step, _, _ in wanted}
    found: dict[_Place, Row] = {}
    for step, path in step_files(files.rollouts):
        for row in read_rows(path) if step in steps else ():
            place = (step, row["query_id"], row["index"])
            if place in wanted:
                found[place] = row
    return found


def _rubric(log: RubricLog, rollout: Row) -> Rubric | None:
    """Return the rubric that the response was graded under."""
    if rollout["query_id"] not in log.query_ids():
        return None
    versions = {v.version: v.rubric for v in log.history(rollout["query_id"])}
    return versions.get(rollout["rubric_version"])


def _case(number: int, event: Row, shown: Mapping[str, str], last_step: int) -> Case:
    return Case(
        id=f"{number}: step {event['step']}, {event['query_id']}, version {event['to_version']}",
        stratum=decision_stratum(event, last_step),
        shown=shown,
        verdicts=dict.fromkeys(QUESTIONS["adaptive"], True),
    )


def _shown(event: Row, rollout: Row, rubric: Rubric | None, queries: RunQueries) -> dict[str, str]:
    query = queries.query(rollout["query_id"])
    old, new = event["old"], event["new"]
    return {
        "request": query.prompt_text,
        "criteria when it was graded": _graded(rollout["verdicts"], rubric),
        "response": rollout["response"],
        "reference": query.anchor.response if query.anchor else "(this query has none)",
        "criterion before": old["text"] if old else "(none: a criterion was added)",
        "new criterion": new["text"] if new else "(none)",
        "quotes": "\n".join(event["evidence"]["quotes"]),
    }


def _graded(verdicts: Mapping[str, Any], rubric: Rubric | None) -> str:
    if rubric is None:
        return "(not on file)"
    lines: list[str] = []
    for criterion in rubric.criteria:
        verdict = verdicts.get(criterion.id)
        score = None if verdict is None else verdict["score"]
        said = "not scored" if score is None else f"{score:g} of {criterion.max}"
        lines.append(f"[{said}] {criterion.text}")
    return "\n".join(lines)
