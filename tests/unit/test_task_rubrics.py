"""Initial rubrics of a run: one a query or one a task, and the universal criteria."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.config import RunConfig
from core.errors import ConfigError
from core.evolution.universal import UNIVERSAL_IDS, with_universal
from core.query import Message, Query, rubric_id
from core.rubric import Criterion, Rubric
from drivers.run_data import load_run_data
from tests.unit.loop_rig import make_config

OWN = [{"id": "c1", "text": "Is short"}]
SHARED = [{"id": "s1", "text": "Moves on", "max": 2}, {"id": "s2", "text": "Ends well"}]


def row(query_id: str, task: str | None = None, **more: Any) -> dict[str, Any]:
    given = {} if task is None else {"task": task}
    message = {"role": "user", "content": f"question {query_id}"}
    return {"id": query_id, "messages": [message], "rubric": OWN, **given, **more}


def run_config(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> RunConfig:
    path = folder / "train.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    data = {"train": str(path)} | sections.pop("data", {})
    sections.setdefault("evolution", {"method": "static", "scope": "task"})
    return make_config(data=data, **sections)


def rubric_file(folder: Path, value: Any = SHARED, name: str = "shared.json") -> str:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return str(folder / name)


# ---------------------------------------------------------------------- ids
def test_a_rubric_is_the_querys_or_the_tasks() -> None:
    query = Query(
        id="q1",
        messages=(Message(role="user", content="x"),),
        rubric=Rubric(criteria=(Criterion(id="c", text="t"),)),
        task="2d",
    )
    assert rubric_id(query, "query") == "q1"
    assert rubric_id(query, "task") == "task:2d"
    with pytest.raises(ConfigError, match=r"got query 'q1' without a task, wanted one"):
        rubric_id(query.model_copy(update={"task": None}), "task")


# ---------------------------------------------------------------------- one rubric a task
def test_queries_of_a_task_that_carry_one_rubric_share_it(tmp_path: Path) -> None:
    data = load_run_data(run_config(tmp_path, [row("a", "2d"), row("b", "3d"), row("c", "2d")]))
    assert sorted(data.rubrics) == ["task:2d", "task:3d"]
    assert data.rubrics["task:2d"].ids == ("c1",)


def test_two_rubrics_in_a_task_are_refused_with_both_queries(tmp_path: Path) -> None:
    rows = [row("a", "2d"), row("b", "2d", rubric=[{"id": "c1", "text": "Is long"}])]
    with pytest.raises(ConfigError, match=r"two rubrics for task '2d', of the queries 'a' and 'b'"):
        load_run_data(run_config(tmp_path, rows))
    by_query = run_config(tmp_path, rows, evolution={"method": "static"})
    assert sorted(load_run_data(by_query).rubrics) == ["a", "b"]


def test_a_file_gives_a_tasks_queries_their_rubric_held_out_ones_too(tmp_path: Path) -> None:
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text(json.dumps(row("e", "2d")))
    given = {"task_rubrics": {"2d": rubric_file(tmp_path)}, "eval": str(held_out)}
    config = run_config(tmp_path, [row("a", "2d"), row("b", "3d"), row("c", "2d")], data=given)
    data = load_run_data(config)
    assert [q.rubric.ids for q in data.train] == [("s1", "s2"), ("c1",), ("s1", "s2")]
    assert data.rubrics["task:2d"] == data.train[0].rubric == data.eval[0].rubric
    assert data.rubrics["task:2d"].total_max == 3


def test_rows_without_a_rubric_take_their_tasks(tmp_path: Path) -> None:
    given = {"task_rubrics": {"2d": rubric_file(tmp_path)}}
    bare = {
        k: v for k, v in row("a", "2d", gold=[{"id": "g", "text": "x"}]).items() if k != "rubric"
    }
    rows = [bare, {"prompt": "write", "task": "2d"}, {"prompt": "draw", "task": "2d"}]
    data = load_run_data(run_config(tmp_path, rows, data=given))
    assert [q.rubric.ids for q in data.train] == [("s1", "s2")] * 3
    assert data.train[0].gold[0].id == "g"
    with pytest.raises(ConfigError, match=r"got no rubric and the task '3d', wanted a rubric in"):
        load_run_data(run_config(tmp_path, [*rows, {"prompt": "x", "task": "3d"}], data=given))
    with pytest.raises(ConfigError, match=r"line 1: no_rubrics"):
        load_run_data(run_config(tmp_path, rows))


def test_the_only_given_task_is_that_of_queries_without_one(tmp_path: Path) -> None:
    given = {"task_rubrics": {"2d": rubric_file(tmp_path)}}
    data = load_run_data(run_config(tmp_path, [row("a"), row("b", "2d")], data=given))
    assert [q.task for q in data.train] == ["2d", "2d"]
    assert list(data.rubrics) == ["task:2d"]


def test_a_query_without_a_task_is_refused_where_it_needs_one(tmp_path: Path) -> None:
    for evolution in ({"method": "static", "scope": "task"}, {"method": "mpo"}):
        config = run_config(tmp_path, [row("a", "2d"), row("b")], evolution=evolution)
        with pytest.raises(ConfigError, match=r"got query 'b' without a task"):
            load_run_data(config)


def test_a_task_that_no_query_has_is_refused(tmp_path: Path) -> None:
    given = {"task_rubrics": {"2dd": rubric_file(tmp_path)}}
    with pytest.raises(ConfigError, match=r"got data.task_rubrics.2dd, but no query .* one of 2d"):
        load_run_data(run_config(tmp_path, [row("a", "2d"), row("b", "2d")], data=given))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "got text that is no JSON"),
        ("[]", "got no list of criteria"),
        ('[{"id": "a"}]', "text: Field required"),
        ('[{"id": "g1", "text": "t"}]', "the gold criterion 'g1', which the rubric of task '2d'"),
        (None, "got no readable file .* wanted a rubric file"),
    ],
)
def test_a_bad_rubric_file_is_one_sentence_that_names_it(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    rows = [row("a", "2d", gold=[{"id": "g1", "text": "Is true"}]), row("b", "2d")]
    config = run_config(tmp_path, rows, data={"task_rubrics": {"2d": str(path)}})
    with pytest.raises(ConfigError, match=message) as caught:
        load_run_data(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("medium", ["2d_animation", "3d_stopmotion", "live_action"])
def test_rares_released_task_rubrics_load_with_their_levels(tmp_path: Path, medium: str) -> None:
    shared = Path(__file__).parents[3] / "shared" / "data" / "rare"
    path = shared / f"task_level_{medium}_r0.json"
    if not path.is_file():
        pytest.skip("the released rubrics are not here")
    given = {"task_rubrics": {medium: str(path)}}
    data = load_run_data(run_config(tmp_path, [row("a"), row("b")], data=given))
    rubric = data.rubrics[f"task:{medium}"]
    assert (len(rubric.criteria), rubric.total_max, rubric.caps) == (6, 12, ())
    assert all(c.levels is not None and sorted(c.levels) == [0, 1, 2] for c in rubric.criteria)
    assert rubric.ids[0] == "c_brief_grounding"


# ---------------------------------------------------------------------- universal criteria
@pytest.mark.parametrize(
    ("weights", "wanted"),
    [((1.0, 1.0), 1.0), ((100.0, 25.0), 100.0), ((75.0, -10.0), 100.0), ((3.0, 1.0), 3.0)],
)
def test_each_universal_criterion_weighs_as_the_most_important_one_can(
    weights: tuple[float, float], wanted: float
) -> None:
    own = tuple(Criterion(id=f"c{i}", text=f"t{i}", weight=w) for i, w in enumerate(weights))
    rubric = with_universal(Rubric(criteria=own), "query 'a'")
    assert rubric.criteria[:2] == own
    added = rubric.criteria[2:]
    assert tuple(c.id for c in added) == UNIVERSAL_IDS
    assert [(c.kind, c.max, c.weight) for c in added] == [("llm", 1, wanted)] * 2
    assert rubric.version == 0


def test_universal_goes_to_training_rubrics_only_and_only_when_it_is_on(tmp_path: Path) -> None:
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text(json.dumps(row("e")))
    for universal in (True, False):
        config = run_config(
            tmp_path,
            [row("a"), row("b")],
            data={"eval": str(held_out)},
            evolution={"method": "static", "universal": universal},
        )
        data = load_run_data(config)
        wanted = ("c1", *UNIVERSAL_IDS) if universal else ("c1",)
        assert [q.rubric.ids for q in data.train] == [wanted] * 2
        assert data.rubrics["a"].ids == wanted
        assert data.eval[0].rubric.ids == ("c1",)


def test_a_query_with_a_universal_id_of_its_own_is_refused(tmp_path: Path) -> None:
    taken = row("a", rubric=[{"id": "universal_2", "text": "t"}])
    evolution = {"method": "static", "universal": True}
    with pytest.raises(ConfigError, match=r"query 'a' with a criterion 'universal_2' of its own"):
        load_run_data(run_config(tmp_path, [taken, row("b")], evolution=evolution))


# ---------------------------------------------------------------------- what is left out
def test_a_query_left_out_without_an_anchor_changes_the_fingerprint(tmp_path: Path) -> None:
    """It changes which query is drawn when, so a checkpoint of the other run does not fit."""
    anchor = {"response": "good"}
    rows = [row("a", anchor=anchor), row("b"), row("c", anchor=anchor)]
    skip = {"missing_anchor": "skip"}
    care = load_run_data(run_config(tmp_path, rows, data=skip, evolution={"method": "care"}))
    static = load_run_data(run_config(tmp_path, rows, data=skip, evolution={"method": "static"}))
    assert [q.id for q in care.train] == ["a", "c"]
    assert care.num_without_anchor == 1
    assert len(static.train) == 3
    assert care.fingerprint != static.fingerprint
