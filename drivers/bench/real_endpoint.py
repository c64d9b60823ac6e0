"""What the benchmark's endpoint answers: validly and cheaply, so that only its latency counts.

A judge's request gets a score a criterion, drawn by a hash of prompt and name; a CARE contrast gets
the rubric with one more criterion.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from drivers.scripted_replies import contrast_reply


def reply_to(body: Mapping[str, Any]) -> str:
    """Return the text that answers a request's prompt."""
    prompt = "\n".join(str(m["content"]) for m in body["messages"])
    form = body.get("response_format")
    if form is None:
        new = f"[llm] Tells of detail {_digest(prompt)[:8]} of the scene"
        return contrast_reply(prompt, new, "a gap")
    names = form["json_schema"]["schema"]["properties"]
    return json.dumps({n: {"reason": "as it reads", "score": _bit(prompt, n)} for n in names})


def _bit(prompt: str, name: str) -> int:
    return int(_digest(f"{prompt}\x00{name}"), 16) % 2


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
