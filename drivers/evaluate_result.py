"""What an evaluation leaves: who was judged by whom on what, outcomes, scores, and a table.

``evaluation.json`` is written before the first call and must fit when the command is given again:
judges are never mixed in one folder. ``outcomes.jsonl`` holds a line a judged task and
``scores.json`` the benchmark's scores; both appear whole.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.rows import Row, json_line
from drivers.evaluate_tasks import Answered
from drivers.jsonl_files import write_whole

IDENTITY = "evaluation.json"
OUTCOMES = "outcomes.jsonl"
SCORES = "scores.json"
_MAX_SHOWN = 40


def claim_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write who is evaluated how; ConfigError when the folder holds another evaluation."""
    path = folder / IDENTITY
    if path.is_file():
        try:
            before = json.loads(path.read_bytes())
        except ValueError as error:
            raise ConfigError(f"{path}: got a file that is no JSON ({error})") from error
        changed = sorted(k for k in {*before, *identity} if before.get(k) != identity.get(k))
        if changed:
            told = ", ".join(f"{k} {before.get(k)!r}, now {identity.get(k)!r}" for k in changed)
            raise ConfigError(
                f"{folder}: got another evaluation ({told[:400]}), wanted the same one to go on "
                "with: give another --out"
            )
        return
    write_whole(path, json.dumps(dict(identity), indent=2, ensure_ascii=False).encode() + b"\n")


def write_result(folder: Path, answered: Sequence[Answered], scores: Mapping[str, Any]) -> None:
    """Write outcomes and scores."""
    outcomes = [a.outcome for a in answered if a.outcome is not None]
    write_whole(folder / OUTCOMES, b"".join(json_line(o) for o in outcomes))
    text = json.dumps(dict(scores), indent=2, ensure_ascii=False)
    write_whole(folder / SCORES, text.encode("utf-8", "backslashreplace") + b"\n")


def scores_table(name: str, scores: Mapping[str, Any]) -> str:
    """Return the scores as lines of ``name  value``, nested names joined by dots."""
    lines = [(key, _shown(value)) for key, value in _flat(scores)]
    width = max((len(key) for key, _ in lines), default=0)
    return "\n".join([name, *(f"  {key:{width}}  {value}" for key, value in lines)])


def trajectory_table(rows: Sequence[Row]) -> str:
    """Return one line a policy: step, headline, interval, tasks."""
    heads = ("policy", "step", "score", "95 %", "n", "unfinished")
    cells = [heads, *(_trajectory_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _trajectory_cells(row: Row) -> tuple[str, ...]:
    main: Mapping[str, Any] = row["main"] or {}
    interval = "" if main.get("low") is None else f"{_shown(main['low'])} to {_shown(main['high'])}"
    return (
        str(row["policy"]),
        "" if row["step"] is None else str(row["step"]),
        _shown(main.get("value")),
        interval,
        str(main.get("n", "")),
        str(row["unfinished"]),
    )


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            found += _flat(inner, f"{name}.")
        else:
            found.append((name, inner))
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def read_outcomes(folder: Path) -> list[Row]:
    """Read what an evaluation left; ConfigError for a folder without one."""
    path = folder / OUTCOMES
    if not path.is_file():
        raise ConfigError(f"got {folder} without {OUTCOMES}, wanted a finished evaluation's folder")
    from drivers.jsonl_files import read_rows

    return list(read_rows(path))
