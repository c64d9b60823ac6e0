"""A source run with two checkpoints and edited rubrics, for the tests of branches."""

from dataclasses import dataclass
from pathlib import Path

from actors.rubric_log import RubricLog
from core.config import RunConfig
from core.query import Query
from core.records import Commit
from core.rubric import Criterion, Rubric
from drivers.branch import Branch, FrozenBranch, find_branch
from drivers.checkpoint import Checkpoints, identity_of
from drivers.loop import Position
from drivers.run_data import RunData
from drivers.run_files import RunFiles
from tests.fakes import FakeLearner, FakeStore
from tests.unit.loop_rig import make_config, make_queries

STEP = 3


class LogStore(FakeStore):
    """Snapshots as the RubricStore makes them."""

    def __init__(self, log: RubricLog) -> None:
        super().__init__()
        self.log = log

    async def snapshot(self, folder: str, step: int) -> None:
        self.log.snapshot(folder, step)


@dataclass(kw_only=True)
class Source:
    """A run ``source`` with checkpoints at steps 2 and 3 and rubrics that went on after them."""

    root: Path
    config: RunConfig
    data: RunData

    @property
    def run(self) -> Path:
        return self.root / "source"

    @property
    def checkpoint(self) -> Path:
        return self.run / "checkpoints" / "step_00003"

    def find(self, rubric: str, name: str = "branch", place: Path | None = None) -> Branch:
        config = self.config.model_copy(update={"name": name})
        files = RunFiles(self.root / name)
        return find_branch(config, files, str(place or self.checkpoint), rubric)

    def frozen(self, rubric: str, name: str = "branch", place: Path | None = None) -> FrozenBranch:
        return self.find(rubric, name, place).frozen(self.data)

    def texts(self, frozen: FrozenBranch) -> dict[str, str]:
        return {q.id: q.rubric.criteria[0].text for q in frozen.data.train}


def text_of(name: str, version: int) -> str:
    return f"{name} as of version {version}"


def rubric(name: str, version: int) -> Rubric:
    return Rubric(version=version, criteria=(Criterion(id="c1", text=text_of(name, version)),))


def edit(log: RubricLog, name: str, version: int, step: int) -> None:
    log.commit(
        Commit(
            query_id=name,
            from_version=version - 1,
            rubric=rubric(name, version),
            edits=(),
            step=step,
            visit=0,
            key=f"{name}:{version}",
        )
    )


def source_queries(names: dict[str, str]) -> tuple[Query, ...]:
    """``names`` are rubric ids by query id."""
    return tuple(
        q.model_copy(update={"rubric": rubric(names[q.id], 0), "task": names[q.id][5:]})
        for q in make_queries().values()
    )


async def a_source(root: Path, *, by_task: bool = False) -> Source:
    """q0 (or task:a) has versions 0 to 2, the second made after the checkpoint; q1 (task:b) 0 and
    1; all others 0."""
    first, second = ("task:a", "task:b") if by_task else ("q0", "q1")
    names = {i: (first if i < "q4" else second) if by_task else i for i in make_queries()}
    queries = source_queries(names)
    evolution = {"method": "rare", "scope": "task"} if by_task else {"method": "care"}
    config = make_config(evolution=evolution, name="source")
    rubrics = {names[q.id]: q.rubric for q in queries}
    data = RunData(train=queries, eval=queries[:1], fingerprint="f", rubrics=rubrics)
    files = RunFiles(root / "source")
    log = RubricLog(files.rubrics)
    log.register(rubrics)
    edit(log, first, 1, step=2)
    edit(log, second, 1, step=STEP)
    saver = Checkpoints(
        files.checkpoints,
        FakeLearner(),
        LogStore(log),
        identity_of(config, "f"),
        num_kept=2,
        wall_s=lambda: 50.0,
    )
    await saver.save(Position(step=STEP - 1, next_draw=4))
    await saver.save(Position(step=STEP, next_draw=8, untrained=(6, 7)))
    edit(log, first, 2, step=STEP + 1)
    log.close()
    return Source(root=root, config=config, data=data)


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    found = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in found}


async def begun(source: Source, asked: str = "latest") -> RunFiles:
    """A branch that has a checkpoint of its own."""
    frozen = source.frozen(asked)
    files = frozen.branch.files
    frozen.record()
    log = RubricLog(files.rubrics)
    log.register(frozen.data.rubrics)
    saver = Checkpoints(
        files.checkpoints,
        FakeLearner(),
        LogStore(log),
        identity_of(frozen.branch.config, "f"),
        num_kept=2,
        wall_s=lambda: 9.0,
    )
    await saver.save(Position(step=STEP + 1, next_draw=8))
    log.close()
    return files
