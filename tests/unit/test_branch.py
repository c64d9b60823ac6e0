"""A branch from a checkpoint: which rubric it freezes, what it shares, what it refuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.rubric_log import RubricLog, RubricVersion
from core.errors import ConfigError
from drivers.branch import FrozenBranch, check_no_branch, find_branch
from drivers.checkpoint import Checkpoint, latest_checkpoint
from drivers.loop import Position
from drivers.ports import Parts
from drivers.run import Run
from drivers.run_files import RunFiles, write_json
from drivers.run_folder import RunFolder
from drivers.run_parts import Started
from tests.fakes import FakeJudge, FakeLearner, FakePool, FakeStore, FakeWriter
from tests.unit.branch_rig import STEP, a_source, begun, edit, everything, rubric, text_of
from tests.unit.loop_rig import Rig, make_config, make_queries

TASK = {"method": "static", "scope": "task"}


# ---------------------------------------------------------------------- which rubric
@pytest.mark.parametrize(
    ("asked", "first", "second"),
    [("0", 0, 0), ("1", 1, 1), ("2", 2, 1), ("checkpoint", 1, 1), ("latest", 2, 1)],
)
async def test_each_rubric_is_taken_at_the_asked_version_or_its_newest(
    tmp_path: Path, asked: str, first: int, second: int
) -> None:
    source = await a_source(tmp_path)
    frozen = source.frozen(asked)
    wanted = {q: text_of(q, 0) for q in make_queries()}
    wanted |= {"q0": text_of("q0", first), "q1": text_of("q1", second)}
    assert source.texts(frozen) == wanted
    assert frozen.versions["q0"] == (first, rubric("q0", first).digest())
    assert {q.rubric.version for q in frozen.data.train} == {0}
    assert frozen.data.rubrics == {q.id: q.rubric for q in frozen.data.train}
    assert frozen.data.eval == source.data.eval, "held-out queries keep their initial rubric"


@pytest.mark.parametrize(("asked", "first", "second"), [("0", 0, 0), ("latest", 2, 1)])
async def test_a_shared_rubric_is_frozen_for_all_queries_of_its_task(
    tmp_path: Path, asked: str, first: int, second: int
) -> None:
    source = await a_source(tmp_path, by_task=True)
    frozen = source.frozen(asked)
    assert set(source.texts(frozen).values()) == {
        text_of("task:a", first),
        text_of("task:b", second),
    }
    assert sorted(frozen.data.rubrics) == ["task:a", "task:b"]
    assert frozen.branch.config.evolution.model_dump()["scope"] == "task"


async def test_a_branch_is_static_and_keeps_the_rest_of_its_config(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    no_veto = make_config(evolution={"method": "care", "care": {"veto": False}}, name="b")
    config = find_branch(no_veto, RunFiles(tmp_path / "b"), str(source.checkpoint), "latest").config
    assert config.evolution.method == "static"
    assert config.reward.veto is False
    assert config == no_veto.model_copy(update={"evolution": config.evolution})


async def test_a_run_means_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    (source.run / "checkpoints" / "step_00009").mkdir()
    branch = source.find("latest", place=source.run)
    assert branch.start.folder == source.checkpoint
    assert branch.start.position == Position(step=3, next_draw=8, untrained=(6, 7))
    assert branch.start.wall_s == 0.0, "the source's seconds are not the branch's"


async def test_reading_a_run_that_is_being_written_changes_nothing_in_its_folder(
    tmp_path: Path,
) -> None:
    source = await a_source(tmp_path)
    live = RubricLog(source.run / "rubrics.sqlite")
    edit(live, "q5", 1, step=STEP + 1)
    before = everything(source.run)
    assert any(name.endswith("-wal") for name in before), "nothing waits in a write-ahead log"
    assert source.texts(source.frozen("latest"))["q5"] == text_of("q5", 1)
    source.frozen("checkpoint")
    assert everything(source.run) == before
    live.close()


# ---------------------------------------------------------------------- what the two share
async def test_two_branches_see_the_same_queries_under_the_same_seeds(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    rigs: list[Rig] = []
    seeds: list[list[tuple[str, int, int, int]]] = []
    judged: list[dict[str, str]] = []
    for name, asked in (("old", "0"), ("new", "latest")):
        frozen = source.frozen(asked, name)
        pool, judge = FakePool(), FakeJudge()
        rig = Rig(frozen.branch.config, tmp_path / name, pool=pool, judge=judge)
        rig.queries = {q.id: q for q in frozen.data.train}
        end = await rig.run(frozen.start.position)
        assert end.step == source.config.loop.steps
        rigs.append(rig)
        seeds.append(sorted((r.query_id, r.visit, r.index, r.seed) for r in pool.requests))
        judged.append({r.query_id: r.criteria[0].text for r in judge.requests})
    old, new = rigs
    # The unfinished draws 6 and 7 of the checkpoint are those of step 4.
    assert [step for step, _, _ in old.recorder.steps] == [4, 5, 6]
    assert old.trained() == new.trained()
    assert seeds[0] == seeds[1]
    newest = {"q0": 2, "q1": 1}
    assert judged[0] == {q: text_of(q, 0) for q in judged[0]}
    assert judged[1] == {q: text_of(q, newest.get(q, 0)) for q in judged[0]}
    assert judged[0] != judged[1], "no query with an edited rubric was drawn: nothing is shown"


# ---------------------------------------------------------------------- going on
async def test_a_begun_branch_goes_on_though_its_source_has_changed_or_gone(
    tmp_path: Path,
) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    before = files.branch.read_bytes()
    log = RubricLog(source.run / "rubrics.sqlite")
    edit(log, "q0", 3, step=STEP + 2)
    log.close()
    for is_gone in (False, True):
        if is_gone:
            shutil.rmtree(source.run)
        frozen = source.frozen("latest")
        assert source.texts(frozen)["q0"] == text_of("q0", 2)
        assert frozen.versions["q0"][0] == 2
        frozen.record()
        assert files.branch.read_bytes() == before
    own = latest_checkpoint(files.checkpoints)
    assert own is not None
    assert own.position.step == STEP + 1


async def test_a_branch_that_was_killed_before_its_first_checkpoint_keeps_its_versions(
    tmp_path: Path,
) -> None:
    source = await a_source(tmp_path)
    source.frozen("latest").record()
    log = RubricLog(source.run / "rubrics.sqlite")
    edit(log, "q0", 3, step=STEP + 2)
    log.close()
    assert source.texts(source.frozen("latest"))["q0"] == text_of("q0", 2)


class RestoredStore(FakeStore):
    """Notes what it was restored from."""

    restored: tuple[str, int] | None = None

    async def restore(self, folder: str, step: int) -> None:
        self.restored = (folder, step)

    async def edited(self) -> tuple[RubricVersion, ...]:
        return ()


async def restored(frozen: FrozenBranch, found: Checkpoint) -> tuple[str, int] | None:
    """What the branch's store is restored from when the run goes on after ``found``."""
    store: Any = RestoredStore()
    parts = Parts(
        pool=FakePool(),
        learner=FakeLearner(),
        judge=FakeJudge(),
        writer=FakeWriter(),
        store=store,
    )
    folder = RunFolder(frozen.branch.files.folder)
    run = Run(frozen.branch.config, frozen.data, folder, 0.0, frozen)
    started = Started(parts=parts, store=store, control=None, live_sources=())
    await run._restore(started, found)
    return store.restored


async def test_a_branch_begins_with_its_own_rubrics_and_goes_on_with_its_own_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def agreed(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("drivers.run.check_logprobs", agreed)
    source = await a_source(tmp_path)
    frozen = source.frozen("latest")
    assert await restored(frozen, frozen.start) == ("", STEP)
    shutil.rmtree(frozen.branch.files.folder)
    files = await begun(source)
    own = latest_checkpoint(files.checkpoints)
    assert own is not None
    assert await restored(source.frozen("latest"), own) == (str(own.folder / "store"), STEP + 1)


async def test_another_command_on_a_begun_branch_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    with pytest.raises(ConfigError, match=r"--rubric 0, but .* began as .* --rubric latest"):
        source.find("0")
    with pytest.raises(ConfigError, match=r"began as --branch-from"):
        source.find("latest", place=source.run / "checkpoints" / "step_00002")
    with pytest.raises(ConfigError, match=r"which is a branch, wanted `--branch-from"):
        check_no_branch(files)
    check_no_branch(RunFiles(source.run))


async def test_fresh_begins_a_branch_again(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    source.config = source.config.model_copy(update={"fresh": True})
    frozen = source.frozen("0")
    RunFolder(files.folder).start_over()
    assert not files.branch.exists()
    frozen.record()
    assert source.texts(frozen)["q0"] == text_of("q0", 0)


async def test_a_branch_is_finished_at_its_last_step_counted_from_the_source(
    tmp_path: Path,
) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    write_json(files.summary, {"steps": 3})
    folder = RunFolder(files.folder)
    assert files.start_step == STEP
    assert folder.is_finished(6)
    assert not folder.is_finished(7)


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("absent", "no such folder, wanted a whole checkpoint"),
        (".", "a folder without position.json"),
        ("source/checkpoints", "a folder without position.json"),
        ("source/checkpoints/cut", "a folder without position.json"),
        ("empty", "a run without a whole checkpoint"),
        ("circle", "cannot be looked at"),
        ("n" * 5000, "cannot be looked at"),
    ],
)
async def test_what_is_no_checkpoint_is_refused(tmp_path: Path, place: str, message: str) -> None:
    source = await a_source(tmp_path)
    (source.run / "checkpoints" / "cut").mkdir()
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ConfigError, match=message) as caught:
        source.find("0", place=tmp_path / place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("asked", ["-1", "1.0", "newest", "", "v1", "9" * 5000])
async def test_a_version_that_is_none_is_refused(tmp_path: Path, asked: str) -> None:
    source = await a_source(tmp_path)
    with pytest.raises(ConfigError, match="wanted a version number, `checkpoint`"):
        source.find(asked)


async def test_a_version_that_no_rubric_has_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    with pytest.raises(ConfigError, match=r"got --rubric 3, but the newest version of .* is 2"):
        source.frozen("3")


async def test_a_branch_in_its_sources_folder_or_in_another_runs_is_refused(
    tmp_path: Path,
) -> None:
    source = await a_source(tmp_path)
    with pytest.raises(ConfigError, match=r"the branch and its source in one folder"):
        source.find("0", name="source")
    RunFiles(tmp_path / "other").write_config("name: other\n")
    with pytest.raises(ConfigError, match=r"which is there and is no branch"):
        source.find("0", name="other")


async def test_a_branch_without_a_further_step_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    loop = source.config.loop.model_copy(update={"steps": STEP})
    source.config = source.config.model_copy(update={"loop": loop})
    with pytest.raises(ConfigError, match=r"got loop.steps=3 for a branch from step 3"):
        source.find("0")


async def test_other_data_or_another_seed_or_scope_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    branch = source.find("0")
    with pytest.raises(
        ConfigError, match=r"got data_fingerprint=g, but the checkpoint .* a branch"
    ):
        branch.frozen(replace(source.data, fingerprint="g"))
    source.config = source.config.model_copy(update={"seed": 5})
    with pytest.raises(ConfigError, match=r"got seed=5, but the checkpoint"):
        source.frozen("0")
    source.config = make_config(evolution=TASK)
    with pytest.raises(ConfigError, match=r"without the rubric 'task:"):
        source.frozen("0")


async def test_a_source_without_rubrics_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    (source.run / "rubrics.sqlite").unlink()
    with pytest.raises(ConfigError, match=r"got no file .*rubrics.sqlite"):
        source.frozen("latest")
    assert source.texts(source.frozen("checkpoint"))["q0"] == text_of("q0", 1)


async def test_a_damaged_record_or_position_is_refused(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    files.branch.write_text("{}")
    with pytest.raises(ConfigError, match=r"branch.json, which cannot be read"):
        source.find("latest")
    (source.checkpoint / "position.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"position.json, which cannot be read .* take another"):
        source.find("latest", name="second")


@pytest.mark.parametrize(
    "change",
    [
        {"asked": []},
        {"asked": {}},
        {"source": 5},
        {"checkpoint": None},
        {"step": "three"},
        {"rubrics": None},
        {"rubrics": {"q0": 5}},
        {"rubrics": {"q0": {"version": -3, "digest": "d"}}},
    ],
)
async def test_a_record_of_another_shape_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    source = await a_source(tmp_path)
    files = await begun(source)
    files.branch.write_text(json.dumps(json.loads(files.branch.read_text()) | change))
    with pytest.raises(ConfigError, match=r"branch.json, which cannot be read"):
        source.find("latest")
    with pytest.raises(ConfigError, match=r"branch.json, which cannot be read"):
        check_no_branch(files)


@pytest.mark.parametrize(
    "change", [{"step": "x"}, {"step": -4}, {"step": 3.5}, {"untrained": "ab"}, {"next_draw": None}]
)
async def test_a_position_that_is_none_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    source = await a_source(tmp_path)
    path = source.checkpoint / "position.json"
    content = json.loads(path.read_text())
    content["position"] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"position.json, which cannot be read"):
        source.find("latest")


async def test_a_checkpoint_that_lost_a_part_is_refused_by_its_own_name(tmp_path: Path) -> None:
    source = await a_source(tmp_path)
    (source.checkpoint / "store" / "rubrics.sqlite").write_bytes(b"no database" * 500)
    with pytest.raises(ConfigError, match=r"step_00003/store/rubrics\.sqlite"):
        source.frozen("checkpoint")
    shutil.rmtree(source.checkpoint / "learner")
    with pytest.raises(ConfigError, match="step_00003 is without its learner"):
        source.find("latest")
