"""From the set a writer gave to the next rubric: which text changed which criterion.

A criterion is kept when its text stands in the set (same kind, same text after normalisation). A
new text that belongs to a missing [llm] criterion rewrites it: the id stays, the kind may become
[Resist] in the adaptive branch, and only a criterion that the top rollout satisfied can be
rewritten there (CARE section 3.4: what is not satisfied cannot be hacked). A penalty (negative
weight) is never rewritten, since a new text says "yes" to what is wanted. Any other new text is
appended. Every other missing criterion is put back and counted, so an edit never loses one.

Refused: changes of [Resist] criteria, both kinds new in one reply, the kind of a branch that is
off, near duplicates, too long texts, and more changes in one reply than are allowed (one, as CARE
asks for: what the analysis names goes first). Beside a real change a slightly miscopied text is
refused too. Rewritten and new criteria are binary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import category

from core.evolution.quotes import quoted
from core.evolution.similarity import (
    REWRITE_SIMILARITY,
    is_near_duplicate,
    normal_text,
    similarity,
)
from core.records import Branch, EditStatus, Evidence, Evolution, RubricEdit
from core.rubric import TAGS, Criterion, CriterionKind, Rubric
from core.writer_requests import ContrastRequest

_BRANCHES: Mapping[CriterionKind, Branch] = {"resist": "adaptive", "llm": "chase"}
_ADDED_ID = re.compile(r"a(\d+)")
_MIN_NAMING_CHARS = 12
"""A shorter quoted fragment does not name a criterion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EditRules:
    """What one reply may change."""

    is_adaptive: bool
    is_chase: bool
    max_new: int
    """Criteria a reply may rewrite or append, together."""
    max_criteria: int
    max_chars: int
    reserved_ids: frozenset[str] = frozenset()
    """Ids that a new criterion must not take: of gold and of the initial rubric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    """A new text of the writer's set."""

    kind: CriterionKind
    text: str

    @property
    def branch(self) -> Branch:
        return _BRANCHES[self.kind]


def main_branch(request: ContrastRequest) -> Branch:
    """Return the branch on which an edit without a change of its own is booked."""
    return "adaptive" if request.is_adaptive else "chase"


def edited_rubric(
    current: Rubric,
    request: ContrastRequest,
    items: Sequence[str],
    rules: EditRules,
    evidence: Evidence,
    method: str,
) -> Evolution:
    """Return the next rubric and one edit for each new text; ``items`` are tagged texts."""
    shown = request.satisfied + request.unsatisfied
    draft = _Draft(current, rules, evidence, method)
    written = {_key(t.kind, t.text): t for t in _usable(map(_parsed, items), draft)}
    shown_keys = {_key(c.kind, c.text) for c in shown}
    missing = [c for c in current.criteria if c in shown and _key(c.kind, c.text) not in written]
    new = [t for key, t in written.items() if key not in shown_keys]
    new = _without_changed_resist(new, missing, draft)
    new = _without_miscopied(new, missing, draft)
    if len({t.kind for t in new}) > 1:
        for text in new:
            draft.refuse(text, "the reply has new criteria of both branches, wanted one branch")
        new = []
    new = _allowed(new, rules, draft)
    satisfied_ids = {c.id for c in request.satisfied}
    targets = [c for c in missing if not c.is_resist and not c.is_penalty]
    named = {c.id for c in targets if _is_named(c, shown, evidence.analysis)}
    pairs = _pairs(new, targets, satisfied_ids, named)
    for text in sorted(new, key=lambda t: t not in pairs or pairs[t].id not in named):
        draft.apply(text, pairs.get(text))
    return draft.evolution(missing, main_branch(request))


class _Draft:
    """The rubric while the texts of one reply are worked in."""

    def __init__(self, current: Rubric, rules: EditRules, evidence: Evidence, method: str) -> None:
        self._current = current
        self._rules = rules
        self._evidence = evidence
        self._method = method
        self._criteria = list(current.criteria)
        self._num_changed = 0
        self._edits: list[RubricEdit] = []
        self._rewritten: set[str] = set()

    def refuse(self, text: _Text, reason: str, old: Criterion | None = None) -> None:
        """Book a text that changes nothing."""
        new = Criterion(
            id=old.id if old is not None else self._free_id(),
            text=text.text,
            kind=text.kind,
            weight=old.weight if old is not None else self._mean_weight(),
        )
        self._book(text.branch, "refused", reason, old, new)

    def drop(self, text: _Text, reason: str) -> None:
        """Book a text that cannot even be a criterion."""
        self._book(text.branch, "refused", reason, None, None)

    def apply(self, text: _Text, old: Criterion | None) -> None:
        """Rewrite ``old``, or append when there is none; refuse what the rules do not allow."""
        reason = self._reason_against(text, old)
        if reason:
            self.refuse(text, reason, old)
        elif old is not None:
            new = _rewritten(old, text)
            self._criteria[self._criteria.index(old)] = new
            self._rewritten.add(old.id)
            self._num_changed += 1
            self._book(text.branch, "accepted", "rewritten", old, new)
        else:
            new = Criterion(
                id=self._free_id(), text=text.text, kind=text.kind, weight=self._mean_weight()
            )
            self._criteria.append(new)
            self._num_changed += 1
            self._book(text.branch, "accepted", "added", None, new)

    def evolution(self, missing: Sequence[Criterion], branch: Branch) -> Evolution:
        """Return the outcome; ``missing`` without a rewrite have stayed and are counted."""
        num_restored = sum(c.id not in self._rewritten for c in missing)
        if not self._edits:
            reason = "the set is unchanged"
            if num_restored:
                reason = f"{num_restored} criteria were left out without a rewrite and put back"
            self._book(branch, "noop", reason, None, None)
        is_changed = any(e.status == "accepted" for e in self._edits)
        return Evolution(
            rubric=self._current.with_criteria(self._criteria) if is_changed else self._current,
            edits=tuple(self._edits),
            num_restored=num_restored,
        )

    def _reason_against(self, text: _Text, old: Criterion | None) -> str:
        if self._num_changed >= self._rules.max_new:
            return f"more changes than {self._rules.max_new} in one reply"
        if len(text.text) > self._rules.max_chars:
            return f"got {len(text.text)} characters, wanted at most {self._rules.max_chars}"
        for other in self._criteria:
            if other is not old and is_near_duplicate(other.text, text.text):
                return f"near duplicate of criterion {other.id!r}"
        if old is not None:
            is_capped = any(cap.criterion_id == old.id for cap in self._current.caps)
            if is_capped and old.max > 1:
                return f"criterion {old.id!r} carries a reward cap on its scale of 0..{old.max}"
            return ""
        if len(self._criteria) >= self._rules.max_criteria:
            return f"the rubric has {len(self._criteria)} criteria, and more are not wanted"
        return ""

    def _book(
        self,
        branch: Branch,
        status: EditStatus,
        reason: str,
        old: Criterion | None,
        new: Criterion | None,
    ) -> None:
        self._edits.append(
            RubricEdit(
                method=self._method,
                branch=branch,
                status=status,
                reason=reason,
                old=old,
                new=new,
                evidence=self._evidence,
            )
        )

    def _free_id(self) -> str:
        """``a<n>`` above every such id of the rubric and above its version, so that an id that a
        rollback took away is not given out again."""
        taken = {c.id for c in self._criteria} | self._rules.reserved_ids
        numbers = [int(m.group(1)) for i in taken if (m := _ADDED_ID.fullmatch(i))]
        return f"a{max([*numbers, self._current.version]) + 1}"

    def _mean_weight(self) -> float:
        """The mean weight of the current criteria; penalties (negative weights) do not count."""
        weights = [c.weight for c in self._current.criteria if c.weight > 0]
        return sum(weights) / len(weights)


def _parsed(item: str) -> _Text:
    for kind, tag in TAGS.items():
        if item.startswith(tag):
            return _Text(kind=kind, text=item[len(tag) :].strip())
    raise AssertionError(f"got the item {item!r} without a tag from the set's reader")


def _usable(texts: Iterable[_Text], draft: _Draft) -> Iterator[_Text]:
    """Yield the texts that can be a criterion: not blank and valid Unicode."""
    for text in texts:
        if text.text and not any(category(char) in ("Cc", "Cs") for char in text.text):
            yield text
        else:
            draft.drop(text, f"got {text.text[:40]!r}, wanted one line of plain text")


def _key(kind: CriterionKind, text: str) -> tuple[CriterionKind, str]:
    return kind, normal_text(text)


def _without_changed_resist(
    new: Sequence[_Text], missing: Sequence[Criterion], draft: _Draft
) -> list[_Text]:
    """Refuse texts that are a changed or loosened [Resist] criterion; return the others."""
    kept: list[_Text] = []
    for text in new:
        close = [c for c in missing if similarity(c.text, text.text) >= REWRITE_SIMILARITY]
        nearest = max(close, key=lambda c: similarity(c.text, text.text), default=None)
        if nearest is not None and nearest.is_resist:
            draft.refuse(text, "a [Resist] criterion is not changed by a writer", nearest)
        else:
            kept.append(text)
    return kept


def _without_miscopied(
    new: Sequence[_Text], missing: Sequence[Criterion], draft: _Draft
) -> list[_Text]:
    """Refuse slightly miscopied texts of missing criteria when a real change is beside them."""
    originals: dict[_Text, Criterion] = {}
    for text in new:
        for old in missing:
            if old.kind == text.kind and is_near_duplicate(old.text, text.text):
                originals[text] = old
    if len(originals) == len(new):
        return list(new)
    for text, old in originals.items():
        draft.refuse(text, "a slightly changed copy beside another change", old)
    return [text for text in new if text not in originals]


def _allowed(new: Sequence[_Text], rules: EditRules, draft: _Draft) -> list[_Text]:
    """Refuse texts of a branch that is off; return the others."""
    kept: list[_Text] = []
    for text in new:
        is_on = rules.is_adaptive if text.kind == "resist" else rules.is_chase
        if is_on:
            kept.append(text)
        else:
            draft.refuse(text, f"the {text.branch} branch is off, {TAGS[text.kind]} is not its tag")
    return kept


def _pairs(
    new: Sequence[_Text],
    targets: Sequence[Criterion],
    satisfied_ids: set[str],
    named: set[str],
) -> dict[_Text, Criterion]:
    """Pair new texts with the missing criteria they rewrite, the most similar first."""
    candidates: list[tuple[float, int, int]] = []
    for i, text in enumerate(new):
        for j, target in enumerate(targets):
            if text.kind == "resist" and target.id not in satisfied_ids:
                continue
            score = similarity(target.text, text.text)
            if score >= REWRITE_SIMILARITY or target.id in named:
                candidates.append((-score, i, j))
    pairs: dict[_Text, Criterion] = {}
    taken: set[int] = set()
    for _, i, j in sorted(candidates):
        if new[i] not in pairs and j not in taken:
            pairs[new[i]] = targets[j]
            taken.add(j)
    return pairs


def _is_named(criterion: Criterion, shown: Sequence[Criterion], analysis: str) -> bool:
    """Whether the analysis names the criterion: by its text, by a quoted part of it that no other
    criterion has, or by an id with a digit."""
    text = normal_text(criterion.text)
    if text in normal_text(analysis):
        return True
    others = [normal_text(c.text) for c in shown if c.id != criterion.id]
    for fragment in map(normal_text, quoted(analysis)):
        is_long = len(fragment) >= _MIN_NAMING_CHARS
        if is_long and fragment in text and not any(fragment in other for other in others):
            return True
    has_digit = any(char.isdigit() for char in criterion.id)
    pattern = rf"(?<![\w-]){re.escape(criterion.id)}(?![\w-])"
    return has_digit and len(criterion.id) > 1 and re.search(pattern, analysis) is not None


def _rewritten(old: Criterion, text: _Text) -> Criterion:
    """The old criterion under a new text or kind: id and weight stay, the scale becomes 0 or 1.

    Rule and levels describe the old text, so they go with it; only a binary criterion whose text
    stays and whose kind becomes [Resist] keeps them.
    """
    if old.max == 1 and normal_text(old.text) == normal_text(text.text):
        return old.model_copy(update={"kind": text.kind})
    return Criterion(id=old.id, text=text.text, kind=text.kind, weight=old.weight)
