"""Every recipe for two steps: real RubricStore on Ray, real judge and writer on Serve, a script
behind the endpoint that they call, and the numbers of ``recipe_table.py``.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import ray

from core.config import RunConfig
from core.config_served import BudgetConfig, JudgeConfig, WriterConfig
from drivers.config_file import load_config
from drivers.loop import Position, TrainLoop
from drivers.ports import Parts
from drivers.progress import Progress
from drivers.rubric_store_client import start_store
from drivers.run_data import load_run_data
from drivers.serving import start_serving, stop_serving
from tests.fakes import FakeLearner, FakeRecorder
from tests.ray.recipe_table import GROUP_SIZE, NUM_QUERIES, ROWS, STEPS, TASK_ROW, Row
from tests.ray.scripted_world import JUDGE, WRITER, ScriptedPool, ScriptedWorld
from tests.stub_openai import StubOpenAI
from tests.unit.paper_recipes import OFFLINE

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[ScriptedWorld, StubOpenAI]]:
    os.environ["OPENAI_API_KEY"] = "none"
    script = ScriptedWorld()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with StubOpenAI(script.answer) as stub:
            yield script, stub
            asyncio.run(stop_serving("recipes"))
    finally:
        from ray import serve

        serve.shutdown()
        ray.shutdown()


class NoCheckpoints:
    """Two steps need none."""

    async def save(self, position: Position) -> None:
        assert position.step == STEPS


def scaled_down(row: Row, stub: StubOpenAI, queries: Path) -> RunConfig:
    """The recipe, with the test's data, endpoint and size."""
    config = load_config(
        row.recipe,
        [
            f"data.train={queries}",
            "data.eval=null",
            "data.task_rubrics={}",
            "data.max_prompt_tokens=null",
            f"sampling.group_size={GROUP_SIZE}",
            f"loop.steps={STEPS}",
            f"loop.groups_per_step={NUM_QUERIES}",
            "learner.mini_batches=1",
            *(["evolution.online.control_group_size=2"] if "online" in row.recipe else []),
            *row.overrides,
        ],
    )
    endpoint = {"backend": "openai", "base_url": stub.base_url, "timeout_s": 20.0}
    judge = JudgeConfig.model_validate(
        endpoint
        | {
            "model": JUDGE,
            "template": config.judge.template,
            "per_criterion": config.judge.per_criterion,
        }
    )
    served = {
        "name": "recipes",
        "judge": judge,
        "writer": WriterConfig.model_validate(endpoint | {"model": WRITER}),
        "reference_judge": None,
        "budget": BudgetConfig(),
    }
    return config.model_copy(update=served)


def write_queries(path: Path) -> Path:
    rows = [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": f"Question {i}"}],
            "rubric": [
                {"id": "c1", "text": "The answer mentions alpha"},
                {"id": "c2", "text": "The answer mentions beta"},
            ],
            "anchor": {"model": "m", "response": "alpha beta gamma"},
            "task": "t",
        }
        for i in (1, 2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def two_steps(config: RunConfig, folder: Path) -> tuple[FakeRecorder, dict[str, int]]:
    """Run the loop; returns what it recorded and each rubric's version at the end."""
    data = load_run_data(config)
    store = await start_store(config.name, folder / "rubrics.sqlite", rubrics=data.rubrics)
    try:
        served = await start_serving(config)
        recorder = FakeRecorder()
        parts = Parts(
            pool=ScriptedPool(),
            learner=FakeLearner(),
            judge=served.judge,
            writer=served.writer,
            store=store,
            control=ScriptedPool("control"),
        )
        loop = TrainLoop(
            config,
            {q.id: q for q in data.train},
            parts,
            recorder,
            NoCheckpoints(),
            None,
            Progress(STEPS, 0),
        )
        await asyncio.wait_for(loop.run(Position()), 120)
        versions = {key: (await store.current(key)).version for key in data.rubrics}
        return recorder, versions
    finally:
        store.close()


def run_row(
    row: Row, world: tuple[ScriptedWorld, StubOpenAI], folder: Path
) -> tuple[FakeRecorder, dict[str, int]]:
    script, stub = world
    config = scaled_down(row, stub, write_queries(folder / "queries.jsonl"))
    script.start_over(row.script)
    recorder, versions = asyncio.run(two_steps(config, folder))
    assert dict(script.calls) == {
        kind: n
        for kind, n in (("judge", row.judge), ("rescore", row.rescore), ("writer", row.writer))
        if n
    }
    assert set(versions.values()) == {row.version}
    accepted = Counter(e.branch for _, e, _, _ in recorder.edits if e.status == "accepted")
    assert dict(accepted) == dict(row.accepted)
    assert not [e for _, e, _, _ in recorder.edits if e.status in ("failed", "refused")]
    return recorder, versions


def rewards(recorder: FakeRecorder, step: int) -> dict[str, Sequence[float | None]]:
    _, groups, _ = recorder.steps[step - 1]
    return {g.query.id: [r.reward for r in g.rollouts] for g in groups}


def names(row: Row) -> str:
    return "-".join((row.recipe, *(o.split(".")[-1] for o in row.overrides)))


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_two_steps_of_a_recipe_do_what_its_paper_says(
    row: Row, world: tuple[ScriptedWorld, StubOpenAI], tmp_path: Path
) -> None:
    recorder, _ = run_row(row, world, tmp_path)
    for step, wanted in ((1, row.first), (2, row.second)):
        found = rewards(recorder, step)
        assert set(found) == {"q1", "q2"}
        for values in found.values():
            assert values == pytest.approx(list(wanted)), step


def test_a_shared_rubric_is_revised_once_and_rewards_the_next_step(
    world: tuple[ScriptedWorld, StubOpenAI], tmp_path: Path
) -> None:
    recorder, versions = run_row(TASK_ROW, world, tmp_path)
    assert versions == {"task:t": 1}
    five = [1 / 2, 1, 1, 1 / 2, 1 / 2]
    assert rewards(recorder, 1) == {"q1": pytest.approx(five), "q2": pytest.approx(five)}
    without_q1 = [0, 1 / 2, 1 / 2, 0, 0]
    assert rewards(recorder, 2) == {"q1": pytest.approx(five), "q2": pytest.approx(without_q1)}


def test_every_recipe_is_in_the_table() -> None:
    folder = Path(__file__).parents[2] / "drivers" / "configs"
    recipes = {p.stem for p in folder.glob("*.yaml")} - {"quickstart", *OFFLINE}
    assert {row.recipe for row in (*ROWS, TASK_ROW)} == recipes
