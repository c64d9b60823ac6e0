"""What the rubric writer says in the recipe tests: one raw reply a kind of request.

Each takes the prompt and answers in the format that its method asks for. They read from it only
what a reply must repeat: the rubric in force, or the task's name.
"""

import json
import re
from typing import Any

from tests.ray.scripted_world import sections

BINARY = "1 = it does; 0 = it does not"


def adaptive(prompt: str) -> str:
    """CARE: the top rollout's `delta` is a hack; forbid it once."""
    return _contrast(prompt, "[Resist] The answer avoids delta")


def chase(prompt: str) -> str:
    """CARE: no hack, and `gamma` is the gap."""
    return _contrast(prompt, "[llm] The answer mentions gamma")


def _contrast(prompt: str, new: str) -> str:
    shown = [
        text
        for label in ("satisfied_criteria", "unsatisfied_criteria")
        for section in sections(prompt, label)
        for text in json.loads(section)
    ]
    kept = shown if new in shown else [*shown, new]
    return f"<ANALYSIS>It says so.</ANALYSIS>\n<FINAL_SET>\n{json.dumps(kept)}\n</FINAL_SET>"


def replacement(prompt: str) -> str:
    """RARE: all rollouts mention `alpha`; ask for `gamma` instead."""
    polarity = re.search(r'Write "(\w+)" as polarity', prompt)
    (saturated,) = sections(prompt, "saturated_ids")
    ids = re.findall(r'"(\w+)"', saturated)
    updates = [
        {
            "id": i,
            "polarity": polarity[1] if polarity else "negative",
            "diagnosis": {
                "difference": "one of them has another word",
                "best_rollout_ids": ["R2"],
                "weaker_rollout_ids": ["R0"],
                "learning_direction": "say more",
                "nonredundancy": "nothing asks for that word",
            },
            "rubric": {
                "id": i,
                "check": "The answer mentions gamma",
                "max_points": 1,
                "scoring_rule": BINARY,
            },
        }
        for i in ids
    ]
    return json.dumps({"updates": updates})


def replacement_then_contrast(prompt: str) -> str:
    """Ratchet asks for both kinds."""
    return replacement(prompt) if sections(prompt, "saturated_ids") else adaptive(prompt)


def task_revision(prompt: str) -> str:
    """RARE at task level: all mention `alpha`; ask for `q1`, which only that query's answers have.

    The reply's fixed fields are copied from the form at the prompt's end.
    """
    form = prompt[prompt.rindex('{"task_id":') :]
    task = re.search(r'"task_id": ("[^"]*")', form)
    version = re.search(r'"rubric_version": (\d+)', form)
    step = re.search(r'"generated_at_step": (\d+)', form)
    assert task
    assert version
    assert step
    criteria: list[dict[str, Any]] = [
        {"id": "c1", "check": "The answer mentions q1", "scoring_rule": BINARY, "max_points": 1},
        {"id": "c2", "check": "The answer mentions beta", "scoring_rule": BINARY, "max_points": 1},
    ]
    return json.dumps(
        {
            "task_id": json.loads(task[1]),
            "rubric_version": int(version[1]),
            "generated_at_step": int(step[1]),
            "generated_from_trigger": "scheduled_recent_rollouts",
            "diagnosis": {
                "mastered": "alpha",
                "unreachable_now": "none",
                "current_frontier": "q1",
                "rationale": "all mention alpha",
            },
            "criteria": criteria,
        }
    )


def pool(prompt: str) -> str:
    """RLER: on the first visit `gamma`, which tells the answers apart, and `by`, which does not."""
    return _pool(prompt, negative=[{"description": "The answer mentions by", "title": "by"}])


def positive_pool(prompt: str) -> str:
    """RLER as RARE adapts it: all criteria are positive."""
    return _pool(prompt, positive=[{"description": "The answer mentions by", "title": "by"}])


def _pool(prompt: str, **more: list[dict[str, str]]) -> str:
    gamma = {"description": "The answer mentions gamma", "title": "gamma"}
    is_first = "mentions gamma" not in prompt
    return json.dumps(
        {
            "question": "q",
            "positive_rubrics": [gamma, *more.get("positive", [])] if is_first else [],
            "negative_rubrics": more.get("negative", []) if is_first else [],
        }
    )


def pair_or_merge(prompt: str) -> str:
    """Online Rubrics: each pair finds `gamma`, and the merge makes one of them."""
    new = {"criterion": "The answer mentions gamma", "weight": 2}
    if "new_criteria" in prompt:
        return json.dumps({"analysis": "x", "new_criteria": [{"quote": "alpha", **new}]})
    return json.dumps({"analysis": "x", "final_criteria": [new]})


def meta(prompt: str) -> str:
    """MPO: an analysis, or a rubric of one item with a line for each level."""
    top = re.search(r"scored from 0 to (\d+)", prompt)
    if top is None:
        return "The rubric does not look at gamma."
    lines = "\n".join(f"- ({level}): such an answer" for level in range(int(top[1]) + 1))
    item = f"### gamma\nThe answer mentions gamma.\n{lines}"
    return f"<rubric>\n<item>\n{item}\n</item>\n</rubric>"
