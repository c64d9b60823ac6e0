"""What ``ratchet rubrics`` shows and does not change: histories, differences, edits that wait."""

import time
from collections import Counter
from collections.abc import Sequence

from actors.rubric_log import RubricLog, RubricVersion
from actors.rubric_waiting import WaitingEdit
from core.rows import Row, criterion_row, edit_row, rubric_row
from core.rubric_diff import CriterionChange, rubric_changes
from drivers.rubrics_run import rubric_named, version_named
from drivers.rubrics_text import change_lines, criterion_text, shown, table

_MAX_UNEDITED = 20
"""More rubrics than this without an edit are counted and not listed."""


# ------------------------------------------------------------------ all rubrics
def all_rubrics(log: RubricLog) -> list[Row]:
    """Return one row a rubric: its versions, vetoes and waiting edits."""
    num_edits = Counter(v.query_id for v in log.edited())
    num_waiting = Counter(e.commit.query_id for e in log.waiting() if e.is_open)
    rows: list[Row] = []
    for rubric_id in log.query_ids():
        current = log.current(rubric_id)
        rows.append(
            {
                "rubric": rubric_id,
                "versions": num_edits[rubric_id] + 1,
                "criteria": len(current.criteria),
                "resist": sum(c.is_resist for c in current.criteria),
                "waiting": num_waiting[rubric_id],
            }
        )
    return rows


def all_rubrics_text(rows: Sequence[Row]) -> list[str]:
    """Return the table of all rubrics, those with most versions first."""
    unedited = [r for r in rows if r["versions"] == 1 and not r["waiting"]]
    hidden = unedited if len(unedited) > _MAX_UNEDITED else []
    listed = [r for r in rows if r not in hidden] if hidden else list(rows)
    listed.sort(key=lambda r: (-r["versions"], -r["waiting"]))
    heads = ("versions", "criteria", "[Resist]", "waiting", "rubric")
    keys = ("versions", "criteria", "resist", "waiting")
    lines = table(heads, [(*(str(r[k]) for k in keys), shown(r["rubric"])) for r in listed])
    if hidden:
        lines.append(f"and {len(hidden)} rubrics without an edit (--json lists them)")
    return lines


# ------------------------------------------------------------------ one rubric
def history_rows(history: Sequence[RubricVersion]) -> list[Row]:
    """Return one row a version, with its criteria, its edits and what changed."""
    rows: list[Row] = []
    for number, version in enumerate(history):
        changes = _changes(history, number)
        rows.append(
            {
                "version": version.version,
                "step": version.step,
                "visit": version.visit,
                "writer": version.writer,
                "key": version.key,
                "seconds": version.seconds,
                "time": version.time,
                "changes": [_change_row(c) for c in changes],
                "edits": [edit_row(e) for e in version.edits],
                **{k: v for k, v in rubric_row(version.rubric).items() if k != "version"},
            }
        )
    return rows


def history_text(history: Sequence[RubricVersion]) -> list[str]:
    """Return a rubric's versions, oldest first, each with what it changed."""
    lines = [f"rubric {shown(history[0].query_id)}, version {history[-1].version}"]
    for number, version in enumerate(history):
        if version.version == 0:
            lines += ["version 0: the rubric that the run began with"]
            lines += [f"    {criterion_text(c)}" for c in version.rubric.criteria]
            continue
        lines.append(f"version {version.version}: {_made_by(version)}")
        lines += change_lines(_changes(history, number))
        lines += [f"    {r}" for r in _reasons(version)]
    return lines


def _made_by(version: RubricVersion) -> str:
    """Say by which method, writer and step a version was made, and when."""
    ways = dict.fromkeys(f"{e.method}/{e.branch}" for e in version.edits if e.status == "accepted")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(version.time))
    by = f" by {shown(version.writer, 60)}" if version.writer not in ("", "person") else ""
    visit = f", visit {version.visit}" if version.visit else ""
    return f"{', '.join(ways) or 'edited'}{by}, step {version.step}{visit}, {when}"


def _reasons(version: RubricVersion) -> list[str]:
    texts = [e.reason for e in version.edits if e.status == "accepted"]
    return [f"reason: {shown(r)}" for r in dict.fromkeys(texts) if r]


def _changes(history: Sequence[RubricVersion], number: int) -> tuple[CriterionChange, ...]:
    if number == 0:
        return ()
    return rubric_changes(history[number - 1].rubric, history[number].rubric)


def _change_row(change: CriterionChange) -> Row:
    return {
        "what": list(change.what),
        "old": None if change.old is None else criterion_row(change.old),
        "new": None if change.new is None else criterion_row(change.new),
    }


# ------------------------------------------------------------------ two versions
def difference(
    log: RubricLog, rubric: str | None, old: int | None, new: int | None
) -> tuple[RubricVersion, RubricVersion]:
    """Return the two versions that a person asked to compare; by default the last two."""
    history = log.history(rubric_named(log, rubric))
    last = history[-1].version
    after = version_named(history, last if new is None else new)
    before = version_named(history, max(0, last - 1) if old is None else old)
    return before, after


def difference_row(before: RubricVersion, after: RubricVersion) -> Row:
    """Return the difference of two versions."""
    changes = rubric_changes(before.rubric, after.rubric)
    return {
        "rubric": after.query_id,
        "from": before.version,
        "to": after.version,
        "changes": [_change_row(c) for c in changes],
    }


def difference_text(before: RubricVersion, after: RubricVersion) -> list[str]:
    """Return the difference of two versions, criterion by criterion."""
    changes = rubric_changes(before.rubric, after.rubric)
    head = f"rubric {shown(after.query_id)}, version {before.version} -> {after.version}"
    return [head, *(change_lines(changes) or ["  no criterion differs"])]


# ------------------------------------------------------------------ edits that wait
def waiting_rows(edits: Sequence[WaitingEdit]) -> list[Row]:
    """Return one row an edit that waits, waited, or can no longer be applied."""
    return [
        {
            "id": edit.id,
            "rubric": edit.commit.query_id,
            "state": _state(edit),
            "from_version": edit.commit.from_version,
            "current_version": edit.current_version,
            "step": edit.commit.step,
            "visit": edit.commit.visit,
            "writer": edit.commit.writer,
            "time": edit.time,
            "reason": edit.decision,
            "edits": [edit_row(e) for e in edit.commit.edits],
            **{k: v for k, v in rubric_row(edit.commit.rubric).items() if k != "version"},
        }
        for edit in edits
    ]


def waiting_text(log: RubricLog, edits: Sequence[WaitingEdit]) -> list[str]:
    """Return each edit with what it would change."""
    lines: list[str] = []
    for edit in edits:
        commit = edit.commit
        ways = dict.fromkeys(f"{e.method}/{e.branch}" for e in commit.edits)
        lines.append(
            f"{edit.id}  {_state(edit)}  rubric {shown(commit.query_id)}, version "
            f"{commit.from_version} -> {commit.rubric.version}, {', '.join(ways)}, step "
            f"{commit.step}"
        )
        base = [v for v in log.history(commit.query_id) if v.version == commit.from_version]
        if base:
            lines += change_lines(rubric_changes(base[0].rubric, commit.rubric))
        lines += [f"    quote: {q}" for q in _quotes(edit)]
        if edit.decision:
            lines.append(f"    reason: {shown(edit.decision)}")
    return lines or ["no edit waits for a person"]


def _quotes(edit: WaitingEdit) -> list[str]:
    return [shown(q, 160) for e in edit.commit.edits for q in e.evidence.quotes][:3]


def _state(edit: WaitingEdit) -> str:
    if edit.status == "waiting" and not edit.is_open:
        return f"outdated (the rubric is at version {edit.current_version})"
    return edit.status
