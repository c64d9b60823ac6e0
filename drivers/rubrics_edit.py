"""A person's edits of a run's rubrics: roll back, approve, reject.

A rollback is a new version with old criteria; nothing is deleted. Each edit is one transaction of
the rubric file by compare-and-set, and then a line of events.jsonl; doing the same again changes
nothing and puts back a line that a crash in between kept from being written. A person's edit has
the step of the version it was made on, so that a resume keeps it exactly when it keeps that
version; an approved edit's line has the step of the rollouts that it rests on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from actors.rubric_log import APPROVED, RubricLog, RubricVersion
from actors.rubric_waiting import WaitingEdit
from core.errors import ConfigError, RunStopped
from core.records import Commit, EditEvent, EditOrigin, RubricEdit
from core.rows import Row, event_row
from core.rubric import Rubric
from core.rubric_diff import (
    CriterionChange,
    is_same_rubric,
    rollback_edits,
    rolled_back,
    rubric_changes,
)
from drivers.jsonl_files import append_rows
from drivers.rubrics_run import rubric_named, version_named
from drivers.rubrics_text import change_lines, shown, veto_note
from drivers.run_files import RunFiles

_ROLLBACK = "rollback: "
_MAX_TRIES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What an edit command says, and whether everything asked for was done."""

    lines: Sequence[str]
    is_whole: bool = True


# ------------------------------------------------------------------ rolling back
def roll_back(
    files: RunFiles, log: RubricLog, rubric: str | None, to_version: int, reason: str
) -> Done:
    """Make the criteria of an older version current again, as a new version."""
    rubric_id = rubric_named(log, rubric)
    target = version_named(log.history(rubric_id), to_version)
    _restore_lines(files, log)
    for _ in range(_MAX_TRIES):  # a live run may commit in between: then once more, on its version
        current = log.current(rubric_id)
        if is_same_rubric(current, target.rubric):
            return Done(
                lines=[
                    f"rubric {shown(rubric_id)} is as in version {to_version} already (it is at "
                    f"version {current.version}): nothing to do"
                ]
            )
        commit = _rollback(log, rubric_id, current, target, reason)
        if log.commit(commit).status == "applied":
            _append(files, _accepted_rows(commit, commit.step))
            return Done(lines=_rolled_back_lines(log, current, target.version, commit))
    raise RunStopped(
        f"got another version of rubric {rubric_id[:80]!r} at each of {_MAX_TRIES} tries, wanted "
        "one that stays for a moment: the run commits without pause, so try again when it has "
        "stopped"
    )


def _rollback(
    log: RubricLog, rubric_id: str, current: Rubric, target: RubricVersion, reason: str
) -> Commit:
    said = f"back to version {target.version}" + (f": {reason}" if reason else "")
    return Commit(
        query_id=rubric_id,
        from_version=current.version,
        rubric=rolled_back(current, target.rubric),
        edits=rollback_edits(current, target.rubric, said),
        step=log.settled_step(rubric_id, current.version),
        visit=0,
        key=f"{_ROLLBACK}{rubric_id} from {current.version} to {target.version}",
        writer="person",
    )


def _rolled_back_lines(
    log: RubricLog, current: Rubric, to_version: int, commit: Commit
) -> list[str]:
    changes = rubric_changes(current, commit.rubric)
    waiting = [
        e
        for e in log.waiting(commit.query_id)
        if e.status == "waiting" and e.commit.from_version == current.version
    ]
    outdated = f"; {len(waiting)} waiting edits of version {current.version} are outdated now"
    return [
        f"rubric {shown(commit.query_id)} is at version {commit.rubric.version}, with the "
        f"criteria of version {to_version}" + (outdated if waiting else ""),
        *change_lines(changes),
        *veto_note(changes),
    ]


# ------------------------------------------------------------------ edits that wait
def approve(
    files: RunFiles, log: RubricLog, ids: Sequence[int], reason: str, *, is_all: bool
) -> Done:
    """Commit waiting edits, each if its rubric is still at the version it was made from."""
    edits = _chosen(log, ids, is_all=is_all, verb="approve")
    _restore_lines(files, log)
    lines: list[str] = []
    is_whole = True
    for edit in edits:
        changes = _proposed_changes(log, edit)
        decision = log.approve(edit.id, reason)
        name = f"edit {edit.id} of rubric {shown(edit.commit.query_id)}"
        if decision == "done":
            _append(files, _accepted_rows(_committed(log, edit), edit.commit.step))
            lines.append(f"{name} is approved: version {edit.commit.rubric.version}")
            lines += [*change_lines(changes), *veto_note(changes)]
        elif decision == "before":
            lines.append(f"{name} was approved before: nothing to do")
        else:
            is_whole = False
            lines.append(f"{name} is not approved: {_why_not(log, edit, decision)}")
    return Done(lines=lines or ["no edit waits for a person"], is_whole=is_whole)


def reject(files: RunFiles, log: RubricLog, ids: Sequence[int], reason: str) -> Done:
    """Note that waiting edits are not wanted; they stay in the file as provenance."""
    lines: list[str] = []
    is_whole = True
    for edit in _chosen(log, ids, is_all=False, verb="reject"):
        decision = log.reject(edit.id, reason)
        name = f"edit {edit.id} of rubric {shown(edit.commit.query_id)}"
        if decision == "done":
            _append(files, _refused_rows(edit, reason))
            lines.append(f"{name} is rejected")
        elif decision == "before":
            lines.append(f"{name} was rejected before: nothing to do")
        else:
            is_whole = False
            lines.append(f"{name} is not rejected: it was approved before; roll it back instead")
    return Done(lines=lines, is_whole=is_whole)


def _chosen(
    log: RubricLog, ids: Sequence[int], *, is_all: bool, verb: str
) -> tuple[WaitingEdit, ...]:
    edits = {e.id: e for e in log.waiting()}
    waiting = [e for e in edits.values() if e.is_open]
    if is_all:
        return tuple(waiting)
    hint = f"{len(waiting)} wait (`ratchet rubrics waiting RUN` lists them)"
    if not ids:
        raise ConfigError(f"got no edit to {verb}, wanted the number of one: {hint}")
    unknown = [i for i in ids if i not in edits]
    if unknown:
        raise ConfigError(f"got the edit {unknown[0]}, which the run does not have: {hint}")
    return tuple(edits[i] for i in dict.fromkeys(ids))


def _why_not(log: RubricLog, edit: WaitingEdit, decision: str) -> str:
    if decision == "otherwise":
        return "it was rejected before"
    current = log.current(edit.commit.query_id).version
    return (
        f"it was made from version {edit.commit.from_version} and the rubric is at version "
        f"{current} now, so it can no longer be applied; it stays in the file"
    )


def _proposed_changes(log: RubricLog, edit: WaitingEdit) -> tuple[CriterionChange, ...]:
    history = log.history(edit.commit.query_id)
    base = [v.rubric for v in history if v.version == edit.commit.from_version]
    return rubric_changes(base[0], edit.commit.rubric) if base else ()


def _committed(log: RubricLog, edit: WaitingEdit) -> Commit:
    """The commit that an approval made: the proposed one with its edits accepted."""
    made = version_named(log.history(edit.commit.query_id), edit.commit.rubric.version)
    return Commit(
        query_id=made.query_id,
        from_version=edit.commit.from_version,
        rubric=made.rubric,
        edits=made.edits,
        step=made.step,
        visit=made.visit,
        key=made.key,
        seconds=made.seconds,
    )


# ------------------------------------------------------------------ events.jsonl
def _accepted_rows(commit: Commit, step: int) -> list[Row]:
    to_version = commit.rubric.version
    accepted = [e for e in commit.edits if e.status == "accepted"]
    return [event_row(_event(e, commit, step, to_version)) for e in accepted]


def _refused_rows(edit: WaitingEdit, reason: str) -> list[Row]:
    commit = edit.commit
    said = f"rejected by a person: {reason}" if reason else "rejected by a person"
    refused = [replace(e, status="refused", reason=said) for e in commit.edits]
    return [event_row(_event(e, commit, commit.step, commit.from_version)) for e in refused]


def _event(edit: RubricEdit, commit: Commit, step: int, to_version: int) -> EditEvent:
    return EditEvent(
        edit=edit,
        origin=EditOrigin(rubric_id=commit.query_id, step=step),
        from_version=commit.from_version,
        to_version=to_version,
        seconds=commit.seconds,
    )


def _restore_lines(files: RunFiles, log: RubricLog) -> None:
    """Write the lines of a person's earlier edits that a crash kept from being written."""
    own = [v for v in log.edited() if v.key.startswith((APPROVED, _ROLLBACK))]
    if own:
        _append(files, files.missing_edits(own))


def _append(files: RunFiles, rows: Iterable[Row]) -> None:
    """Append lines to events.jsonl, beside a driver that may be writing it."""
    try:
        lock = files.lock()
    except ConfigError:  # a driver writes this run, or may do so on another machine
        append_rows(files.events, rows, is_shared=True)
        return
    with lock:
        append_rows(files.events, rows)
