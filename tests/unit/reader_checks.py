"""What must hold of any reply, however damaged, for each reader: the replies and the assertions.

A function reads one text and says whether anything of it was used: a score, an edit, a replacement.
It lets nothing through but what the reader documents (``WriterReplyError`` is a refusal).
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from core.config import RewardConfig
from core.config_evolution import CareConfig, RareConfig
from core.errors import WriterReplyError
from core.evolution.care import contrast_request, read_contrast
from core.evolution.final_set import read_final_set
from core.evolution.rare import apply_replacements, read_replacements, replacement_request
from core.grading.reply import read_scores, read_verdicts
from core.grading.reply_parts import Asked, asked_by_text
from core.grading.rescore import read_rescore
from core.grading.values import Scale
from core.records import EditStatus, FailureKind, RescoreReply, Verdict
from core.rubric import Criterion, Rubric
from tests.unit.method_builders import completion, graded_group, llm, resist

TESTS = Path(__file__).parents[1]
CASES = TESTS.parents[1] / "shared" / "cases"


# ------------------------------------------------------------------ judge replies
CRITERIA = (
    Criterion(id="pace", text="Names a river and its length", max=2),
    Criterion(id="end", text="Ends with a question"),
    Criterion(id="pad", text="Does not pad the answer", kind="resist"),
)
IDS_REPLIES = (
    json.dumps({f"c{n}": {"reason": f'it says "c{n}": 1', "score": 1} for n in (1, 2, 3)}),
    '```json\n{"c1": 2, "c2": 0, "c3": 1}\n```',
    "<think>perhaps {\"c1\": 0}</think>\n{'c1': '2/2', 'c2': 'yes', 'c3': true}",
    '{"scores": [{"id": "c1", "score": 2}, {"id": "c2", "score": 0}, {"id": "c3", "score": 1}]}',
    "c1: 2\nc2: 0\nc3: 1",
    "[2, 0, 1]",
)
VERBATIM_REPLIES = (
    json.dumps({c.text: "1" for c in CRITERIA}),
    json.dumps([{"criterion": c.text, "score": 0} for c in CRITERIA]),
    "\n".join(f"- {c.text}: 1" for c in CRITERIA),
)


def check_verdicts(verdicts: Sequence[Verdict], criteria: Sequence[Criterion]) -> None:
    """Exactly one verdict a criterion, in order; a whole level in range, or a known failure."""
    assert [v.criterion_id for v in verdicts] == [c.id for c in criteria]
    for verdict, criterion in zip(verdicts, criteria, strict=True):
        assert verdict.max == criterion.max
        if verdict.score is None:
            assert verdict.failure in get_args(FailureKind)
        else:
            assert verdict.failure is None
            assert verdict.score in range(criterion.max + 1)
        verdict.reason.encode("utf-8")


def verdict_reader(template: Literal["ids", "verbatim"]) -> Callable[[str, str], bool]:
    def read(text: str, finish_reason: str) -> bool:
        verdicts = read_verdicts(text, CRITERIA, finish_reason, template=template)
        check_verdicts(verdicts, CRITERIA)
        return any(v.score is not None for v in verdicts)

    return read


GROUP_SIZE = 3


def matrix(first: str) -> str:
    return json.dumps(
        {
            "criteria": [
                {
                    "id": f"c{n}",
                    "scores": [
                        {"rollout_id": f"R{g}", "reason": f"{first} {n}", "score": g % 2}
                        for g in range(GROUP_SIZE)
                    ],
                }
                for n in (1, 2, 3)
            ]
        }
    )


RESCORE_REPLIES = (
    matrix("plain"),
    f"```json\n{matrix('fenced')}\n```",
    f"<think>{matrix('draft')}</think>{matrix('final')}",
    json.dumps([{"criterion_id": "pace", "scores": {"R0": 2, "R1": "0", "R2": 1}}]),
)


def read_matrix(text: str, finish_reason: str) -> bool:
    rows = read_rescore(text, CRITERIA, GROUP_SIZE, finish_reason)
    assert len(rows) == GROUP_SIZE
    for row in rows:
        check_verdicts(row, CRITERIA)
    return any(v.score is not None for row in rows for v in row)


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The shared odd replies; none where the folder is not there."""
    path = CASES / name
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


ODD_REPLIES = tuple(
    json.loads(line)["text"]
    for line in (TESTS / "golden" / "judge_replies.jsonl").read_text("utf-8").split("\n")
    if line.strip()
)
JUDGE_ROWS = {row["raw_output"]: row for row in shared_rows("judge_outputs_dev.jsonl")}


def _asked(row: dict[str, Any]) -> Asked:
    scales = (
        row["scale"] if isinstance(row["scale"], list) else [row["scale"]] * len(row["rubrics"])
    )
    scale = [Scale(float(s["min"]), float(s["max"]), bool(s["integer"])) for s in scales]
    return asked_by_text(row["rubrics"], scale)


JUDGE_ASKED = tuple(_asked(row) for row in JUDGE_ROWS.values())


def read_shared_scores(text: str, finish_reason: str) -> bool:
    """Any reply against the criteria of any shared row, chosen by the text itself."""
    asked = JUDGE_ASKED[len(text) % len(JUDGE_ASKED)]
    readings = read_scores(text, asked, finish_reason)
    assert len(readings) == len(asked.scales)
    for reading, scale in zip(readings, asked.scales, strict=True):
        assert (reading.score is None) == (reading.failure in get_args(FailureKind))
        assert reading.score is None or scale.min <= reading.score <= scale.max
        assert reading.score is None or not scale.is_integer or reading.score.is_integer()
    return any(r.score is not None for r in readings)


# ------------------------------------------------------------------ CARE's writer
CARE_RUBRIC = Rubric(
    criteria=(
        llm("c1", "Gives two concrete examples", weight=2.0),
        llm("c2", "Names a river", max=2),
        resist("r1", "Does not repeat sentences to fill a count"),
        llm("p1", "Contains an insult", weight=-1.0),
        resist("r2", "Is written in English only"),
    )
)
CARE_GROUP = graded_group(
    CARE_RUBRIC,
    [
        {"c1": 1, "c2": 2, "r1": 1, "p1": 0, "r2": 1},
        {"c1": 0, "c2": 1, "r1": 1, "p1": 0, "r2": 1},
    ],
    responses=["An example, an example: the Elbe, the Elbe.", "The Rhine."],
)
_KEPT = [c.tagged for c in CARE_RUBRIC.criteria]


def care_reply(items: Sequence[str], analysis: str = 'It repeats "an example".') -> str:
    listed = json.dumps(list(items))
    return f"<ANALYSIS>{analysis}</ANALYSIS>\n<FINAL_SET>\n{listed}\n</FINAL_SET>"


CARE_REPLIES = (
    care_reply(_KEPT),
    care_reply([*_KEPT[1:], "[Resist] Gives two different concrete examples"]),
    care_reply([*_KEPT, "[llm] Says how long the river is"]),
    care_reply([_KEPT[0], "[llm] Names a river and its length", *_KEPT[2:]]),
    care_reply([*_KEPT[:2], "[Resist] Does not repeat words", *_KEPT[3:]], "drop r1"),
    f"<think>{care_reply(['[llm] Draft'])}</think>" + care_reply([*_KEPT, "[llm] Is short"]),
)
CARE = CareConfig(max_new=2, max_criteria=8, max_chars=120)


def read_care_set(text: str, finish_reason: str) -> bool:
    """The set is whole or the current one stays; no edit loses a criterion or moves a [Resist]."""
    got = read_final_set(text, _KEPT, max_items=8, max_chars=120, finish_reason=finish_reason)
    if got.is_accepted:
        assert 0 < len(got.items) <= 8
        assert len({i.casefold() for i in got.items}) == len(got.items)
        for item in got.items:
            assert re.fullmatch(r"\[(?:llm|Resist)\] \S.*", item)
            assert len(item) <= 120
            item.encode("utf-8")
    else:
        assert list(got.items) == _KEPT
        assert got.reason
    request = contrast_request(CARE_GROUP, CARE, RewardConfig())
    assert request is not None
    evolution = read_contrast(
        completion(text, finish_reason), request, CARE_GROUP, CARE, RewardConfig()
    )
    new = evolution.rubric
    is_changed = any(e.status == "accepted" for e in evolution.edits)
    assert new.version == CARE_RUBRIC.version + is_changed
    assert is_changed or new is CARE_RUBRIC
    assert evolution.edits
    assert all(e.status in get_args(EditStatus) for e in evolution.edits)
    assert new.ids[: len(CARE_RUBRIC.ids)] == CARE_RUBRIC.ids
    assert len(new.criteria) <= CARE.max_criteria
    for old in CARE_RUBRIC.criteria:
        assert new.criterion(old.id).weight == old.weight
        if old.is_resist or old.weight < 0:
            assert new.criterion(old.id) == old
    changed = [c for c in new.criteria if c not in CARE_RUBRIC.criteria]
    assert len(changed) == sum(e.status == "accepted" for e in evolution.edits) <= CARE.max_new
    assert len({c.kind for c in changed}) <= 1
    return is_changed


# ------------------------------------------------------------------ RARE's writer
RARE_GROUP = graded_group(
    Rubric(
        criteria=(
            llm("c1", "Has a reveal", max=2, weight=2.0),
            llm("c2", "Names the place"),
            llm("c3", "Has a twist"),
            resist("r1", "Does not repeat itself"),
        )
    ),
    [{"c1": 2, "c2": 1, "c3": g % 2, "r1": 1} for g in range(GROUP_SIZE)],
    responses=["It was fear.", "The bell explains the steps.", "A door opens."],
)


def rare_update(criterion_id: str, check: str, rule: str, top: int, polarity: str) -> Any:
    return {
        "id": criterion_id,
        "polarity": polarity,
        "diagnosis": {
            "difference": 'R0 only says "fear".',
            "best_rollout_ids": ["R1"],
            "weaker_rollout_ids": ["R0", "R2"],
            "learning_direction": "Explain what was shown.",
            "nonredundancy": "No other criterion looks at causes.",
        },
        "rubric": {"id": criterion_id, "check": check, "max_points": top, "scoring_rule": rule},
    }


RARE_REPLY = json.dumps(
    {
        "updates": [
            rare_update(
                "c1", "Is each event explained?", "2 = all; 1 = some; 0 = none", 2, "negative"
            ),
            rare_update("c2", "Does the place matter?", "1 = yes; 0 = no", 1, "positive"),
        ]
    }
)
RARE_REPLIES = (RARE_REPLY, f"```json\n{RARE_REPLY}\n```", f"<think>{{}}</think>{RARE_REPLY}")


def read_rare_updates(text: str, finish_reason: str) -> bool:
    """Refused by the documented error, or two replacements under which ids and maxima stay."""
    request = replacement_request(RARE_GROUP, RareConfig(polarity="mixed"))
    assert request is not None
    try:
        replacements = read_replacements(completion(text, finish_reason), request)
    except WriterReplyError:
        return False
    new = [r.criterion for r in replacements.items]
    assert [c.id for c in new] == ["c1", "c2"]
    assert {r.polarity for r in replacements.items} == {"negative", "positive"}
    for criterion in new:
        old = RARE_GROUP.rubric.criterion(criterion.id)
        assert (criterion.max, criterion.weight, criterion.kind) == (old.max, old.weight, "llm")
        assert sorted(criterion.levels or {}) == list(range(old.max + 1))
        criterion.model_dump_json().encode("utf-8")
    scores = tuple(
        tuple(Verdict(criterion_id=c.id, score=0, max=c.max) for c in new)
        for _ in range(GROUP_SIZE)
    )
    rubric = apply_replacements(
        RARE_GROUP, replacements, RescoreReply(verdicts=scores, judge="j")
    ).group.rubric
    assert rubric.ids == RARE_GROUP.rubric.ids
    assert rubric.total_max == RARE_GROUP.rubric.total_max
    assert rubric.criteria[2:] == RARE_GROUP.rubric.criteria[2:]
    return True


EVOLUTION_REPLIES = tuple(r["raw_output"] for r in shared_rows("evolution_outputs_dev.jsonl"))
