"""The commands of the rehearsal, in order: from eight prompts to a report.

The policy and its training are real (the packaged 135M model); judge, rubric writer, anchor writer
and validators are scripted, and so no number that comes out means anything. Each entry is exactly
what a person would type for the same step with models of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from drivers.packaged_model import NAME, PREFIX

METHODS = ("static", "care", "rare")
MODEL = PREFIX + NAME
_STEPS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One command of the chain."""

    title: str
    command: Sequence[str]
    """Module below drivers, and its arguments."""


def chain(out: Path, address: str) -> list[Link]:
    """Return the commands; ``address`` is the scripted models' endpoint."""
    prompts = str(files("drivers.configs.data").joinpath("paper_smoke.jsonl"))
    built, anchors = out / "rubrics", out / "anchors"
    queries = str(anchors / "queries.jsonl")
    runs = [str(out / "runs" / method) for method in METHODS]
    return [
        Link(title="data check", command=["data", "check", prompts]),
        Link(
            title="rubrics from contrasted rollouts",
            command=[
                "rubrics", "build", prompts, "--how", "contrast", "--out", str(built),
                "--rollouts", "4", "--max-response-tokens", "64",
                *_policy("policy"), *_scripted("writer", address),
            ],
        ),
        Link(
            title="anchors",
            command=[
                "anchors", "build", str(built / "queries.jsonl"), "--out", str(anchors),
                *_scripted("writer", address),
            ],
        ),
        Link(
            title="validation of the anchors by two models",
            command=[
                "anchors", "validate", str(anchors),
                *_scripted("validator-a", address), *_scripted("validator-b", address),
            ],
        ),
        Link(title="SFT on the anchors", command=["offline", *_sft(out, queries)]),
        *(
            Link(title=f"a {method} run", command=["train", *_train(method, out, queries, address)])
            for method in METHODS
        ),
        *(
            Link(
                title=f"win rate of the {method} run against the anchors",
                command=[
                    "evaluate", "pairwise", "--data", queries, "--run", run,
                    "--out", str(out / "evaluation" / method), "--max-tokens", "48",
                    *_scripted("judge", address),
                ],
            )
            for method, run in zip(METHODS, runs, strict=True)
        ),
        Link(title="analyses", command=["analyze", *runs, "--out", str(out / "analysis")]),
        Link(title="report", command=["report", *runs, "--out", str(out / "report.html")]),
    ]  # fmt: skip


def _scripted(role: str, address: str) -> list[str]:
    return [f"--{role}", f"scripted-{role}", f"--{role}-url", address]


def _policy(role: str) -> list[str]:
    settings = ["max_model_len=1024", "max_tokens=48"]
    return [
        f"--{role}", MODEL, f"--{role}-backend", "vllm",
        *(part for setting in settings for part in (f"--{role}-set", setting)),
    ]  # fmt: skip


def _sft(out: Path, queries: str) -> list[str]:
    return [
        "--config", "sft_anchor", "name=sft_anchor", f"runs_dir={out / 'runs'}",
        f"data.train={queries}", f"policy.model={MODEL}",
        "learner.deepspeed=null",
    ]  # fmt: skip


def _train(method: str, out: Path, queries: str, address: str) -> list[str]:
    served = {
        "backend": "openai",
        "base_url": address,
        "max_tokens": "512",
    }
    return [
        "--config", "quickstart", f"name={method}", f"runs_dir={out / 'runs'}",
        f"evolution.method={method}", f"data.train={queries}", "data.eval=null",
        "loop.eval_every=0", f"loop.keep_checkpoints={2 if method == 'care' else 1}",
        f"loop.steps={_STEPS}", "loop.groups_per_step=3", "loop.checkpoint_every=2",
        "sampling.group_size=4",
        *(
            f"{part}.{key}={value}"
            for part in ("judge", "writer")
            for key, value in {**served, "model": f"scripted-{part}"}.items()
        ),
    ]  # fmt: skip
