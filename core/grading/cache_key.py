"""The key under which a verdict is remembered.

Everything that decides a verdict is in it: the judge's identity (backend, model, sampling,
template), the request, what the criterion asks (text, levels, max, kind, rule) and the response.
Ids, weights and versions are not: a criterion keeps its verdicts when only its id or weight moves,
and a rewritten one never finds the old verdict. The sign of a weight is, where the judge is shown
other levels because of it.
"""

import hashlib
import json

from core.rubric import Criterion


def verdict_key(judge: str, prompt: str, criterion: Criterion, response: str) -> str:
    """Return 64 hex digits; equal only for the same judge, request, criterion and response."""
    levels = criterion.levels
    parts: list[object] = [
        judge,
        prompt,
        criterion.text,
        criterion.kind,
        criterion.max,
        None if levels is None else [[level, levels[level]] for level in sorted(levels)],
        None if criterion.rule is None else criterion.rule.model_dump(mode="json"),
        response,
    ]
    if criterion.is_penalty and levels is None:
        parts.append("penalty")
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
