"""What a run's log says after each step."""

import logging

import pytest

from drivers.progress import Progress


def test_the_edits_of_every_method_are_counted_over_the_steps(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    progress = Progress(5, 0)
    with caplog.at_level(logging.INFO):
        # Of RLER: two criteria came into the pool, one was put in another's place.
        counts = {"evolving_rubrics/num_new_rubrics": 2.0, "evolving_rubrics/num_overrides": 1.0}
        progress.step(1, {"critic/rewards/mean": 0.25, "timing_s/step": 3.0, **counts}, {"a": 1})
        progress.step(2, {"gold/mean": 0.5, **counts}, {"a": 0, "b": 2})
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "step 1/5  reward 0.250  edits 3  age 0  queues 1  3.0 s"
    assert second == "step 2/5  reward nan  gold 0.500  edits 6  age 0  queues 0/2  0.0 s"
