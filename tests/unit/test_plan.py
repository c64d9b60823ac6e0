"""What a dry run says: calls, and everything that is missing."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers import packaged_model
from drivers.config_file import load_config
from drivers.plan import plan_text
from drivers.preflight import estimated_calls, load_run_data

QUICKSTART = Path(packaged_model.__file__).parent / "configs" / "quickstart.yaml"


def test_gold_and_held_out_calls_are_counted_before_anything_is_spent() -> None:
    """30 steps of 4 groups of 8: rubric and gold each 960, 120 rescorings, 3 passes of 8 queries
    with a call for the rubric and one for gold."""
    config = load_config(str(QUICKSTART))
    calls = estimated_calls(config, load_run_data(config))
    assert calls["judge"] == 960 * 2 + 120 + 3 * 8 * 2
    assert calls["writer"] == 120 * 2


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
