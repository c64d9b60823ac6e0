"""What evolution costs in calls: judge, writer and rescoring, a step and over the run.

RARE appendix A.2.3 counts a call a rollout for grading, and for each revision one of the writer and
one joint rescoring; its overhead is the last two over the first. CARE appendix C.2 adds one call of
the writer a query and step, whatever the group's size. The numbers are those of metrics.jsonl:
``judge/calls`` is a running total of requests that begins anew with every life of a run, and so are
the retries; what the cache answered is no call. Grading is every request but a rescoring, so those
of gold criteria, held-out queries and gates are in it; the papers leave these out, so the overhead
is given over the rollouts too.
"""

from collections.abc import Mapping, Sequence

from core.analysis.evidence import NotInFiles, RunEvidence
from core.analysis.moments import mean
from core.rows import Row

KINDS = ("grading", "rescoring", "writer")


def call_accounting(runs: Sequence[RunEvidence]) -> Row:
    """Return the calls of one run by kind, in all, a step, and step by step.

    ``overhead`` is writer and rescoring over grading, ``overhead_of_rollouts`` over rollouts.
    Raises NotInFiles without the counts.
    """
    (run,) = runs
    lines = [row for row in run.metrics if row.get("judge/calls") is not None]
    if not lines:
        raise NotInFiles("no step in metrics.jsonl has judge/calls")
    requests = deltas([row["judge/calls"] for row in lines])
    steps = [_step_row(row, number) for row, number in zip(lines, requests, strict=True)]
    totals = {kind: sum(row[kind] for row in steps) for kind in KINDS}
    extra = totals["rescoring"] + totals["writer"]
    rollouts = sum(len(g.scores) for g in run.groups)
    return {
        **totals,
        "overhead": extra / totals["grading"] if totals["grading"] else None,
        "overhead_of_rollouts": extra / rollouts if rollouts else None,
        "rollouts": rollouts,
        "cached_verdicts": sum(_number(row, "judge/cached") for row in lines),
        "judge_retries": sum(deltas([_number(row, "judge/retries") for row in lines])),
        "writer_retries": sum(deltas([_number(row, "writer/retries") for row in lines])),
        "kinds": [
            {
                "kind": kind,
                "calls": totals[kind],
                "a_step": mean([row[kind] for row in steps]),
                "a_group": totals[kind] / len(run.groups) if run.groups else None,
            }
            for kind in KINDS
        ],
        "steps": steps,
    }


def deltas(totals: Sequence[float]) -> list[float]:
    """Return what each step added to a running total that a resume begins anew."""
    before = [0.0, *totals[:-1]]
    return [now - then if now >= then else now for now, then in zip(totals, before, strict=True)]


def _step_row(line: Mapping[str, object], requests: float) -> Row:
    rescoring = _number(line, "evolving_rubrics/rescored_calls")
    return {
        "step": line["step"],
        "grading": requests - rescoring,
        "rescoring": rescoring,
        "writer": _number(line, "evolving_rubrics/writer_calls"),
    }


def _number(line: Mapping[str, object], name: str) -> float:
    """A count that a step's line leaves out is none: the loop writes those that it has."""
    value = line.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
