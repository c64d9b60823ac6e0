"""A branch: a run that goes on from another run's checkpoint under a rubric that stays as it is.

RARE appendix B compares two such continuations, one under the old and one under the revised rubric:
both share the checkpoint's weights, optimizer, scheduler, random state and position in the query
stream, and differ by the rubric alone. The method of a branch is ``static``; reward, judge and data
are the config's. Held-out queries keep their initial rubric, so that ``val/*`` compares.
``branch.json`` in the branch's folder says where it came from; a branch that goes on later reads
its rubrics from its own files, and nothing is ever written into the source run's folder.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.rubric_log import RubricLog
from core.config import RunConfig
from core.config_evolution import StaticEvolution, rubric_scope
from core.errors import ConfigError
from core.query import rubric_id
from core.rubric import Rubric
from drivers.checkpoint import (
    Checkpoint,
    check_same_run,
    identity_of,
    latest_checkpoint,
    read_checkpoint,
    whole_checkpoints,
)
from drivers.run_data import RunData
from drivers.run_files import RunFiles, write_json

_KEYWORDS = ("checkpoint", "latest")
_ASKED = ("branch_from", "rubric")
_COPY_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Where a branch starts; ``frozen`` gives it its rubrics."""

    asked: Mapping[str, str]
    """The command's ``branch_from`` (resolved) and ``rubric``."""
    source: Path
    """The source run's folder."""
    start: Checkpoint
    """The source's checkpoint."""
    config: RunConfig
    """The config with a static method."""
    files: RunFiles
    """The branch's own."""
    known: Mapping[str, Any] | None = None
    """What ``branch.json`` says, once the branch has begun."""

    @property
    def text(self) -> str:
        """What a dry run says about it."""
        return (
            f"from {self.start.folder} (step {self.start.position.step}), rubric "
            f"{self.asked['rubric']}, frozen; {self.config.loop.steps - self.start.position.step} "
            "more steps"
        )

    def frozen(self, data: RunData) -> "FrozenBranch":
        """Return the branch with its rubrics; ConfigError when data or version do not fit."""
        check_same_run(
            self.start.identity,
            identity_of(self.config, data.fingerprint),
            of=f"the checkpoint {self.start.folder}",
            remedy="a branch goes on with the data, seed and batch shape of its checkpoint",
        )
        scope = rubric_scope(self.config.evolution)
        ids = list(dict.fromkeys(rubric_id(q, scope) for q in data.train))
        chosen = self._known_rubrics(ids) if self.known else self._asked_rubrics(ids)
        rubrics = {name: Rubric(criteria=r.criteria, caps=r.caps) for name, r in chosen.items()}
        train = tuple(
            q.model_copy(update={"rubric": rubrics[rubric_id(q, scope)]}) for q in data.train
        )
        return FrozenBranch(
            branch=self,
            data=replace(data, train=train, rubrics=rubrics),
            versions={name: (r.version, r.digest()) for name, r in chosen.items()},
        )

    # ------------------------------------------------------------------ rubrics
    def _asked_rubrics(self, ids: list[str]) -> dict[str, Rubric]:
        """Return the rubrics as of the asked version."""
        asked = self.asked["rubric"]
        if asked == "checkpoint":
            path = self.start.folder / "store" / "rubrics.sqlite"
            return {name: found[-1] for name, found in _versions(path, ids).items()}
        histories = _versions(self.source / "rubrics.sqlite", ids)
        if asked == "latest":
            return {name: found[-1] for name, found in histories.items()}
        version = int(asked)
        newest = max(found[-1].version for found in histories.values())
        if version > newest:
            raise ConfigError(
                f"got --rubric {version}, but the newest version of the {len(ids)} rubrics in "
                f"{self.source} is {newest}, wanted a version that one of them has"
            )
        return {name: _at(found, version) for name, found in histories.items()}

    def _known_rubrics(self, ids: list[str]) -> dict[str, Rubric]:
        """Return the rubrics that the branch began with: its own version 0, else the source's."""
        assert self.known is not None
        recorded: dict[str, Any] = self.known["rubrics"]
        if sorted(recorded) != sorted(ids):
            raise ConfigError(
                f"got other rubrics than those of {self.files.branch}, wanted the data and scope "
                "that the branch began with: give them back, or start over with fresh=true"
            )
        if self.files.rubrics.is_file():
            own = _versions(self.files.rubrics, ids, must_have=False)
            found = {name: history[0] for name, history in own.items()}
        else:
            found = {}
        if len(found) < len(ids):  # it was ended before it had registered them
            histories = _versions(self.source / "rubrics.sqlite", ids)
            found = {n: _at(history, recorded[n]["version"]) for n, history in histories.items()}
        for name, rubric in found.items():
            if rubric.digest() != recorded[name]["digest"]:
                raise ConfigError(
                    f"got another rubric {name[:80]!r} than {self.files.branch} names, wanted the "
                    "one that the branch began with: start over with fresh=true"
                )
        return {
            n: r.model_copy(update={"version": recorded[n]["version"]}) for n, r in found.items()
        }


@dataclass(frozen=True, kw_only=True)
class FrozenBranch:
    """A branch with the data it trains on."""

    branch: Branch
    data: RunData
    """The queries, each under its frozen rubric (version 0 of the branch)."""
    versions: Mapping[str, tuple[int, str]]
    """Version in the source run and digest, by rubric id."""

    @property
    def start(self) -> Checkpoint:
        """The checkpoint that the branch's first step follows."""
        return self.branch.start

    def record(self) -> None:
        """Write ``branch.json``, unless the branch has begun before."""
        branch = self.branch
        if branch.known is not None and branch.files.branch.is_file():
            return
        content = {
            "source": str(branch.source),
            "checkpoint": str(branch.start.folder),
            "step": branch.start.position.step,
            "asked": dict(branch.asked),
            "rubrics": {
                name: {"version": version, "digest": digest}
                for name, (version, digest) in self.versions.items()
            },
        }
        write_json(branch.files.branch, content)


# ------------------------------------------------------------------ finding
def find_branch(config: RunConfig, files: RunFiles, branch_from: str, rubric: str) -> Branch:
    """Return where the branch starts; raises ConfigError before anything is spent.

    ``config`` may name any method: a branch is static, with the scope that the method had.
    """
    asked = {"branch_from": str(_resolved(branch_from)), "rubric": rubric}
    if rubric not in _KEYWORDS and not re.fullmatch("[0-9]{1,9}", rubric):
        raise ConfigError(
            f"got --rubric {rubric!r:.60}, wanted a version number, `checkpoint` (as of the "
            "checkpoint) or `latest`"
        )
    known = None if config.fresh else _read_record(files)
    if known is not None:
        source, start = _known_start(files, known, asked)
    else:
        source, start = _asked_start(files, branch_from, is_fresh=config.fresh)
    if start.position.step >= config.loop.steps:
        raise ConfigError(
            f"got loop.steps={config.loop.steps} for a branch from step {start.position.step}, "
            "wanted more: steps count on from the checkpoint"
        )
    return Branch(
        asked=asked,
        source=source,
        start=replace(start, wall_s=0.0),
        config=_static(config),
        files=files,
        known=known,
    )


def check_no_branch(files: RunFiles) -> None:
    """Raise ConfigError when a plain command would go on with a branch."""
    known = _read_record(files)
    if known is not None:
        asked = known["asked"]
        raise ConfigError(
            f"got the run {files.folder}, which is a branch, wanted `--branch-from "
            f"{asked['branch_from']} --rubric {asked['rubric']}` to go on with it: add that, "
            "choose another `name`, or start over with fresh=true"
        )


def _static(config: RunConfig) -> RunConfig:
    if isinstance(config.evolution, StaticEvolution):
        return config
    evolution = StaticEvolution(scope=rubric_scope(config.evolution))
    return config.model_copy(update={"evolution": evolution})


def _asked_start(files: RunFiles, branch_from: str, *, is_fresh: bool) -> tuple[Path, Checkpoint]:
    """Return the source run's folder and its checkpoint."""
    start = _checkpoint(_resolved(branch_from), branch_from)
    source = start.folder.parent.parent
    if source == files.folder.resolve():
        raise ConfigError(
            f"got the branch and its source in one folder ({files.folder}), wanted a name of its "
            "own for the branch: set name=OTHER"
        )
    if not is_fresh and (files.config.exists() or files.checkpoints.exists()):
        raise ConfigError(
            f"got the run {files.folder}, which is there and is no branch, wanted a new run: "
            "choose another `name`, or start over with fresh=true"
        )
    return source, start


def _known_start(
    files: RunFiles, known: Mapping[str, Any], asked: Mapping[str, str]
) -> tuple[Path, Checkpoint]:
    """Return where a branch that has begun once started."""
    if known["asked"] != dict(asked):
        before = known["asked"]
        raise ConfigError(
            f"got --branch-from {asked['branch_from']} --rubric {asked['rubric']}, but "
            f"{files.folder} began as --branch-from {before['branch_from']} --rubric "
            f"{before['rubric']}, wanted the same: give it back, choose another `name`, or start "
            "over with fresh=true"
        )
    own = latest_checkpoint(files.checkpoints)
    if own is None:
        return Path(known["source"]), _checkpoint(Path(known["checkpoint"]), known["checkpoint"])
    # The source may be gone by now: what the branch needs of it is in its own files.
    place = Path(known["checkpoint"])
    position = replace(own.position, step=int(known["step"]))
    return Path(known["source"]), replace(own, folder=place, position=position)


def _resolved(name: str) -> Path:
    """Return the folder that a person named; ConfigError for what no folder can be."""
    try:
        path = Path(name).expanduser().resolve()
        path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"got --branch-from {name[:200]!r}, which cannot be looked at ({what:.100}), wanted a "
            "checkpoint's folder or a run's"
        ) from None
    return path


def _checkpoint(folder: Path, name: str) -> Checkpoint:
    """Return the checkpoint of a checkpoint's folder, or a run's newest one."""
    remedy = "take another checkpoint"
    chosen = [folder] if folder in whole_checkpoints(folder.parent) else []
    chosen = chosen or whole_checkpoints(folder / "checkpoints")
    if chosen and (chosen[-1] / "learner").is_dir():
        return read_checkpoint(chosen[-1], remedy=remedy)
    if chosen:
        got = f"where {chosen[-1]} is without its learner"
    elif (folder / "checkpoints").is_dir():
        got = "a run without a whole checkpoint"
    else:
        got = "a folder without position.json" if folder.is_dir() else "no such folder"
    raise ConfigError(
        f"got --branch-from {name}, {got}, wanted a whole checkpoint "
        "(runs/NAME/checkpoints/step_00010) or the folder of a run that has one"
    )


def _read_record(files: RunFiles) -> dict[str, Any] | None:
    if not files.branch.is_file():
        return None
    try:
        return _checked_record(json.loads(files.branch.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"got {files.branch}, which cannot be read ({error!r:.100}), wanted what the branch "
            "wrote when it began: start over with fresh=true"
        ) from error


def _checked_record(known: dict[str, Any]) -> dict[str, Any]:
    """Return ``branch.json``'s content; raises for another shape."""
    texts = [known["source"], known["checkpoint"], *(known["asked"][k] for k in _ASKED)]
    numbers = [known["step"]]
    for rubric in known["rubrics"].values():
        texts.append(rubric["digest"])
        numbers.append(rubric["version"])
    if not all(isinstance(t, str) for t in texts):
        raise TypeError("a text is missing")
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError("a number is missing")
    return known


# ------------------------------------------------------------------ reading rubrics
def _at(history: list[Rubric], version: int) -> Rubric:
    """Return this version, or the newest where there is none of it yet."""
    return history[min(version, len(history) - 1)]


def _versions(path: Path, ids: list[str], *, must_have: bool = True) -> dict[str, list[Rubric]]:
    """Return all versions of these rubrics, oldest first, from a copy of the file."""
    with tempfile.TemporaryDirectory(prefix="ratchet-branch-") as folder:
        copy = _copied(path, Path(folder))
        try:
            log = RubricLog(copy, is_read_only=True)
        except ConfigError as error:  # a person knows the file, not its copy
            raise ConfigError(str(error).replace(str(copy), str(path))) from None
        with closing(log):
            found = {name: [v.rubric for v in log.history(name)] for name in ids}
    absent = [name for name, versions in found.items() if not versions]
    if absent and must_have:
        raise ConfigError(
            f"got {path} without the rubric {absent[0][:80]!r} ({len(absent)} such in all), wanted "
            "those of the config's queries: give the source run's data and evolution.scope"
        )
    return {name: versions for name, versions in found.items() if versions}


def _copied(path: Path, folder: Path) -> Path:
    """Copy a rubric file with its write-ahead log: to open it in place would write beside it.

    A run that is writing it meanwhile changes one of the two; then they are copied again.
    """
    if not path.is_file():
        raise ConfigError(f"got no file {path}, wanted a run's rubrics.sqlite")
    pair = (path, path.with_name(path.name + "-wal"))
    for _ in range(_COPY_TRIES):
        before = [_state(p) for p in pair]
        for part in pair:
            target = folder / part.name
            target.unlink(missing_ok=True)
            if part.is_file():
                shutil.copyfile(part, target)
        if before == [_state(p) for p in pair]:
            return folder / path.name
    raise ConfigError(
        f"got {path}, which changed while it was read, each of {_COPY_TRIES} times, wanted a "
        "quiet moment: try again, or take --rubric checkpoint"
    )


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
