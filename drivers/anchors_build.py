"""``ratchet anchors build``: a model writes an anchor for each query, from prompt and rubric.

The folder then holds ``candidates.jsonl`` (queries with anchors, which ``validate`` judges),
``failed.jsonl`` (queries without one, with reasons) and ``build.json``. Replies are kept under
``replies/``; a command that was stopped goes on without asking twice. A reply that was cut or empty
is asked for once more, with twice the room; after that the query has no anchor.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from core.anchors import Unread, anchor_call, anchor_text, is_cut, roomier
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.formats.native import native_row
from core.model_calls import sampling_of
from core.query import Anchor, Query
from core.rows import json_line
from drivers.asking import Asker, asking, model_name, say, side_by_side
from drivers.asking_command import Patience, planned, spent_row, told
from drivers.data_files import load_queries
from drivers.jsonl_files import write_whole
from drivers.model_options import model_config
from drivers.run_files import write_json
from serve.prompts import load_prompt

CANDIDATES = "candidates.jsonl"
FAILED = "failed.jsonl"
BUILD = "build.json"


def build(args: argparse.Namespace) -> int:
    """Write the anchors; 0 when each query has one or cannot have one, 1 when calls failed that
    may succeed later."""
    config = model_config(args, "writer")
    queries = load_queries(args.queries).queries[: args.limit]
    if not queries:
        raise ConfigError(f"got --limit {args.limit}, wanted at least 1")
    wanted = [q for q in queries if args.replace or q.anchor is None]
    template, out = load_prompt("anchor_write"), Path(args.out)
    replies = out / "replies" / "writer.jsonl"
    sampling = sampling_of(config)
    calls = {_key(q): anchor_call(template, q, sampling) for q in wanted}
    say(f"{len(queries)} queries, {len(queries) - len(wanted)} of them with an anchor already")
    told([planned("writer", config, calls, replies)])
    if args.dry_run:
        return 0
    made, spent = asyncio.run(_write_anchors(config, replies, template, wanted))
    found = dict(zip([q.id for q in wanted], made, strict=True))
    return _write(out, queries, found, {"writer": model_name(config), "spent": spent})


def _key(query: Query) -> str:
    return f"anchor {query.id}"


async def _write_anchors(
    config: ServedModelConfig, replies: Path, template: str, queries: Sequence[Query]
) -> tuple[list[Anchor | Unread], dict[str, float | int]]:
    patience = Patience("writer")
    async with asking(config, replies) as asker:

        async def one(query: Query) -> Anchor | Unread:
            return await _write_anchor(asker, template, query, patience)

        made = await side_by_side(queries, one, unit="anchors", shown=asker.spent)
        return made, spent_row(asker, replies)


async def _write_anchor(
    asker: Asker, template: str, query: Query, patience: Patience
) -> Anchor | Unread:
    call = anchor_call(template, query, sampling_of(asker.config))
    reply = await asker.ask(_key(query), call)
    found = anchor_text(reply)
    patience.saw(reply)
    if isinstance(found, Unread) and (reply.failure is None or is_cut(reply)):
        reply = await asker.ask(f"{_key(query)} again", roomier(call))
        found = anchor_text(reply)
        patience.saw(reply)
    if isinstance(found, Unread):
        return found
    return Anchor(model=reply.model or asker.config.model, response=found)


def _write(
    out: Path,
    queries: Sequence[Query],
    found: dict[str, Anchor | Unread],
    about: dict[str, object],
) -> int:
    """Write the folder's files and tell what came of it."""
    candidates: list[Query] = []
    failed: list[dict[str, object]] = []
    for query in queries:
        made = found.get(query.id, query.anchor)
        if isinstance(made, Unread):
            row = {"id": query.id, "reason": made.problem, "ask_again": made.is_temporary}
            failed.append(row)
        else:
            candidates.append(query.model_copy(update={"anchor": made}))
    num_open = sum(bool(row["ask_again"]) for row in failed)
    write_whole(out / CANDIDATES, b"".join(json_line(native_row(q)) for q in candidates))
    write_whole(out / FAILED, b"".join(json_line(row) for row in failed))
    counts = {
        "queries": len(queries),
        "written": len(found) - len(failed),
        "had_one": len(queries) - len(found),
        "without_anchor": len(failed),
        "not_answered": num_open,
    }
    write_json(out / BUILD, {**about, **counts})
    say(
        f"{out / CANDIDATES}: {len(candidates)} queries with anchors ({counts['written']} written "
        f"by {about['writer']}); {len(failed)} without one ({out / FAILED})"
    )
    if num_open:
        say(f"{num_open} calls were not answered: start the same command again to ask them")
    return 1 if num_open else 0
