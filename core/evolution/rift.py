"""Labels a rubric's faults by the eight failure modes of RIFT (arXiv 2604.01375).

Seven are of one criterion, ``missing_criteria`` is of the whole rubric. A model is asked once a
rubric; the descriptions are our own words. Its reply is read tolerantly in form and strictly in
content: a criterion is labelled only by modes of the list, and whatever cannot be read is a failure
with its reason, never "no fault".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evolution.final_items import one_line
from core.evolution.reply_object import field_of, items_of, objects_with, text_of
from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.schema import closed_object
from core.records import FailureKind
from core.rubric import Rubric
from core.templates import fenced, fill, json_text

MODES: Mapping[str, str] = {
    "subjective": "two careful judges could score the same answer differently, because it rests on "
    "taste or on a word without a measure",
    "non_atomic": "it asks for several things at once, so one score cannot say which was met",
    "ungrounded": "it cannot be decided from the task and the answer: it needs facts, a reference "
    "or a context that the judge does not have",
    "misaligned_or_rigid": "it measures something that the task does not ask for, or prescribes "
    "one way so that another good answer fails",
    "hackable": "an answer can meet it without being better: by stating that it does, by length, "
    "by key words, by form without content",
    "low_signal": "nearly every answer meets it, or nearly none does, so it does not tell answers "
    "apart",
    "redundant": "it measures the same as another criterion of the rubric, or follows from it",
}
"""The modes of one criterion, in our words."""

MISSING_CRITERIA = "missing_criteria"

_ALIASES = {
    "nonatomic": "non_atomic",
    "not_atomic": "non_atomic",
    "misaligned": "misaligned_or_rigid",
    "rigid": "misaligned_or_rigid",
    "misaligned_rigid": "misaligned_or_rigid",
    "lowsignal": "low_signal",
}
_NONE = ("", "none", "no_fault", "ok", "n_a")
_MAX_REASON_CHARS = 400
_MAX_RESPONSE_CHARS = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """What a model said about one criterion, or about the whole rubric; or why it is not known."""

    modes: tuple[str, ...] | None
    """None when there is no answer that can be read."""
    reason: str = ""
    failure: FailureKind | None = None

    def __post_init__(self) -> None:
        assert (self.modes is None) == (self.failure is not None), self


@dataclass(frozen=True, kw_only=True, slots=True)
class RubricLabels:
    """The labels of a rubric: one a criterion, and the one of the whole."""

    criteria: Mapping[str, Label]
    """By criterion id."""
    missing: Label


def names_of(rubric: Rubric) -> tuple[str, ...]:
    """Return the short names that stand for the criteria in the prompt."""
    return tuple(f"C{i}" for i in range(1, len(rubric.criteria) + 1))


def label_prompt(
    template: str,
    rubric: Rubric,
    prompts: Sequence[str],
    responses: Sequence[str],
    full_rates: Mapping[str, float | None],
) -> str:
    """Return the request to label a rubric; tasks, answers and criteria stay data."""
    criteria = [
        {
            "name": name,
            "kind": c.kind,
            "text": c.text,
            "max": c.max,
            **({"penalty": "points are taken away where it is true"} if c.is_penalty else {}),
            **({"levels": {str(k): v for k, v in sorted(c.levels.items())}} if c.levels else {}),
            **({} if (rate := full_rates.get(c.id)) is None else {"full_rate": round(rate, 2)}),
        }
        for name, c in zip(names_of(rubric), rubric.criteria, strict=True)
    ]
    shown = [fenced(r[:_MAX_RESPONSE_CHARS], "answer") for r in responses]
    return fill(
        template,
        {
            "prompts": "\n".join(fenced(p, "task") for p in prompts),
            "criteria": json_text(criteria, indent=1),
            "responses": "\n".join(shown) or "(none is shown)",
            "modes": "\n".join(f"{name}: {meaning}." for name, meaning in MODES.items()),
            "names": ", ".join(names_of(rubric)),
        },
    )


def label_schema(rubric: Rubric) -> dict[str, Any]:
    """Return the JSON schema of a reply, for backends that can enforce one."""
    text = {"type": "string"}
    entry = closed_object(
        {
            "name": {"type": "string", "enum": list(names_of(rubric))},
            "why": text,
            "modes": {"type": "array", "items": {"type": "string", "enum": list(MODES)}},
        }
    )
    count = len(rubric.criteria)
    entries = {"type": "array", "items": entry, "minItems": count, "maxItems": count}
    missing = closed_object({"why": text, "present": {"type": "boolean"}})
    return closed_object({"criteria": entries, MISSING_CRITERIA: missing})


def unlabelled(rubric: Rubric, failure: FailureKind, reason: str) -> RubricLabels:
    """Return the labels of a rubric about which nothing is known."""
    label = Label(modes=None, reason=one_line(reason)[:_MAX_REASON_CHARS], failure=failure)
    return RubricLabels(criteria=dict.fromkeys(rubric.ids, label), missing=label)


# ------------------------------------------------------------------ reading
def read_labels(text: str, finish_reason: str, rubric: Rubric) -> RubricLabels:
    """Return the labels of a reply; what it does not say is a failure."""
    holders = objects_with(text, finish_reason, ("criteria", MISSING_CRITERIA))
    if isinstance(holders, str):
        return unlabelled(rubric, "unparsable", holders)
    items = [item for h in holders for item in items_of(h, ("criteria",))]
    said: dict[str, list[Label]] = {}
    for item in items:
        name = text_of(field_of(item, ("name", "id", "criterion"))).casefold()
        said.setdefault(name, []).append(_label(item))
    labels = {
        c.id: _only(said.get(name.casefold()) or said.get(c.id.casefold()) or [])
        for name, c in zip(names_of(rubric), rubric.criteria, strict=True)
    }
    found = [_missing(node) for h in holders if (node := field_of(h, (MISSING_CRITERIA,)))]
    return RubricLabels(criteria=labels, missing=_only(found))


def _only(labels: Sequence[Label]) -> Label:
    """Return the one thing that was said; what contradicts itself says nothing."""
    if not labels:
        return _failed("missing", "the reply says nothing about it")
    if len({(tuple(sorted(x.modes or ())), x.failure) for x in labels}) > 1:
        return _failed("conflict", "the reply labels it in two different ways")
    return labels[0]


def _label(item: Node) -> Label:
    node = field_of(item, ("modes", "faults", "labels", "failure_modes"))
    if node is None:
        return _failed("missing", "the reply has no modes for it")
    words = _words(node)
    if words is None:
        return _failed("unparsable", "got modes that are no list of names")
    modes = [m for w in words if (m := _ALIASES.get(w, w)) not in _NONE]
    unknown = [m for m in modes if m not in MODES]
    if unknown:
        return _failed("unparsable", f"got the mode {unknown[0][:60]!r}, wanted one of the list")
    reason = text_of(field_of(item, ("why", "reason")))[:_MAX_REASON_CHARS]
    return Label(modes=tuple(m for m in MODES if m in modes), reason=reason)


def _words(node: Node) -> list[str] | None:
    """Return the names in a list, in one string, or set to true in an object."""
    if isinstance(node, Scalar):
        is_null = not node.is_string and node.text.strip().casefold() in ("null", "none")
        return [] if is_null else [_word(part) for part in node.text.split(",")]
    if isinstance(node, Obj):
        if not node.is_closed or any(_truth(p.value) is None for p in node.pairs):
            return None
        return [_word(p.key) for p in node.pairs if _truth(p.value)]
    assert isinstance(node, Arr)
    texts = [i.text for i in node.items if isinstance(i, Scalar) and i.is_string]
    return [_word(t) for t in texts] if node.is_closed and len(texts) == len(node.items) else None


def _word(text: str) -> str:
    return "_".join(one_line(text).casefold().replace("-", " ").replace("/", " ").split())


def _truth(node: Node | None) -> bool | None:
    if not isinstance(node, Scalar) or node.is_last:
        return None
    word = node.text.strip().casefold()
    return True if word in ("true", "yes") else False if word in ("false", "no") else None


def _missing(node: Node) -> Label:
    is_plain = isinstance(node, Scalar)
    present = _truth(node if is_plain else field_of(node, ("present", "missing", "value")))
    if present is None:
        return _failed("unparsable", "got no true or false for it")
    reason = "" if is_plain else text_of(field_of(node, ("why", "reason", "what")))
    modes = (MISSING_CRITERIA,) if present else ()
    return Label(modes=modes, reason=reason[:_MAX_REASON_CHARS])


def _failed(kind: FailureKind, reason: str) -> Label:
    return Label(modes=None, reason=reason, failure=kind)
