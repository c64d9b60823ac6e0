"""The shared odd judge replies, evolution replies and dataset files, by their own grader."""

import importlib.util
import types
from pathlib import Path

import pytest

from tests import cases_adapter

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases")


def _check() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("cases_check", CASES / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_odd_judge_reply_is_read_as_expected() -> None:
    assert _check().judge(str(CASES / "judge_outputs_dev.jsonl"), cases_adapter.parse) == 0


def test_every_odd_evolution_reply_is_read_as_expected() -> None:
    assert _check().evolution(str(CASES / "evolution_outputs_dev.jsonl"), cases_adapter.evolve) == 0


def test_every_odd_dataset_file_is_loaded_as_expected() -> None:
    pytest.importorskip("pyarrow")
    assert _check().datasets(str(CASES / "datasets"), cases_adapter.load) == 0
