"""The pure pieces of the end-to-end benchmark: same work, measured steps, figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.config import RunConfig
from drivers.bench.end_to_end import result, rows
from drivers.bench.end_to_end_sides import Line, measured, run_config
from drivers.bench.end_to_end_work import Work, queries, rewards
from drivers.plan import cpu_threads

WORK = Work(model="/m", num_threads=2, measured_steps=2)


def lines(step_s: float, num: int = 4, length: float = 96.0) -> list[Line]:
    return [
        {
            "time": step_s * i,
            "response_length/mean": length,
            "timing_s/gen": 1.0,
            "timing_s/update_actor": 2.0,
        }
        for i in range(num)
    ]


def test_warm_up_steps_and_steps_after_the_measured_ones_do_not_count() -> None:
    steps = [*lines(10.0, 3), {"time": 21.0, "response_length/mean": 1.0}]
    side = measured(steps, WORK)
    assert side.seconds == 20.0
    assert side.rollouts == 64
    assert side.rollouts_per_s == 3.2
    assert side.tokens_per_rollout == 96.0


def test_a_side_that_ended_early_has_no_figure() -> None:
    with pytest.raises(ValueError, match="got 2 steps, wanted at least 3"):
        measured(lines(10.0, 2), WORK)


def test_the_ratio_is_ours_over_trls_and_shorter_answers_show_in_tokens() -> None:
    ours, trl = measured(lines(10.0, length=48.0), WORK), measured(lines(30.0), WORK)
    slower = measured(lines(40.0), WORK)
    found = result(ours, {4: slower, 8: trl, 16: slower}, WORK)
    assert found["trl_micro_batch"] == 8
    assert found["rollouts_per_s_ratio"] == pytest.approx(3.0)
    assert found["tokens_per_s_ratio"] == pytest.approx(1.5)
    assert {r.name: r.is_met for r in rows(found)}["ours over TRL"] is True


def test_our_run_makes_the_steps_that_are_measured() -> None:
    config = RunConfig.model_validate(run_config(WORK, Path("/f")))
    assert config.loop.steps == 3
    assert config.learner.kl_coef == 0.0
    assert config.sampling.max_new_tokens == WORK.max_new_tokens


def test_both_sides_are_told_the_same_work() -> None:
    work = replace(WORK, seed=7)
    assert Work.from_json(work.as_json()) == work


def test_the_rubric_tells_a_story_from_a_list() -> None:
    prompt = queries()[0].prompt_text
    story = "The keeper read the old map by lamp light and wondered. " * 8
    assert rewards([prompt, prompt], [story, "- a\n- b"]) == [1.0, 0.25]


@pytest.mark.parametrize(("age", "threads"), [(0, 2), (1, 1)])
def test_learner_and_worker_share_their_cpus_only_when_they_take_turns(
    age: int, threads: int
) -> None:
    plain = run_config(WORK, Path("/f"))
    config = RunConfig.model_validate(plain | {"loop": plain["loop"] | {"max_policy_age": age}})
    found = cpu_threads(config)
    assert (found.rank, found.worker) == (threads, threads)
