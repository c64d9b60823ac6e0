"""``ratchet anchors validate``: two models judge each anchor, and what both accept is kept.

Reads ``candidates.jsonl`` of the folder; writes ``queries.jsonl`` (accepted, to train on),
``held_out.jsonl`` (accepted, never trained on), ``rejected.jsonl`` (all others, with reasons),
``judgements.jsonl`` (what each validator said of each anchor) and ``validation.json`` (the table).
A reply that cannot be read is asked for once more, with the problem told, or with twice the room if
it was cut; after that the anchor is unread: kept by nobody, and counted apart.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.anchors import (
    ASPECTS,
    Judged,
    Objection,
    Split,
    Unread,
    call_again,
    is_cut,
    outcome_table,
    pair_outcome,
    read_judgement,
    roomier,
    split_accepted,
    validation_call,
)
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.formats.native import native_row
from core.model_calls import ModelCall, sampling_of
from core.query import Query
from core.rows import Row, json_line
from drivers.anchors_build import BUILD, CANDIDATES, FAILED
from drivers.anchors_text import validation_text
from drivers.asking import Asker, asking, model_name, say, side_by_side
from drivers.asking_command import Patience, planned, spent_row, told
from drivers.data_files import load_queries
from drivers.gathered import gathered
from drivers.jsonl_files import read_rows, write_whole
from drivers.model_options import model_config
from drivers.run_files import write_json
from serve.prompts import load_prompt

QUERIES = "queries.jsonl"
HELD_OUT = "held_out.jsonl"
REJECTED = "rejected.jsonl"
JUDGEMENTS = "judgements.jsonl"
VALIDATION = "validation.json"

ROLES = ("validator-a", "validator-b")

_ODD = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Validator:
    """One of the two models: its first calls, by key, and the file of its replies."""

    config: ServedModelConfig
    role: str
    calls: Mapping[str, ModelCall]
    replies: Path


def validate(args: argparse.Namespace) -> int:
    """Judge the folder's candidates; 0 when all are judged, 1 when calls failed that may succeed
    later (the files are written for what is known, and a later command completes them)."""
    folder = Path(args.folder)
    configs = _two_models(args)
    queries = read_candidates(folder)
    if not 0 <= args.held_out < len(queries):
        raise ConfigError(
            f"got --held-out {args.held_out} of {len(queries)} candidates, wanted 0 or more, and "
            "fewer than there are"
        )
    template = load_prompt("anchor_validate")
    paths = [folder / "replies" / f"validator_{_file_name(c)}.jsonl" for c in configs]
    validators = [
        _Validator(
            config=config,
            role=role,
            calls={_key(q): validation_call(template, q, sampling_of(config)) for q in queries},
            replies=path,
        )
        for config, role, path in zip(configs, ROLES, paths, strict=True)
    ]
    told([planned(v.role, v.config, v.calls, v.replies) for v in validators])
    if args.dry_run:
        return 0
    judged, spent = asyncio.run(_judge_all(validators, queries))
    return _write(folder, queries, judged, _about(args, folder, configs, spent))


def read_candidates(folder: Path) -> tuple[Query, ...]:
    """Return the queries with anchors that ``build`` wrote; ConfigError when there are none."""
    path = folder / CANDIDATES
    if not path.is_file():
        raise ConfigError(
            f"got {folder} without {CANDIDATES}, wanted a folder that `ratchet anchors build` wrote"
        )
    queries = load_queries(path).queries
    bare = [q.id for q in queries if q.anchor is None]
    if bare:
        raise ConfigError(f"{path}: got query {bare[0][:80]!r} without an anchor, wanted one each")
    return queries


def _two_models(args: argparse.Namespace) -> list[ServedModelConfig]:
    configs = [model_config(args, role) for role in ROLES]
    names = [c.model.strip().casefold() for c in configs]
    if names[0] == names[1]:
        raise ConfigError(
            f"got the model {configs[0].model!r} as both validators, wanted two different ones: "
            "a model agrees with itself, which says nothing"
        )
    return configs


def _file_name(config: ServedModelConfig) -> str:
    """A file for each model, whichever of the two validators it is."""
    digest = hashlib.sha256(model_name(config).encode()).hexdigest()[:8]
    return f"{_ODD.sub('_', config.model)[-60:]}_{digest}"


def _key(query: Query) -> str:
    return f"validate {query.id}"


def _about(
    args: argparse.Namespace,
    folder: Path,
    configs: Sequence[ServedModelConfig],
    spent: Mapping[str, Mapping[str, float | int]],
) -> dict[str, Any]:
    """Return what the table is of; a validator that wrote the anchors itself is named."""
    build = read_object(folder / BUILD)
    names = [model_name(c) for c in configs]
    writer = build.get("writer")
    if writer in names:
        say(f"note: {writer} wrote these anchors and validates them too; another model is better")
    return {
        "writer": writer,
        "validators": dict(zip("ab", names, strict=True)),
        "without_anchor": sum(1 for _ in read_rows(folder / FAILED)),
        "num_held_out": args.held_out,
        "seed": args.seed,
        "spent": dict(spent),
    }


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; empty when there is no file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: got a file that is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: got {type(found).__name__}, wanted a JSON object")
    return found


# ------------------------------------------------------------------ judging
async def _judge_all(
    validators: Sequence[_Validator], queries: Sequence[Query]
) -> tuple[dict[str, tuple[Judged, Judged]], dict[str, dict[str, float | int]]]:
    a, b = validators
    patience = [Patience(role) for role in ROLES]
    async with asking(a.config, a.replies) as first, asking(b.config, b.replies) as second:

        async def one(query: Query) -> tuple[Judged, Judged]:
            said = await gathered(
                _judge(asker, validator.calls, query, patient)
                for asker, validator, patient in zip(
                    (first, second), validators, patience, strict=True
                )
            )
            return said[0], said[1]

        def shown() -> dict[str, str]:
            return {
                f"{name} {what}": value
                for name, asker in (("a", first), ("b", second))
                for what, value in asker.spent().items()
            }

        judged = await side_by_side(queries, one, unit="anchors", shown=shown)
        spent = {"a": spent_row(first, a.replies), "b": spent_row(second, b.replies)}
    return dict(zip([q.id for q in queries], judged, strict=True)), spent


async def _judge(
    asker: Asker, calls: Mapping[str, Any], query: Query, patience: Patience
) -> Judged:
    call = calls[_key(query)]
    reply = await asker.ask(_key(query), call)
    found = read_judgement(reply, query.rubric)
    patience.saw(reply)
    if isinstance(found, Unread) and (reply.failure is None or is_cut(reply)):
        template = load_prompt("anchor_again")
        is_short = is_cut(reply)
        again = roomier(call) if is_short else call_again(template, call, reply.text, found.problem)
        reply = await asker.ask(f"{_key(query)} again", again)
        found = read_judgement(reply, query.rubric)
        patience.saw(reply)
    return found


# ------------------------------------------------------------------ files
def _write(
    folder: Path,
    queries: Sequence[Query],
    judged: Mapping[str, tuple[Judged, Judged]],
    about: Mapping[str, Any],
) -> int:
    outcomes = {i: pair_outcome(a, b) for i, (a, b) in judged.items()}
    accepted = [q for q in queries if outcomes[q.id] == "both_accept"]
    try:
        split = split_accepted(accepted, about["num_held_out"], seed=about["seed"])
    except ValueError as error:
        raise ConfigError(f"{error} (what was answered is kept)") from error
    num_open = sum(any(_is_open(j) for j in pair) for pair in judged.values())
    table = {
        **about,
        **outcome_table(judged),
        "training": len(split.training),
        "held_out": len(split.held_out),
        "same_prompt_as_held_out": len(split.same_prompt),
        "not_answered": num_open,
    }
    _write_lines(folder / JUDGEMENTS, [_judgement_row(i, *pair) for i, pair in judged.items()])
    _write_lines(folder / REJECTED, _rejected_rows(queries, judged, split))
    _write_lines(folder / HELD_OUT, [native_row(q) for q in split.held_out])
    _write_lines(folder / QUERIES, [native_row(q) for q in split.training])
    write_json(folder / VALIDATION, table)
    sys.stdout.write("\n".join(validation_text(table)) + "\n")
    if num_open:
        say(f"{num_open} anchors were not judged: start the same command again to ask for them")
    return 1 if num_open else 0


def _is_open(judged: Judged) -> bool:
    return isinstance(judged, Unread) and judged.is_temporary


def _write_lines(path: Path, rows: Sequence[Row]) -> None:
    write_whole(path, b"".join(json_line(row) for row in rows))


def _judgement_row(name: str, a: Judged, b: Judged) -> Row:
    return {
        "id": name,
        "outcome": pair_outcome(a, b),
        "by_aspect": {aspect: pair_outcome(a, b, aspect) for aspect in ASPECTS},
        "a": _said_row(a),
        "b": _said_row(b),
    }


def _said_row(judged: Judged) -> Row:
    if isinstance(judged, Unread):
        return {"unread": judged.problem}
    return {"accepts": judged.accepts, "objections": [_row(o) for o in judged.objections]}


def _row(objection: Objection) -> Row:
    criterion = objection.criterion_id
    named = {} if criterion is None else {"criterion": criterion}
    return {"aspect": objection.aspect, **named, "why": objection.why}


def _rejected_rows(
    queries: Sequence[Query], judged: Mapping[str, tuple[Judged, Judged]], split: Split
) -> list[Row]:
    same = {q.id for q in split.same_prompt}
    rows: list[Row] = []
    for query in queries:
        outcome = pair_outcome(*judged[query.id])
        if outcome == "both_accept" and query.id not in same:
            continue
        rows.append(
            {
                "id": query.id,
                "reason": "same_prompt_as_held_out" if query.id in same else outcome,
                "a": _said_row(judged[query.id][0]),
                "b": _said_row(judged[query.id][1]),
                "query": native_row(query),
            }
        )
    return rows
