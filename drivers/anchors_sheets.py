"""``ratchet anchors sheets`` and ``labels``: stratified samples for people, and what they say.

A sheet is a CSV file for each rater, with one row a case and a yes/no column a question; its key, a
JSON file beside it, says which case is which and what the validators said, so that people label
without seeing either. A sheet that is there already may hold somebody's work and is never written
over. ``labels`` reads one file a rater; the rater is called as the file is.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.anchors import ASPECTS
from core.errors import ConfigError
from core.label_sheets import (
    COMMENT,
    QUESTIONS,
    Case,
    Sheet,
    anchor_stratum,
    label_table,
    make_sheet,
    read_label,
)
from core.query import Query
from drivers.anchors_text import labels_text
from drivers.anchors_validate import JUDGEMENTS, QUERIES, read_candidates, read_object
from drivers.asking import say
from drivers.csv_sheets import LONGEST_CELL, read_sheet, write_sheet
from drivers.data_files import load_queries
from drivers.jsonl_files import read_rows
from drivers.run_files import write_json

_CASE = "case"


def sheets(args: argparse.Namespace) -> int:
    """Write the sheets of a sample and their key."""
    if args.kind == "adaptive":
        from drivers.decision_cases import decision_cases

        cases = decision_cases(args.source)
    else:
        cases = _anchor_cases(Path(args.source), is_all=args.all)
    sheet = make_sheet(args.kind, cases, args.n, seed=args.seed)
    if len(sheet.cases) < args.n:
        say(f"got {len(cases)} cases for --n {args.n}: all of them are in the sheet")
    paths, key = _paths(Path(args.out), args.raters)
    taken = [p for p in (*paths, key) if p.exists()]
    if taken:
        raise ConfigError(
            f"{taken[0]}: got a file that is there already and may hold labels, wanted a new name "
            "for --out"
        )
    rows = _rows(sheet)
    for path in paths:
        write_sheet(path, [*_columns(sheet)], rows)
    write_json(key, _key_row(sheet, args.seed))
    too_long = sum(len(cell) > LONGEST_CELL for row in rows for cell in row.values())
    if too_long:
        say(f"note: {too_long} cells are longer than Excel shows ({LONGEST_CELL} characters)")
    sys.stdout.write("".join(f"{p}\n" for p in (*paths, key)))
    return 0


def labels(args: argparse.Namespace) -> int:
    """Print what the labels of one or more filled-in sheets come to."""
    files = [Path(name) for name in args.sheets]
    raters = [f.stem for f in files]
    if len(set(raters)) < len(raters):
        raise ConfigError(f"got files called {raters}, wanted a name of its own for each rater's")
    sheet = _read_key(Path(args.key) if args.key else _key_beside(files[0]))
    found = {rater: _read_labels(f, sheet) for rater, f in zip(raters, files, strict=True)}
    table = label_table(sheet, found)
    if args.out:
        write_json(Path(args.out), table)
    text = json.dumps(table, indent=2) if args.json else "\n".join(labels_text(table))
    sys.stdout.write(text + "\n")
    return 0


# ------------------------------------------------------------------ anchors
def _anchor_cases(folder: Path, *, is_all: bool) -> list[Case]:
    """Return the anchors that both validators accepted and training uses, or all candidates."""
    judgements = {row["id"]: row for row in read_rows(folder / JUDGEMENTS)}
    if not judgements:
        raise ConfigError(
            f"got {folder} without {JUDGEMENTS}, wanted a folder that `ratchet anchors validate` "
            "wrote"
        )
    queries = read_candidates(folder) if is_all else load_queries(folder / QUERIES).queries
    unjudged = [q.id for q in queries if q.id not in judgements]
    if unjudged:
        raise ConfigError(
            f"{folder / JUDGEMENTS}: got no judgement of {unjudged[0][:80]!r} ({len(unjudged)} in "
            "all), wanted one of each anchor: run `ratchet anchors validate` again"
        )
    return [_anchor_case(q, judgements[q.id], is_all=is_all) for q in queries]


def _anchor_case(query: Query, judgement: Mapping[str, Any], *, is_all: bool) -> Case:
    assert query.anchor is not None, query.id
    together = {"both_accept": True, "both_reject": False}
    stratum = anchor_stratum(query)
    return Case(
        id=query.id,
        stratum=f"{judgement['outcome']}: {stratum}" if is_all else stratum,
        shown={
            "request": query.prompt_text,
            "criteria": "\n".join(
                f"{n}. {'AVOID: ' if c.is_penalty else ''}{c.text}"
                for n, c in enumerate(query.rubric.criteria, start=1)
            ),
            "answer": query.anchor.response,
        },
        verdicts={aspect: together.get(judgement["by_aspect"][aspect]) for aspect in ASPECTS},
    )


# ------------------------------------------------------------------ sheets and their key
def _columns(sheet: Sheet) -> list[str]:
    first = next(iter(sheet.cases.values()))
    return [_CASE, *first.shown, *QUESTIONS[sheet.kind].values(), COMMENT]


def _rows(sheet: Sheet) -> list[dict[str, str]]:
    blank = dict.fromkeys((*QUESTIONS[sheet.kind].values(), COMMENT), "")
    return [{_CASE: name, **case.shown, **blank} for name, case in sheet.cases.items()]


def _paths(out: Path, num_raters: int) -> tuple[list[Path], Path]:
    key = out.with_suffix(".key.json")
    if num_raters == 1:
        return [out], key
    return [out.with_suffix(f".{n}{out.suffix}") for n in range(1, num_raters + 1)], key


def _key_beside(path: Path) -> Path:
    """Return the key of ``sheet.csv``, and of ``sheet.1.csv``."""
    for key in (path.with_suffix(".key.json"), path.with_suffix("").with_suffix(".key.json")):
        if key.is_file():
            return key
    raise ConfigError(
        f"got no {path.with_suffix('.key.json')} beside the sheet, wanted the key that was written "
        "with it: give --key FILE"
    )


def _key_row(sheet: Sheet, seed: int) -> dict[str, Any]:
    return {
        "kind": sheet.kind,
        "seed": seed,
        "cases": {
            name: {"id": c.id, "stratum": c.stratum, "verdicts": dict(c.verdicts)}
            for name, c in sheet.cases.items()
        },
    }


def _read_key(path: Path) -> Sheet:
    if not path.is_file():
        raise ConfigError(f"{path}: got no such file, wanted the key of the sheets")
    row = read_object(path)
    try:
        kind, cases = row["kind"], row["cases"]
        if kind not in QUESTIONS:
            raise ValueError(f"the kind {kind!r}")
        made = {
            name: Case(id=c["id"], stratum=c["stratum"], shown={}, verdicts=c["verdicts"])
            for name, c in cases.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path}: got {type(error).__name__} ({error}), wanted the key that `ratchet anchors "
            "sheets` wrote"
        ) from error
    return Sheet(kind=kind, cases=made)


def _read_labels(path: Path, sheet: Sheet) -> dict[str, dict[str, bool]]:
    """Return the labels of one rater's file, by case and question."""
    rows = read_sheet(path)
    columns = _question_columns(path, rows, sheet)
    found: dict[str, dict[str, bool]] = {}
    for row in rows:
        name = row.get(_CASE, "").strip()
        if name not in sheet.cases:
            raise ConfigError(f"{path}: got the case {name[:40]!r}, wanted those of the key")
        if name in found:
            raise ConfigError(f"{path}: got {name!r} twice, wanted one row for each case")
        found[name] = _row_labels(path, name, row, columns)
    return found


def _row_labels(
    path: Path, name: str, row: Mapping[str, str], columns: Mapping[str, str]
) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for question, column in columns.items():
        try:
            label = read_label(row.get(column, ""))
        except ValueError as error:
            raise ConfigError(f"{path}, {name}, {question}: {error}") from error
        if label is not None:
            found[question] = label
    return found


def _question_columns(
    path: Path, rows: Sequence[Mapping[str, str]], sheet: Sheet
) -> dict[str, str]:
    """Return each question's column: the one whose heading begins with the same word."""
    there = list(rows[0]) if rows else []
    columns: dict[str, str] = {}
    for question, heading in QUESTIONS[sheet.kind].items():
        word = heading.partition(":")[0]
        match = [c for c in there if c.partition(":")[0].strip().casefold() == word]
        if len(match) != 1:
            raise ConfigError(
                f"{path}: got {len(match)} columns {word!r}, wanted one, as the sheet was written"
            )
        columns[question] = match[0]
    return columns
