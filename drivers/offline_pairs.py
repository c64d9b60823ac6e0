"""``ratchet offline pairs QUERIES --out pairs.jsonl``: preference pairs for DPO from checklists.

After RLCF: two responses a prompt from the policy; each item of the query's checklist is scored for
each response, 25 times; the response with the higher weighted score is chosen; the pairs that lead
most on one item are kept. A row is ``{"id", "prompt", "chosen", "rejected", "chosen_score",
"rejected_score", "items"}``, as TRL's DPOTrainer takes it. Beside OUT, in ``OUT_files/``, lie every
reply (so that the same command goes on after a stop), ``scores.jsonl`` with both responses' scores,
and ``dropped.jsonl``. A score that could not be had is missing and makes no pair.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from core.checklist_scores import (
    ITEM_SAMPLING,
    MAX_PROMPT_TOKENS,
    NUM_SAMPLES,
    weights_problem,
)
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.evolution.rare_task import num_tokens
from core.model_calls import Sampling
from core.preference_pairs import KEEP_PERCENT, PreferencePair, pair_row, strongest
from core.query import Query
from core.rows import Row, json_line
from drivers.asking import say, side_by_side
from drivers.asking_command import PlannedCalls, ended, open_askers, spent, told, told_spent
from drivers.data_files import load_queries
from drivers.jsonl_files import write_whole
from drivers.model_options import add_model_options, model_config
from drivers.offline_pairs_scoring import ItemScorer, Scored, score_pair
from drivers.sampled_responses import SampledResponses
from serve.prompts import load_prompt

EXAMPLES = """examples:
  ratchet offline pairs lists/queries.jsonl --out pairs.jsonl \\
      --policy Qwen/Qwen2.5-7B-Instruct --policy-url http://127.0.0.1:8000/v1 \\
      --judge Qwen/Qwen2.5-72B-Instruct --judge-url http://127.0.0.1:8001/v1
  ratchet offline pairs lists/queries.jsonl --out pairs.jsonl ... --dry-run    what it would cost
  ratchet offline pairs lists/queries.jsonl --out pairs.jsonl ... --samples 5 --keep-percent 100
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    return ended(lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet offline pairs",
        description="Make preference pairs from queries with checklists: two responses a prompt, "
        "each item scored for each response by many samples. Asks the judge for 2 x items x "
        "samples numbers a prompt, each in a call of its own. Resumable.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("queries", metavar="QUERIES", help="a query file with checklists")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the pairs (JSONL)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N queries")
    parser.add_argument(
        "--samples",
        type=int,
        default=NUM_SAMPLES,
        metavar="N",
        help=f"scores of each item and response (default: {NUM_SAMPLES})",
    )
    parser.add_argument(
        "--keep-percent",
        type=float,
        default=KEEP_PERCENT,
        metavar="P",
        help=f"of the pairs, those that lead most on one item (default: {KEEP_PERCENT:g})",
    )
    parser.add_argument("--temperature", type=float, default=1.3, help="of the responses (1.3)")
    parser.add_argument("--top-p", type=float, default=0.95, help="of the responses (0.95)")
    parser.add_argument("--max-response-tokens", type=int, default=2048, metavar="N", help="(2048)")
    parser.add_argument("--seed", type=int, default=0, help="of the first response (0)")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be asked and what it costs; ask none"
    )
    add_model_options(parser, "policy", "that answers the prompts")
    add_model_options(parser, "judge", "that scores the items")
    return parser


def _run(args: argparse.Namespace) -> int:
    _check(args)
    policy, judge = model_config(args, "policy"), model_config(args, "judge")
    loaded = load_queries(args.queries, strict=False)
    queries = loaded.queries[: args.limit]
    problems = {q.id: p for q in queries if (p := _problem(q)) is not None}
    usable = [q for q in queries if q.id not in problems]
    if not usable:
        reason = next(iter(problems.values()))
        raise ConfigError(
            f"{args.queries}: got no query with a checklist that gives a reward ({reason}), wanted "
            "criteria with weights above 0"
        )
    told(_plans(args, usable, policy, judge))
    if args.dry_run:
        return 0
    scored = asyncio.run(_scored(args, usable, policy, judge))
    unread: list[Row] = [
        {"row": d.row, "line": d.line, "reason": d.reason, "detail": d.detail}
        for d in loaded.dropped
    ]
    unread += [{"id": i, "reason": "bad_weights", "detail": p} for i, p in problems.items()]
    return _written(args, scored, unread)


def _check(args: argparse.Namespace) -> None:
    for name, low in (("samples", 1), ("max_response_tokens", 1), ("seed", 0), ("limit", 1)):
        value = getattr(args, name)
        if value is not None and value < low:
            flag = name.replace("_", "-")
            raise ConfigError(f"got --{flag} {value}, wanted at least {low}")
    if not 0 < args.keep_percent <= 100:
        raise ConfigError(
            f"got --keep-percent {args.keep_percent:g}, wanted more than 0 and at most 100"
        )


def _problem(query: Query) -> str | None:
    return weights_problem([c.weight for c in query.rubric.criteria])


async def _scored(
    args: argparse.Namespace,
    queries: Sequence[Query],
    policy: ServedModelConfig,
    judge: ServedModelConfig,
) -> list[Scored]:
    sampling = Sampling(
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_response_tokens,
        seed=args.seed,
    )
    roles = [("policy", policy), ("judge", judge)]
    async with AsyncExitStack() as stack:
        askers = await open_askers(stack, roles, _folder(args.out))
        source = SampledResponses([askers["policy"]], sampling, 2)
        scorer = ItemScorer(askers["judge"], load_prompt("pair_item"), args.samples)
        made = await side_by_side(
            queries,
            lambda query: score_pair(query, source, scorer),
            unit="prompts",
            shown=lambda: spent(askers),
        )
        told_spent(askers)
        return made


def _written(args: argparse.Namespace, scored: Sequence[Scored], unread: Sequence[Row]) -> int:
    pairs = [s.pair for s in scored if isinstance(s.pair, PreferencePair)]
    kept = strongest(pairs, args.keep_percent)
    dropped = [*unread, *(s.drop_row() for s in scored if not isinstance(s.pair, PreferencePair))]
    folder = _folder(args.out)
    write_whole(folder / "scores.jsonl", b"".join(json_line(s.scores_row()) for s in scored))
    write_whole(folder / "dropped.jsonl", b"".join(json_line(row) for row in dropped))
    write_whole(args.out, b"".join(json_line(pair_row(p)) for p in kept))
    say(f"{len(pairs)} pairs, {len(kept)} kept: {args.out}")
    if dropped:
        counted = Counter(str(row["reason"]) for row in dropped).most_common()
        reasons = ", ".join(f"{reason} {n}" for reason, n in counted)
        say(f"{len(dropped)} prompts give no pair ({reasons}): {folder / 'dropped.jsonl'}")
    passing = sum(s.is_passing for s in scored)
    if passing:
        say(f"{passing} of them had no answer from an endpoint: start the same command again")
    elif not kept:
        say(f"got no pair to keep of {len(pairs)}, wanted some: give more prompts, or a higher "
            "--keep-percent")  # fmt: skip
    return 1 if passing or not kept else 0


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}_files")


def _plans(
    args: argparse.Namespace,
    queries: Sequence[Query],
    policy: ServedModelConfig,
    judge: ServedModelConfig,
) -> list[PlannedCalls]:
    """Return an upper estimate: every response as long as it may be."""
    asked = [num_tokens(q.prompt_text) for q in queries]
    frame = num_tokens(load_prompt("pair_item"))
    num_items = [len(q.rubric.criteria) for q in queries]
    longest = [min(n + frame + args.max_response_tokens, MAX_PROMPT_TOKENS) for n in asked]
    scores = 2 * args.samples * sum(num_items)
    say(
        f"{len(queries)} prompts, 2 responses each, {sum(num_items)} items in all, "
        f"{args.samples} samples: 2 x items x samples = {scores:,} calls to the judge"
    )
    return [
        PlannedCalls(
            does="responses",
            config=policy,
            calls=2 * len(queries),
            prompt_tokens=2 * sum(asked),
            completion_tokens=2 * len(queries) * args.max_response_tokens,
        ),
        PlannedCalls(
            does="scores",
            config=judge,
            calls=scores,
            prompt_tokens=2
            * args.samples
            * sum(n * length for n, length in zip(num_items, longest, strict=True)),
            completion_tokens=scores * ITEM_SAMPLING.max_tokens,
        ),
    ]
