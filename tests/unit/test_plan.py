"""What a dry run says: calls, and everything that is missing."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers import packaged_model
from drivers.call_estimates import estimated_calls
from drivers.config_file import load_config
from drivers.plan import placement_bundles, plan_text, replica_bundles
from drivers.preflight import missing
from drivers.run_data import RunData, load_run_data
from tests.unit.loop_rig import make_config, make_queries

QUICKSTART = Path(packaged_model.__file__).parent / "configs" / "quickstart.yaml"


def test_gold_and_held_out_calls_are_counted_before_anything_is_spent() -> None:
    """30 steps of 4 groups of 8: rubric and gold each 960, 120 rescorings, 3 passes of 8 queries
    with a call for the rubric and one for gold; ratchet's gates ask twice about each of 120
    edits."""
    config = load_config(str(QUICKSTART))
    calls = estimated_calls(config, load_run_data(config))
    assert calls["judge"] == 960 * 2 + 120 + 2 * 120 + 3 * 8 * 2
    assert calls["writer"] == 120 * 2


def test_a_branch_calls_only_for_the_steps_that_it_makes_itself() -> None:
    """From step 22 of 30: 8 steps of 4 groups of 8, rubric and gold; 2 of the 3 passes (at 10, 20
    and 30) were before."""
    config = load_config(str(QUICKSTART), ["evolution.method=static"])
    calls = estimated_calls(config, load_run_data(config), done=22)
    assert calls == {"judge": 8 * 4 * 8 * 2 + 1 * 8 * 2, "writer": 0}


def test_a_dry_run_names_the_missing_data_and_still_shows_the_rest() -> None:
    text = plan_text(load_config(str(QUICKSTART), ["data.train=absent.jsonl"]))
    assert "absent.jsonl" in text.split("# missing")[1]
    assert "PolicyLearner rank 0: 1 CPU" in text


def test_a_missing_gguf_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = packaged_model.importlib.util.find_spec

    def without_gguf(name: str) -> object:
        return None if name == "gguf" else found(name)

    monkeypatch.setattr(packaged_model.importlib.util, "find_spec", without_gguf)
    with pytest.raises(ConfigError, match="pip install gguf"):
        packaged_model._convert(tmp_path / "model.gguf", tmp_path, progress=False)


# ---------------------------------------------------------------------- every method
GROUPS, ROLLOUTS, STEPS = 3, 4, 40
GRADING = STEPS * GROUPS * ROLLOUTS


def planned(evolution: dict[str, object], **sections: object) -> dict[str, int]:
    """Calls of 40 steps of 3 groups of 4 over queries with two criteria and no gold."""
    config = make_config(
        evolution=evolution,
        loop={"steps": STEPS, "groups_per_step": GROUPS},
        sampling={"group_size": ROLLOUTS, "max_new_tokens": 8},
        **sections,
    )
    queries = tuple(make_queries().values())
    shared = {f"task:{i}": queries[0].rubric for i in range(2)}
    is_shared = evolution["method"] == "mpo" or evolution.get("scope") == "task"
    rubrics = shared if is_shared else {q.id: q.rubric for q in queries}
    data = RunData(train=queries, eval=(), fingerprint="f", rubrics=rubrics)
    return estimated_calls(config, data)


@pytest.mark.parametrize(
    ("evolution", "judge", "writer"),
    [
        ({"method": "static"}, 0, 0),
        ({"method": "static", "scope": "task"}, 0, 0),
        ({"method": "care"}, 0, 120),
        ({"method": "care", "apply": "same_step"}, 120, 120),
        ({"method": "care", "gates": {"discriminates": True}}, 120, 120),
        ({"method": "rare"}, 120, 120),
        # 5 revisions of 2 tasks, each rescoring at most 16 representatives.
        ({"method": "rare", "scope": "task"}, 5 * 2 * 16, 5 * 2),
        ({"method": "rler"}, 0, 120),
        # 4 pairs and one merge a group; no more pairs than current rollouts.
        ({"method": "online_rubrics"}, 0, 120 * 5),
        ({"method": "online_rubrics", "online": {"control_group_size": 2}}, 0, 120 * 3),
        # After step 20 (not after the last one), two tasks: 16 analyses, 16 refinements, one merge.
        ({"method": "mpo"}, 0, 2 * 33),
        ({"method": "mpo", "mpo": {"every_steps": None, "revisions": 3, "num_samples": 4}},
         0, 3 * 2 * 9),
        ({"method": "ratchet"}, 120 + 240, 240),
    ],
)  # fmt: skip
def test_each_method_adds_its_own_calls(
    evolution: dict[str, object], judge: int, writer: int
) -> None:
    assert planned(evolution) == {"judge": GRADING + judge, "writer": writer}


def test_a_call_a_criterion_and_a_reference_judge_are_counted() -> None:
    per_criterion = {"per_criterion": True}
    assert planned({"method": "static"}, judge=per_criterion)["judge"] == GRADING * 2
    # RLER's rubric grows by at most 5 kept and 5 new criteria.
    assert planned({"method": "rler"}, judge=per_criterion)["judge"] == GRADING * 12
    calls = planned({"method": "static"}, reference_judge={"frac": 0.1})
    assert calls == {"judge": GRADING, "writer": 0, "reference judge": GRADING // 10}


# ---------------------------------------------------------------------- places and needs
def test_control_workers_and_the_reference_judge_have_places_of_their_own() -> None:
    config = make_config(
        evolution={"method": "online_rubrics", "online": {"control_workers": 2}},
        rollout={"num_workers": 1, "num_cpus": 3, "num_gpus": 1},
        reference_judge={"num_replicas": 1, "num_cpus": 2},
    )
    bundles = placement_bundles(config)
    assert [b.name for b in bundles] == [
        "PolicyLearner rank 0",
        "RolloutWorker 0",
        "ControlWorker 0",
        "ControlWorker 1",
    ]
    assert {(b.num_cpus, b.num_gpus) for b in bundles[1:]} == {(3, 1)}
    assert [b.name for b in replica_bundles(config)] == [
        "Judge replica 0",
        "RubricWriter replica 0",
        "ReferenceJudge replica 0",
    ]
    assert len(placement_bundles(make_config(evolution={"method": "care"}))) == 2


@pytest.mark.parametrize(
    "evolution",
    [
        {"method": "rler"},
        {"method": "online_rubrics"},
        {"method": "mpo"},
        {"method": "rare", "scope": "task"},
    ],
)
def test_methods_that_code_cannot_write_for_want_a_model(evolution: dict[str, object]) -> None:
    data = RunData(train=(), eval=(), fingerprint="f")
    found = [p for p in missing(make_config(evolution=evolution), data) if "writer.backend" in p]
    assert found, evolution
    assert "wanted a model: code cannot write these criteria" in found[0]
    config = make_config(evolution=evolution, writer={"backend": "vllm", "model": "hub/name"})
    assert not [p for p in missing(config, data) if "writer.backend" in p]


def test_methods_that_code_can_write_for_want_nothing_more() -> None:
    data = RunData(train=(), eval=(), fingerprint="f")
    for method in ("static", "care", "rare", "ratchet"):
        found = missing(make_config(evolution={"method": method}), data)
        assert not [p for p in found if "writer" in p], method


def test_the_reference_judge_needs_its_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTHER_KEY", raising=False)
    reference = {"backend": "openai", "model": "m", "api_key_env": "OTHER_KEY"}
    data = RunData(train=(), eval=(), fingerprint="f")
    found = missing(make_config(reference_judge=reference), data)
    assert any("got reference_judge.backend=openai without a key" in p for p in found)


def test_an_address_whose_key_variable_is_named_needs_that_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTHER_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    own = {"backend": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    data = RunData(train=(), eval=(), fingerprint="f")
    assert not [p for p in missing(make_config(judge=own), data) if "key" in p]
    found = missing(make_config(judge=own | {"api_key_env": "OTHER_KEY"}), data)
    assert any("OTHER_KEY (or judge.api_key_env=OPENAI_API_KEY for an" in p for p in found)
    monkeypatch.setenv("OTHER_KEY", "k")
    assert not missing(make_config(judge=own | {"api_key_env": "OTHER_KEY"}), data)


def test_a_dry_run_names_data_keys_and_gpus_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    changed = [
        "data.train=absent.jsonl",
        "judge.backend=openai",
        "judge.model=m",
        "rollout.num_gpus=1",
        "learner.num_gpus=2",
    ]
    found = plan_text(load_config(str(QUICKSTART), changed)).split("# missing\n")[1].splitlines()
    assert len(found) == 3
    assert "absent.jsonl" in found[0]
    assert "OPENAI_API_KEY" in found[1]
    assert found[2].startswith("got 2 GPUs on this machine, wanted 3")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    text = plan_text(load_config(str(QUICKSTART), changed))
    assert "GPUs on this machine" not in text
