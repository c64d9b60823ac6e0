"""The config tree: what is refused, and switches that speak of the same thing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from core.config import RunConfig
from core.config_evolution import CareEvolution, RatchetEvolution

BASE: dict[str, Any] = {
    "name": "run",
    "data": {"train": "queries.jsonl"},
    "policy": {"model": "folder"},
    "loop": {"steps": 1},
}


def config(**changes: Any) -> RunConfig:
    return RunConfig.model_validate({**BASE, **changes})


@pytest.mark.parametrize("method", ["care", "ratchet"])
def test_the_ablation_without_veto_turns_the_veto_of_the_reward_off(method: str) -> None:
    assert config(evolution={"method": method}).reward.veto
    ablated = config(evolution={"method": method, "care": {"veto": False}})
    assert not ablated.reward.veto
    again = RunConfig.model_validate(ablated.model_dump(mode="json"))
    assert again == ablated


def test_turning_the_veto_off_leaves_the_other_reward_options() -> None:
    ablated = config(
        evolution={"method": "care", "care": {"veto": False}}, reward={"weights": "checklist"}
    )
    assert (ablated.reward.weights, ablated.reward.veto) == ("checklist", False)
    assert not config(reward={"veto": False}).reward.veto


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evolution": {"method": "care", "care": {"vetoo": False}}}, "vetoo"),
        ({"evolution": {"method": "care", "care": {"adaptive": False, "chase": False}}}, "both"),
        ({"sampling": {"max_new_tokens": 8192}}, "room for a prompt"),
        ({"learner": {"mini_batches": 9}}, "at most one mini-batch"),
        ({"judge": {"backend": "openai"}}, "without a model"),
        ({"loop": {"steps": True}}, "got steps=true, wanted a number"),
        ({"learner": {"lr": float("inf")}}, "finite number"),
        ({"rollout": {"timeout_s": float("inf")}}, "finite number"),
        ({"rollout": {"logprob_gate": [float("nan"), 1]}}, "finite number"),
        ({"rollout": {"num_gpus": 1.5}}, "wanted a whole number, or a share"),
        ({"learner": {"betas": [0.9, 1.0]}}, "less than 1"),
        ({"loop": {"steps": 1, "max_policy_age": 10**9}}, "less than or equal to 100"),
        ({"seed": 2**31}, "less than 2147483648"),
        ({"rollout": {"num_workers": 10**12}}, "less than or equal to 10000"),
        ({"name": "n" * 101}, "at most 100"),
        ({"judge": {"base_url": "nonsense"}}, "got 'nonsense', wanted an address like"),
        ({"writer": {"base_url": "http://127.0.0.1:99999/v1"}}, "wanted an address like"),
        (
            {"judge": {"backend": "vllm", "model": "m", "num_gpus": 1, "tensor_parallel_size": 2}},
            "got tensor_parallel_size=2 with num_gpus=1, wanted as many GPUs",
        ),
        ({"writer": {"backend": "vllm", "model": "m", "num_gpus": 4}}, "set both to the same"),
    ],
)
def test_a_config_that_cannot_run_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**changes)


def test_only_methods_that_contrast_with_an_anchor_need_one() -> None:
    assert not config().needs_anchor
    assert not config(evolution={"method": "rare"}).needs_anchor
    assert config(evolution={"method": "ratchet"}).needs_anchor
    assert not config(evolution={"method": "care", "care": {"anchor": False}}).needs_anchor


def test_slots_are_one_batch_for_each_version_that_generation_may_run_ahead() -> None:
    assert config(loop={"steps": 1, "groups_per_step": 4}).loop.slots == 4
    ahead = config(loop={"steps": 1, "groups_per_step": 4, "max_policy_age": 2})
    assert ahead.loop.slots == 12


def test_finished_order_is_refused_where_rubrics_evolve() -> None:
    tree = {
        "name": "x",
        "data": {"train": "q"},
        "policy": {"model": "m"},
        "loop": {"steps": 1, "order": "finished"},
    }
    assert RunConfig.model_validate(tree).loop.order == "finished"
    with pytest.raises(ValueError, match=r"got loop\.order=finished .* wanted drawn"):
        RunConfig.model_validate(tree | {"evolution": {"method": "rare"}})


def test_a_key_that_stands_where_its_variable_belongs_is_not_repeated_in_the_message() -> None:
    with pytest.raises(ValidationError) as caught:
        config(judge={"api_key_env": "sk-secret-1234"})
    message = caught.value.errors()[0]["msg"]
    assert "never the key itself" in message
    assert "secret" not in message


@pytest.mark.parametrize("place", ["key:sk-secret@h/v1", "h/v1?key=sk-secret", "h/v1#sk-secret"])
def test_an_address_with_a_key_in_it_is_refused_without_its_text(place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        config(judge={"base_url": f"http://{place}"})
    message = caught.value.errors()[0]["msg"]
    assert "got an address of h with a user" in message
    assert "secret" not in message


def test_an_engine_may_be_split_over_a_replicas_gpus_or_share_one() -> None:
    engine = {"backend": "vllm", "model": "m"}
    for num_gpus, split in ((0, 1), (0.5, 1), (1, 1), (4, 4)):
        judge = {**engine, "num_gpus": num_gpus, "tensor_parallel_size": split}
        assert config(judge=judge).judge.tensor_parallel_size == split


# ------------------------------------------------------------------ the budget
UNPRICED = {"backend": "openai", "model": "m"}
PRICED = {**UNPRICED, "usd_per_million_completion_tokens": 2.0}


@pytest.mark.parametrize("part", ["judge", "reference_judge", "writer"])
def test_a_limit_in_money_needs_prices(part: str) -> None:
    care = {"method": "care"}
    with pytest.raises(ValidationError, match=f"tokens of {part} cost nothing .* or use budget"):
        config(budget={"usd": 5}, evolution=care, **{part: UNPRICED})
    assert config(budget={"usd": 5}, evolution=care, **{part: PRICED}).budget.usd == 5
    assert config(budget={"tokens": 5}, evolution=care, **{part: UNPRICED}).budget.tokens == 5


def test_a_writer_that_is_never_asked_needs_no_prices() -> None:
    fixed = config(budget={"usd": 5}, writer=UNPRICED)
    assert (fixed.has_writer, fixed.budget.usd) == (False, 5)
    assert config(evolution={"method": "rare"}).has_writer


def test_one_key_of_ratchets_gates_or_trigger_leaves_the_others_on() -> None:
    given = {"gates": {"max_active": 20}, "trigger": {"reward_ceiling": 0.8}}
    method = config(evolution={"method": "ratchet", **given}).evolution
    assert isinstance(method, RatchetEvolution)
    gates = method.gates
    assert (gates.anchor_passes, gates.discriminates, gates.not_redundant) == (True, True, True)
    assert (gates.max_active, method.trigger.when) == (20, "signals")
    care = config(evolution={"method": "care", **given}).evolution
    assert isinstance(care, CareEvolution)
    assert (care.gates.anchor_passes, care.trigger.when) == (False, "always")


# ------------------------------------------------------------------ every key acts
def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """The names of all keys of a config's part and of the parts in it."""
    for name, field in model.model_fields.items():
        yield name
        for part in (field.annotation, *get_args(field.annotation)):
            for inner in (part, *get_args(part)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    yield from keys_of(inner)


def test_every_key_is_read_by_the_code() -> None:
    """A key that nothing reads changes nothing, whatever a person sets it to."""
    root = Path(__file__).resolve().parents[2]
    sources = [
        path.read_text(encoding="utf-8")
        for folder in ("core", "actors", "serve", "drivers")
        for path in (root / folder).rglob("*.py")
        if not path.name.startswith("config")
    ]
    read = set(re.findall(r"\.(\w+)", "\n".join(sources)))
    assert {"frac", "similarity", "evidence_steps", "usd"} <= set(keys_of(RunConfig))
    assert set(keys_of(RunConfig)) - read == set()


def test_the_reference_judge_stops_no_run_and_has_no_key_that_says_so() -> None:
    with pytest.raises(ValidationError, match="max_failed_frac"):
        config(reference_judge={**UNPRICED, "max_failed_frac": 0.1})
