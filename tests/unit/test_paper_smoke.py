"""The rehearsal's scripted models: marked, of the right form, and nothing for other requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.grading.schema import judge_schema
from core.rubric import Criterion
from drivers.config_file import load_config, load_offline_config
from drivers.paper_smoke.chain import METHODS, chain
from drivers.paper_smoke.replies import reply_to


def request(prompt: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    form = {} if schema is None else {"response_format": {"json_schema": {"schema": schema}}}
    return {"messages": [{"role": "user", "content": prompt}], **form}


def test_the_first_criterion_always_has_full_score_and_reasons_say_scripted() -> None:
    criteria = [Criterion(id=f"c{i}", text=f"criterion {i}", max=2) for i in range(4)]
    schema = judge_schema(criteria, "ids")
    first, second, *_ = schema["properties"]
    replies = [json.loads(reply_to(request(f"response {i}", schema))) for i in range(30)]
    assert {reply[first]["score"] for reply in replies} == {2}
    assert {reply[second]["score"] for reply in replies} == {0, 1, 2}
    assert all("Scripted" in reply[first]["reason"] for reply in replies)


def test_a_request_that_the_chain_does_not_make_is_refused() -> None:
    with pytest.raises(ValueError, match="not of the chain"):
        reply_to(request("What is the capital of France?"))


def test_the_chain_goes_from_data_to_a_report_over_every_method(tmp_path: Path) -> None:
    commands = [link.command for link in chain(tmp_path, "http://127.0.0.1:1/v1")]
    names = [command[0] for command in commands]
    assert names[:5] == ["data", "rubrics", "anchors", "anchors", "offline"]
    assert names[5:] == ["train"] * 3 + ["evaluate"] * 3 + ["analyze", "report"]
    trained = [command for command in commands if command[0] == "train"]
    for method, command in zip(METHODS, trained, strict=True):
        assert f"evolution.method={method}" in command


@pytest.mark.parametrize(("kind", "number"), [("train", 3), ("offline", 1)])
def test_the_chains_configs_are_ones_that_the_commands_take(
    tmp_path: Path, kind: str, number: int
) -> None:
    commands = [link.command for link in chain(tmp_path, "http://127.0.0.1:1/v1")]
    load = load_config if kind == "train" else load_offline_config
    found = [load(c[2], c[3:]) for c in commands if c[:2] == [kind, "--config"]]
    assert len(found) == number
    assert {config.policy.model for config in found} == {"packaged:smollm2-135m-instruct"}
