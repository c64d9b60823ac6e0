"""Replies of a judge that knows each benchmark's form, and the small data of each.

``judge_reply`` is what a well-behaved judge could say; nothing in it depends on the answer, except
that the audit of a script quotes the fixture script.
"""

import re
from pathlib import Path
from typing import Any

from tests.unit.script_audits import SCRIPT, as_reply, perfect

FIXTURES = Path(__file__).parent / "fixtures"

DATA: dict[str, list[str]] = {
    "arena_hard": [
        "arena/question.jsonl",
        "arena/o3-mini-2025-01-31.jsonl",
        "arena/gemini-2.0-flash-001.jsonl",
    ],
    "biggen": ["biggen"],
    "followbench": ["followbench"],
    "healthbench": ["healthbench"],
    "infobench": ["infobench"],
    "pairwise": ["pairwise"],
    "script_metrics": ["script_metrics/queries.jsonl"],
    "writingbench": ["writingbench"],
}
"""Files of each benchmark, below tests/fixtures."""

_REPLIES = {
    "arena_hard": "My own answer is longer. [[B>A]]",
    "biggen": "It does most of what is asked. [RESULT] 4",
    "healthbench": '{"explanation": "It says so.", "criteria_met": true}',
    "infobench": "YES, it does.",
    "pairwise": "The first names more. [[A>B]]",
    "writingbench": '{"score": 7, "reason": "It is to the point."}',
}


def data_of(benchmark: str) -> list[str]:
    """Return the benchmark's data as arguments of a command."""
    return [str(FIXTURES / name) for name in DATA[benchmark]]


def judge_reply(benchmark: str, body: dict[str, Any]) -> str:
    """Return the judge's reply to a request of this benchmark."""
    if benchmark == "followbench":
        prompt = body["messages"][-1]["content"]
        levels = [int(n) for n in re.findall(r"list of (\d+) elements", prompt)]
        return f"Each is met.\n{['YES'] * (levels[-1] if levels else 1)}"
    return as_reply(perfect()) if benchmark == "script_metrics" else _REPLIES[benchmark]


def policy_reply(benchmark: str) -> str:
    """Return an answer that such a judge can have judged."""
    return SCRIPT if benchmark == "script_metrics" else "A boat and a gull met a rope."
