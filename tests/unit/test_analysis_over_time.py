"""Analyses that follow a run: resaturation, first saturation, replaced counts, calls, times."""

from dataclasses import replace

import pytest

from core.analysis.calls import call_accounting, deltas
from core.analysis.evidence import NotInFiles
from core.analysis.over_steps import first_saturation, replaced_over_steps
from core.analysis.resaturation import resaturation
from core.analysis.times import compared_times, percentile, step_times
from core.rubric import Rubric
from tests.unit.analysis_rig import criterion, event, group, run_of

C = criterion("c")
OPEN, FULL = {"c": [1, 0, 1]}, {"c": [1, 1, 1]}


# ------------------------------------------------------------------ resaturation
def test_a_replacement_that_all_meet_next_time_is_resaturated() -> None:
    events = [event([(C, "negative")], OPEN, query_id=q) for q in ("q1", "q2", "q3")]
    later = [
        group([C], FULL, query_id="q1", visit=1, step=2),
        group([C], OPEN, query_id="q2", visit=1, step=2),
    ]
    found = resaturation([run_of(events, later)])
    assert (found["reopened"], found["not_drawn_again"]) == (3, 1)
    assert (found["cohort"], found["resaturated"], found["share"]) == (2, 1, 0.5)


def test_one_that_was_replaced_again_was_saturated_before() -> None:
    first = event([(C, "negative")], OPEN)
    second = event([(criterion("c", "newer"), "positive")], OPEN, visit=1, step=2)
    again = replace(second, pairs=(replace(second.pairs[0], old=C),))
    found = resaturation([run_of([first, again])])
    assert (found["cohort"], found["resaturated"]) == (1, 1)


def test_one_that_stayed_full_changed_or_lacks_a_score_is_no_cohort() -> None:
    events = [
        event([(C, "negative")], FULL, query_id="full"),
        event([(C, "negative")], OPEN, query_id="changed"),
        event([(C, "negative")], OPEN, query_id="unscored"),
        event([(C, "positive")], OPEN, query_id="counts"),
    ]
    later = [
        group([C], FULL, query_id="full", visit=1, step=2),
        group([criterion("c", "other")], FULL, query_id="changed", visit=1, step=2),
        group([C], {"c": [1, None, 1]}, query_id="unscored", visit=1, step=2),
        group([C], FULL, query_id="counts", visit=1, step=2),
    ]
    found = resaturation([run_of(events, later)])
    assert (found["reopened"], found["changed"], found["unscored"]) == (3, 1, 1)
    assert found["cohort"] == 1
    rows = {r["direction"]: r["share"] for r in found["directions"]}
    assert rows == {"negative": None, "positive": 1.0}


def test_resaturation_needs_a_second_visit() -> None:
    with pytest.raises(NotInFiles, match="1 were not drawn again"):
        resaturation([run_of([event([(C, "negative")], OPEN)])])


# ------------------------------------------------------------------ curves
def test_an_initial_criterion_counts_once_at_its_first_saturation() -> None:
    a, b, veto = criterion("a"), criterion("b"), criterion("v", is_resist=True)
    initial = {"q1": Rubric(criteria=(a, b, veto)), "never": Rubric(criteria=(a,))}
    full, part = [1, 1], [1, 0]
    groups = [
        group([a, b, veto], {"a": part, "b": part, "v": full}, step=1),
        group([a, b, veto], {"a": full, "b": part, "v": full}, visit=1, step=2),
        group([a, b, veto], {"a": full, "b": [1, None], "v": full}, visit=2, step=3),
    ]
    found = first_saturation([run_of(groups=groups, initial=initial)])
    assert found["initial_criteria"] == 2  # a and b: a veto is meant to be passed
    assert found["rubrics_not_drawn"] == 1
    assert [(p["step"], p["reached"], p["share"]) for p in found["curve"]] == [
        (1, 0, 0.0),
        (2, 1, 0.5),
        (3, 1, 0.5),
    ]


def test_a_replaced_initial_criterion_was_saturated_at_that_step() -> None:
    old = criterion("c", "old c")
    found = first_saturation(
        [run_of([event([(C, "negative")], OPEN, step=4)], initial={"q1": Rubric(criteria=(old,))})]
    )
    assert found["curve"] == [{"step": 4, "reached": 1, "share": 1.0}]


def test_a_successor_of_the_same_id_is_no_initial_criterion() -> None:
    initial = {"q1": Rubric(criteria=(criterion("c", "old c"),))}
    found = first_saturation([run_of(groups=[group([C], FULL)], initial=initial)])
    assert found["ever_saturated"] == 0


def test_replaced_criteria_are_counted_a_query_and_step() -> None:
    pairs = [(criterion("x"), "negative"), (criterion("y"), "negative")]
    events = [event(pairs, {"x": [1, 0], "y": [0, 1]}, step=1)]
    groups = [
        group([C], OPEN, query_id="q2", step=1),
        group([C], OPEN, query_id="q3", visit=1, step=2),
    ]
    metrics = [{"step": 2, "val/gold/mean": 0.4}]
    found = replaced_over_steps([run_of(events, groups, metrics=metrics)])
    assert [p["a_query"] for p in found["curve"]] == [1.0, 0.0]  # 2 of 2 queries, 0 of 1
    assert [p["smoothed"] for p in found["curve"]] == [0.5, 0.5]
    assert [p["val/gold/mean"] for p in found["curve"]] == [None, 0.4]
    assert found["a_query"] == 2 / 3


# ------------------------------------------------------------------ calls
def test_the_papers_counts_give_its_overhead() -> None:
    # RARE A.2.3: 85,504 judge calls, and 3,336 events with a writer call and a rescoring each.
    line = {
        "step": 1,
        "judge/calls": 85504.0 + 3336.0,
        "evolving_rubrics/writer_calls": 3336.0,
        "evolving_rubrics/rescored_calls": 3336.0,
    }
    found = call_accounting([run_of(metrics=[line])])
    assert (found["grading"], found["rescoring"], found["writer"]) == (85504, 3336, 3336)
    assert found["grading"] + found["rescoring"] + found["writer"] == 92176
    assert found["overhead"] == pytest.approx(0.0780, abs=5e-5)


def test_a_resume_begins_the_running_total_anew() -> None:
    assert deltas([8, 16, 5, 12]) == [8, 8, 5, 7]


def test_calls_are_given_step_by_step() -> None:
    lines = [
        {"step": 1, "judge/calls": 8.0, "evolving_rubrics/writer_calls": 2.0},
        {"step": 2, "judge/calls": 18.0, "evolving_rubrics/rescored_calls": 2.0},
    ]
    found = call_accounting([run_of(groups=[group([C], OPEN)] * 2, metrics=lines)])
    # Four extra calls over six rollouts.
    assert found["overhead_of_rollouts"] == pytest.approx(4 / 6)
    assert found["steps"] == [
        {"step": 1, "grading": 8.0, "rescoring": 0.0, "writer": 2.0},
        {"step": 2, "grading": 8.0, "rescoring": 2.0, "writer": 0.0},
    ]
    kinds = {r["kind"]: (r["a_step"], r["a_group"]) for r in found["kinds"]}
    assert kinds == {"grading": (8, 8), "rescoring": (1, 1), "writer": (1, 1)}


def test_a_run_without_call_counts_says_so() -> None:
    with pytest.raises(NotInFiles, match="judge/calls"):
        call_accounting([run_of(metrics=[{"step": 1}])])


# ------------------------------------------------------------------ times
def _timed(step: int, step_s: float, total: float, exposed: float) -> dict[str, float]:
    return {
        "step": step,
        "timing_s/step": step_s,
        "timing_s/evolve_total": total,
        "timing_s/evolve_exposed": exposed,
    }


def test_hidden_evolution_is_what_is_not_exposed() -> None:
    found = step_times([run_of(metrics=[_timed(1, 10, 6, 1), _timed(2, 30, 2, 1)])])
    assert found["step_s"] == 20
    assert found["evolution"] == {
        "total_s": 8,
        "exposed_s": 2,
        "hidden_s": 6,
        "hidden_share": 0.75,
        "exposed_of_step": 2 / 40,
    }
    parts = {p["part"]: p for p in found["parts"]}
    assert parts["step"]["p50_s"] == 20
    assert parts["evolve_total"]["of_step"] == 4 / 20


def test_percentiles_are_linear_between_values() -> None:
    assert [percentile([1, 2, 3, 4], p) for p in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile([7.0], 95) == 7.0


def test_runs_are_compared_with_the_static_one() -> None:
    # CARE table 11: 448.9 s against 318.2 s are 1.411 times as long.
    care = run_of(metrics=[_timed(1, 448.9, 200, 130)], name="care", method="care")
    static = run_of(metrics=[{"step": 1, "timing_s/step": 318.2}], name="st", method="static")
    found = compared_times([care, static])
    assert found["compared_with"] == "st"
    ratios = {r["run"]: r["ratio"] for r in found["runs"]}
    assert ratios == {"care": pytest.approx(1.411, abs=5e-4), "st": 1.0}


def test_one_run_has_nothing_to_compare_with() -> None:
    with pytest.raises(NotInFiles, match="two runs"):
        compared_times([run_of(metrics=[_timed(1, 1, 1, 1)])])
