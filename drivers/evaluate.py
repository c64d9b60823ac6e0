"""``ratchet evaluate BENCHMARK``: a model, or every checkpoint of a run, on one benchmark.

The model answers, a judge judges, and the benchmark counts by its authors' arithmetic. Answers and
judgements are kept call by call in the output folder, so the same command goes on after a stop
without paying for what is done. Exit code 0 when every task has its outcome, 1 when some call got
no reply (the same command asks for those again), 2 for wrong input.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.benchmarks.base import Benchmark, Task
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.model_calls import ModelCall, Sampling
from core.rows import Row
from drivers.asking import Asker, asking, model_name, say
from drivers.asking_command import PlannedCalls, ended, num_tokens, planned, told
from drivers.benchmark_files import BenchmarkFiles, read_benchmark_files
from drivers.benchmark_registry import BENCHMARKS, build_benchmark
from drivers.evaluate_result import claim_folder, scores_table, trajectory_table, write_result
from drivers.evaluate_targets import Target, ready_model, run_targets
from drivers.evaluate_tasks import Answered, TaskRunner
from drivers.extras import need_extra
from drivers.jsonl_files import read_rows
from drivers.model_options import add_model_options, model_config
from drivers.run_files import RunFiles, write_json

EXAMPLES = """examples:
  ratchet evaluate infobench --data InfoBench.json --out evals/infobench \\
      --model my-policy --model-url http://localhost:8000/v1 --judge gpt-4.1
  ratchet evaluate followbench --data followbench/data --out evals/follow --judge gpt-4.1 \\
      --run runs/mine                      (the final policy and every checkpoint: a trajectory)
  ratchet evaluate arena_hard --data arena-hard-v2.0 --out evals/arena --answers answers.jsonl \\
      --judge gpt-4.1 --set categories=creative_writing
  ratchet evaluate pairwise --data queries.jsonl --out evals/anchors --judge gpt-4.1 \\
      --model runs/mine/policy --model-backend vllm

The same command goes on after a stop. `ratchet evaluate compare A --against B` compares two
evaluations task by task. Benchmarks and their options:
"""


ANSWERS = "answers.jsonl"
JUDGEMENTS = "judgements.jsonl"
_ANY_ANSWER = "an answer"
"""Stands in for the answer where only the number of calls matters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """One evaluation, checked."""

    benchmark: Benchmark
    tasks: tuple[Task, ...]
    dropped: Mapping[str, str]
    files: BenchmarkFiles
    answers: Mapping[str, str]
    judge: ServedModelConfig | None
    sampling: Sampling
    args: argparse.Namespace


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["compare"]:
        from drivers import evaluate_compare

        return evaluate_compare.main(given[1:])
    args = _parser().parse_args(given)
    return ended(lambda: _evaluate(args))


def _evaluate(args: argparse.Namespace) -> int:
    need_extra("eval")
    plan = _plan(args)
    run = RunFiles(args.run) if args.run else None
    targets = _targets(args, run)
    _say_plan(plan, targets, several=run is not None)
    if args.dry_run:
        return 0
    rows = [_evaluate_one(plan, target, run, several=run is not None) for target in targets]
    if run is not None:
        write_json(args.out / "trajectory.json", {"policies": rows})
        sys.stdout.write(trajectory_table(rows) + "\n")
    return 1 if any(row["unfinished"] for row in rows) else 0


def _plan(args: argparse.Namespace) -> _Plan:
    benchmark = build_benchmark(args.benchmark, args.set)
    files = read_benchmark_files(args.data)
    loaded = benchmark.load(files.rows)
    tasks = loaded.tasks[: args.limit] if args.limit else loaded.tasks
    changed: dict[str, Any] = {"seed": args.seed}
    if args.temperature is not None:
        changed["temperature"] = args.temperature
    if args.max_tokens is not None:
        changed["max_tokens"] = args.max_tokens
    return _Plan(
        benchmark=benchmark,
        tasks=tasks,
        dropped={**files.left_out, **loaded.dropped},
        files=files,
        answers=_answers(args.answers) if args.answers else {},
        judge=model_config(args, "judge") if args.judge else None,
        sampling=replace(benchmark.answer_sampling, **changed),
        args=args,
    )


def _answers(path: Path) -> dict[str, str]:
    rows = list(read_rows(path))
    if not rows or not all(isinstance(r.get("response"), str) and "id" in r for r in rows):
        raise ConfigError(f'{path}: got other rows, wanted {{"id": …, "response": "…"}} a line')
    return {str(row["id"]): row["response"] for row in rows}


def _targets(args: argparse.Namespace, run: RunFiles | None) -> list[Target]:
    given = [o for o in ("--run", "--model", "--answers") if getattr(args, o.strip("-"))]
    if len(given) != 1:
        raise ConfigError(f"got {given or 'none'} of --run, --model and --answers, wanted one")
    if args.steps and run is None:
        raise ConfigError("got --steps without --run, wanted the run whose checkpoints they are")
    if run is None:
        model = model_config(args, "model") if args.model else ServedModelConfig()
        return [Target(name="model", step=None, model=model)]
    args.model, args.model_backend = str(run.policy), "vllm"
    return run_targets(run, model_config(args, "model"), _steps(args.steps))


def _steps(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(step) for step in text.split(",")]
    except ValueError:
        raise ConfigError(f"got --steps {text!r}, wanted numbers such as 10,20") from None


def _say_plan(plan: _Plan, targets: Sequence[Target], *, several: bool) -> None:
    judge = model_name(plan.judge) if plan.judge else "none"
    who = "given answers" if plan.args.answers else f"{len(targets)} policies"
    say(f"{plan.benchmark.name}: {len(plan.tasks)} tasks, {who}, judge: {judge}")
    if plan.dropped:
        first = next(iter(plan.dropped.items()))
        say(f"{len(plan.dropped)} rows are no tasks, the first: {first[0]}: {first[1]}")
    for target in targets:
        told(_planned(plan, target, _folder(plan, target, several=several)))


def _planned(plan: _Plan, target: Target, folder: Path) -> list[PlannedCalls]:
    """Return the calls that are known before any reply; later ones depend on what is said."""
    plans: list[PlannedCalls] = []
    if not plan.args.answers:
        calls = {
            f"{task.id}/answer": ModelCall(messages=task.messages, sampling=plan.sampling)
            for task in plan.tasks
        }
        plans.append(planned(f"answers of {target.name}", target.model, calls, folder / ANSWERS))
    if plan.judge is not None:
        firsts = [
            each.call
            for task in plan.tasks
            for each in plan.benchmark.next_calls(task, _ANY_ANSWER, {})
        ]
        answers = len(firsts) * plan.sampling.max_tokens  # each call shows an answer
        plans.append(
            PlannedCalls(
                does=f"judgements of {target.name}, the first ones",
                config=plan.judge,
                calls=len(firsts),
                prompt_tokens=sum(map(num_tokens, firsts)) + answers,
                completion_tokens=sum(call.sampling.max_tokens for call in firsts),
            )
        )
    return plans


def _folder(plan: _Plan, target: Target, *, several: bool) -> Path:
    out: Path = plan.args.out
    return out / target.name if several else out


def _evaluate_one(plan: _Plan, target: Target, run: RunFiles | None, *, several: bool) -> Row:
    folder = _folder(plan, target, several=several)
    folder.mkdir(parents=True, exist_ok=True)
    claim_folder(folder, _identity(plan, target))
    with ready_model(target, run, folder) as model:
        answered = asyncio.run(_run(plan, folder, None if plan.args.answers else model))
    outcomes = [a.outcome for a in answered if a.outcome is not None]
    unfinished = {a.task_id: a.unfinished for a in answered if a.outcome is None}
    scores: dict[str, Any] = plan.benchmark.scores(outcomes) if outcomes else {"main": None}
    write_result(
        folder,
        answered,
        {**scores, "tasks": len(plan.tasks), "unfinished": unfinished, "dropped": plan.dropped},
    )
    sys.stdout.write(scores_table(f"{plan.benchmark.name}, {target.name}", scores) + "\n")
    if unfinished:
        first = next(iter(unfinished.items()))
        say(
            f"{len(unfinished)} of {len(plan.tasks)} tasks have no outcome yet, the first: "
            f"{first[0]}: {first[1]}; the same command goes on"
        )
    sys.stdout.write(f"{folder}\n")
    return {
        "policy": target.name,
        "step": target.step,
        "main": scores.get("main"),
        "unfinished": len(unfinished),
    }


async def _run(plan: _Plan, folder: Path, model: ServedModelConfig | None) -> list[Answered]:
    async with (
        _asking(model, folder / ANSWERS) as answerer,
        _asking(plan.judge, folder / JUDGEMENTS) as judge,
    ):
        runner = TaskRunner(
            benchmark=plan.benchmark,
            answers=plan.answers,
            model=answerer,
            judge=judge,
            sampling=plan.sampling,
            seed=plan.args.seed,
        )
        return await runner.run(plan.tasks)


@contextlib.asynccontextmanager
async def _asking(config: ServedModelConfig | None, path: Path) -> AsyncIterator[Asker | None]:
    if config is None:
        yield None
        return
    async with asking(config, path) as asker:
        yield asker


def _identity(plan: _Plan, target: Target) -> Row:
    """Return what must not change when the command goes on."""
    is_given = bool(plan.args.answers)
    return {
        "benchmark": plan.benchmark.name,
        "options": sorted(plan.args.set),
        "data": dict(plan.files.digests),
        "policy": "given answers" if is_given else model_name(target.model),
        "learner": str(target.learner) if target.learner else None,
        "judge": model_name(plan.judge) if plan.judge else None,
        "seed": plan.args.seed,
        "temperature": plan.sampling.temperature,
        "max_tokens": plan.sampling.max_tokens,
    }


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:16} {entry.summary}" for name, entry in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="ratchet evaluate",
        description="Evaluate a model, or every checkpoint of a run, on one benchmark.",
        epilog=EXAMPLES + listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", choices=sorted(BENCHMARKS))
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="the benchmark's files or folders"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--run", type=Path, help="a run's folder: its checkpoints and final policy")
    parser.add_argument("--steps", help="of --run: only these steps, such as 10,20")
    parser.add_argument("--answers", type=Path, help='answers by file: {"id", "response"} a line')
    parser.add_argument("--limit", type=_positive, help="only the first N tasks")
    parser.add_argument("--dry-run", action="store_true", help="say what it would ask, and end")
    parser.add_argument("--seed", type=int, default=0, help="of answers and judgements")
    parser.add_argument("--temperature", type=float, help="of answers (default: the benchmark's)")
    parser.add_argument("--max-tokens", type=_positive, help="of an answer")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a benchmark's option"
    )
    add_model_options(parser, "model", "that answers")
    add_model_options(parser, "judge", "that judges")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, wanted at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
