"""Every metric that a run writes stands in the one table of names."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config_served import JudgeConfig, WriterConfig
from core.metrics import METRICS
from core.mismatch import MAXIMA, SUMS, mismatch_metrics
from core.writer_requests import ContrastRequest
from drivers.live_metrics import gauge_name
from drivers.served_clients import ServedJudge, ServedWriter, Watch
from tests.fakes import FakeJudge, FakeWriter
from tests.unit.loop_rig import Rig, make_config

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(
    r"(actor|budget|critic|evolving_rubrics|gold|judge|perf|prompt_length|reference_judge|"
    r"response_length|rollout_corr|timing_s|training|val|writer)/[a-z0-9_]+(/[a-z0-9_]+)*"
)


def literals(folder: str) -> Iterator[tuple[str, str]]:
    """(where, text) of every whole string literal that looks like a metric's name."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in parts:
                continue
            if isinstance(node.value, str) and NAME.fullmatch(node.value):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


@pytest.mark.parametrize("folder", ["core", "actors", "serve", "drivers"])
def test_a_name_in_the_code_is_one_of_the_table(folder: str) -> None:
    known = {*METRICS, *(name.rpartition("/")[0] for name in METRICS)}
    unknown = [(place, name) for place, name in literals(folder) if name not in known]
    assert unknown == []


@pytest.mark.parametrize("is_failing", [False, True])
@pytest.mark.parametrize("method", ["static", "care", "rare", "ratchet"])
async def test_a_step_writes_no_other_names(tmp_path: Path, method: str, is_failing: bool) -> None:
    def reply(request: object) -> str:
        if not isinstance(request, ContrastRequest):
            return "nonsense"
        kept = [c.tagged for c in (*request.satisfied, *request.unsatisfied)]
        new = f"[llm] Names a thing beyond set {len(kept)}"
        return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps([*kept, new])}</FINAL_SET>"

    config = make_config(evolution={"method": method}, loop__steps=2, loop__eval_every=1)
    judge = FakeJudge(failing=is_failing)
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(reply))
    await rig.run()
    names = {name for _, _, metrics in rig.recorder.steps for name in metrics}
    assert names <= set(METRICS)
    assert {"writer/calls", "timing_s/testing"} <= names
    assert ("judge/failed/unavailable" in names) == is_failing
    for _, _, metrics in rig.recorder.steps:  # the kinds make up the rate
        by_kind = sum(n for name, n in metrics.items() if name.startswith("judge/failed/"))
        assert metrics["judge/failed_rate"] == by_kind / metrics["judge/verdicts"]
    assert ("val/reward/mean" in names) != is_failing


def test_the_clients_and_the_learner_write_no_other_names() -> None:
    judge = ServedJudge(None, JudgeConfig(), "j")
    watch = Watch(num_replicas=lambda: 2)
    writer = ServedWriter(None, WriterConfig(), "w", watch=watch)
    reference = ServedJudge(None, JudgeConfig(), "r", prefix="reference_judge", watch=watch)
    assert reference.stats()["reference_judge/num_replicas"] == 2
    for client in (judge, writer, reference):
        client._latencies.append(1.0)
        assert set(client.stats()) <= set(METRICS)
    assert set(mismatch_metrics(dict.fromkeys((*SUMS, *MAXIMA), 1.0))) <= set(METRICS)


def test_every_name_has_a_gauge_name_of_its_own() -> None:
    gauges = {gauge_name(name) for name in METRICS}
    assert len(gauges) == len(METRICS)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in gauges)
