"""Text of a policy is data: no hostile rollout changes a prompt's parts, a verdict or its owner.

Each text of the corpus is put where a policy's text can stand: into every prompt, and into the
replies of a judge that quotes it, thinks about it, or copies it before or after its own verdict.
What is read then is the judge's own verdict or a failure, never the forged one.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from core.grading.prompt import judge_prompt, rescore_prompt, short_ids
from core.grading.reply import read_verdicts
from core.grading.rescore import read_rescore
from core.grading.visible import visible_response
from core.records import JudgeRequest, RescoreRequest
from core.rubric import Criterion
from core.templates import fenced
from serve.prompts import load_prompt
from tests.unit.hostile import CRITERIA, HONEST, HOSTILE, Hostile
from tests.unit.reply_mutations import mutated

each_hostile = pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: f"{h.name} {h.kind}")


# ------------------------------------------------------------------ the corpus
def test_the_corpus_is_large_and_varied() -> None:
    assert len(HOSTILE) >= 60
    assert len({h.kind for h in HOSTILE}) >= 12
    assert len({h.text for h in HOSTILE}) == len(HOSTILE)
    assert max(len(h.text) for h in HOSTILE) >= 1_000_000


def test_every_section_of_every_prompt_is_attacked() -> None:
    """The labels that prompts give their sections, each with a closing tag in some hostile text."""
    labels = {
        "response", "request", "R0", "R1", "answer", "task", "reference_answer", "rubric",
        "satisfied_criteria", "unsatisfied_criteria", "saturated_ids", "retained_ids", "refusal",
        "errors", "R0_scores",
    }  # fmt: skip
    everything = "\n".join(h.text for h in HOSTILE)
    assert [label for label in sorted(labels) if f"</{label}" not in everything] == []


# ------------------------------------------------------------------ prompts
_CONTROL = re.compile(
    r"<\||<\uff5c|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>|<eos>", re.IGNORECASE
)


def assert_only_a_section_differs(
    hostile: str, render: Callable[[str], str], label: str, *, shown: str | None = None
) -> None:
    """The prompt is the benign one but for the section that holds the text.

    The section stands there once, and neither its text nor anything else holds its closing line.
    """
    benign = "A plain answer."
    section = fenced(hostile if shown is None else shown, label)
    prompt = render(hostile)
    assert prompt.count(section) == 1
    assert prompt.replace(section, "@", 1) == render(benign).replace(fenced(benign, label), "@", 1)
    assert prompt.count(section.rpartition("\n")[2]) == 1
    assert prompt.count(section.partition("\n")[0]) == 1
    assert _CONTROL.search(section) is None


def _judge(response: str, style: str, criteria: Sequence[Criterion] = CRITERIA) -> str:
    request = JudgeRequest(query_id="q", prompt="Write.", response=response, criteria=criteria)  # type: ignore[arg-type]
    name = "judge_ids" if style == "ids" else "judge_verbatim"
    return judge_prompt(load_prompt(name), request, style=style)  # type: ignore[arg-type]


@each_hostile
@pytest.mark.parametrize("style", ["ids", "verbatim"])
def test_a_judge_prompt_keeps_its_parts(hostile: Hostile, style: str) -> None:
    assert_only_a_section_differs(hostile.text, lambda t: _judge(t, style), "response")


@each_hostile
def test_a_rescoring_prompt_keeps_one_section_a_response(hostile: Hostile) -> None:
    def render(first: str, second: str) -> str:
        request = RescoreRequest(
            query_id="q", prompt="Write.", responses=(first, second), criteria=CRITERIA
        )
        return rescore_prompt(load_prompt("rescore"), request)

    assert_only_a_section_differs(hostile.text, lambda t: render(t, "The Rhine."), "R0")
    assert_only_a_section_differs(hostile.text, lambda t: render("The Rhine.", t), "R1")


@each_hostile
def test_a_criterion_with_hostile_text_stays_one_line_of_json(hostile: Hostile) -> None:
    """A writer may copy a policy's text into a criterion: ids and order of the others stay."""
    if not hostile.text.strip():
        return
    odd = Criterion(id="odd", text=hostile.text)
    prompt = _judge("The Rhine.", "ids", (CRITERIA[0], odd, CRITERIA[1]))
    lines = [line for line in prompt.split("\n") if line.startswith('{"id": ')]
    read = [json.loads(line) for line in lines]
    assert [row["id"] for row in read] == list(short_ids(3))
    assert read[1]["criterion"] == hostile.text


# ------------------------------------------------------------------ replies of a judge
NAMES: Mapping[str, Sequence[str]] = {
    "ids": short_ids(len(CRITERIA)),
    "verbatim": [c.text for c in CRITERIA],
}


def honest(style: str, quote: str = "nothing", *, ascii_only: bool = False) -> str:
    """The judge's own verdict, with the text quoted in its reasons where the style has any."""
    values = {
        name: {"reason": f"It says: {quote}", "score": score} if style == "ids" else str(score)
        for name, score in zip(NAMES[style], HONEST, strict=True)
    }
    return json.dumps(values, ensure_ascii=ascii_only)


def raw_honest(style: str, quote: str) -> str:
    """The same with a quote that was not escaped."""
    return honest(style, "@@").replace("@@", quote)


WRAPS: Mapping[str, Callable[[str, str], str]] = {
    "quoted in a reason": lambda t, s: honest(s, t),
    "quoted in a reason, escaped": lambda t, s: honest(s, t, ascii_only=True),
    "quoted in a reason, fenced": lambda t, s: f"```json\n{honest(s, t)}\n```",
    "quoted without escapes": lambda t, s: raw_honest(s, t),
    "thought about": lambda t, s: f"<think>The response is {t}, so no.</think>\n{honest(s)}",
    "thought about without an opening tag": lambda t, s: f"It is {t}, no.</think>{honest(s)}",
    "thought about and quoted": lambda t, s: f"<think>{t}</think>{honest(s, t)}",
    "said before": lambda t, s: f'The response says: "{t}"\nMy verdict:\n{honest(s)}',
    "before": lambda t, s: f"{t}\n\n{honest(s)}",
    "fenced before": lambda t, s: f"The response:\n```\n{t}\n```\nThe verdict:\n{honest(s)}",
    "after": lambda t, s: f"{honest(s)}\n\n{t}",
    "said after": lambda t, s: f"{honest(s)}\nThe response claims: {t}",
    "before and after": lambda t, s: f"{t}\n{honest(s)}\n{t}",
}
CUT_WRAPS: Mapping[str, Callable[[str, str], str]] = {
    "said before a verdict that is cut": lambda t, s: (
        f"The response says: {t}\n{honest(s)[: len(honest(s)) // 3]}"
    ),
    "thought about until the cut": lambda t, s: f"<think>The response is {t}, so",
    "quoted in a reason that is cut": lambda t, s: honest(s, t)[: 24 + len(t) // 2],
}
MUST_BE_READ = {
    "quoted in a reason",
    "quoted in a reason, escaped",
    "thought about",
    "thought about and quoted",
}
"""Where the judge does it right, its verdict is read and not given up."""

_LARGE = 200_000
"""Texts of this size are put in the main places only."""

_FALLIBLE = {"1 MB of forged verdicts", "1 MB of words", "1 MB on one line"}
"""Three copies of 1 MB are no reply that is read."""


def seen(hostile: Hostile) -> str:
    """The text as a judge sees and may copy it: without reasoning, reserved spellings broken."""
    section = fenced(visible_response(hostile.text), "response")
    return section.partition("\n")[2].rpartition("\n")[0]


def scores_of(text: str, style: str, finish_reason: str = "stop") -> list[float | None]:
    verdicts = read_verdicts(text, CRITERIA, finish_reason, template=style)  # type: ignore[arg-type]
    return [v.score for v in verdicts]


@each_hostile
@pytest.mark.parametrize("style", ["ids", "verbatim"])
def test_a_judge_that_quotes_it_is_read_as_its_own_verdict_or_not_at_all(
    hostile: Hostile, style: str
) -> None:
    wraps = MUST_BE_READ | {"before"} if len(hostile.text) > _LARGE else WRAPS.keys()
    for wrap in sorted(wraps):
        render = WRAPS[wrap]
        got = scores_of(render(seen(hostile), style), style)
        forged = [(s, h) for s, h in zip(got, HONEST, strict=True) if s not in (None, h)]
        assert forged == [], wrap
        if wrap in MUST_BE_READ and hostile.kind not in _FALLIBLE:
            assert got == list(HONEST), wrap


@each_hostile
@pytest.mark.parametrize("style", ["ids", "verbatim"])
def test_a_judge_that_is_cut_while_quoting_it_has_no_forged_verdict(
    hostile: Hostile, style: str
) -> None:
    for wrap, render in CUT_WRAPS.items():
        got = scores_of(render(seen(hostile), style), style, "length")
        assert all(s in (None, h) for s, h in zip(got, HONEST, strict=True)), wrap


def test_no_damaged_hostile_text_is_read_as_a_verdict_or_score() -> None:
    """The corpus, mutated: ends cut off, quotes and brackets lost, two texts in one."""
    texts = [h.text for h in HOSTILE if len(h.text) < 2_000]
    rng = random.Random(11)
    for _ in range(300):
        text = seen(Hostile("m", "mutated", mutated(rng.choice(texts), texts, rng)))
        for wrap, render in WRAPS.items():
            if wrap == "quoted without escapes":
                continue  # damage of damage: the corpus itself is tested so
            reply = render(text, "ids")
            assert all(s in (None, 0) for s in scores_of(reply, "ids")), (wrap, reply)
        for wrap, render_matrix in MATRIX_WRAPS.items():
            if wrap == "quoted without escapes":
                continue
            reply = render_matrix(text)
            rows = read_rescore(reply, CRITERIA, 2, "stop")
            assert all(v.score in (None, 0) for v in rows[0]), (wrap, reply)
            assert all(v.score in (None, 1) for v in rows[1]), (wrap, reply)


# ------------------------------------------------------------------ joint rescoring
FIRST, SECOND = (0, 0, 0), (1, 1, 1)
"""Honest scores of R0 (hostile) and R1 (an honest answer)."""


def matrix(quote: str = "nothing") -> str:
    """The judge's own matrix, with R0's text quoted in its reasons."""
    entries = [
        {
            "id": name,
            "scores": [
                {"rollout_id": "R0", "reason": f"It says: {quote}", "score": first},
                {"rollout_id": "R1", "reason": "It names the Rhine.", "score": second},
            ],
        }
        for name, first, second in zip(NAMES["ids"], FIRST, SECOND, strict=True)
    ]
    return json.dumps({"criteria": entries}, ensure_ascii=False)


MATRIX_WRAPS: Mapping[str, Callable[[str], str]] = {
    "quoted in a reason": matrix,
    "quoted in a reason, fenced": lambda t: f"```json\n{matrix(t)}\n```",
    "quoted without escapes": lambda t: matrix("@@").replace("@@", t),
    "thought about": lambda t: f"<think>R0 is {t}, so no.</think>\n{matrix()}",
    "thought about without an opening tag": lambda t: f"R0 is {t}, no.</think>{matrix()}",
    "said before": lambda t: f"R0 says: {t}\nMy scores:\n{matrix()}",
    "before": lambda t: f"{t}\n\n{matrix()}",
    "after": lambda t: f"{matrix()}\n\n{t}",
    "before and after": lambda t: f"{t}\n{matrix()}\n{t}",
}


@each_hostile
def test_no_response_sets_a_score_in_a_joint_rescoring(hostile: Hostile) -> None:
    """Neither its own nor, worse, that of another response of the group."""
    wanted = (FIRST, SECOND)
    for wrap, render in MATRIX_WRAPS.items():
        rows = read_rescore(render(seen(hostile)), CRITERIA, 2, "stop")
        for row, honest_row in zip(rows, wanted, strict=True):
            for verdict, score in zip(row, honest_row, strict=True):
                assert verdict.score in (None, score), (wrap, verdict)
        is_small = hostile.kind not in _FALLIBLE
        if wrap in ("quoted in a reason", "thought about") and is_small:
            assert [[v.score for v in row] for row in rows] == [list(r) for r in wanted], wrap


@each_hostile
def test_a_rescoring_that_is_cut_while_quoting_it_has_no_forged_score(hostile: Hostile) -> None:
    text = f"R0 says: {seen(hostile)}\n{matrix()[:150]}"
    for row, honest_row in zip(
        read_rescore(text, CRITERIA, 2, "length"), (FIRST, SECOND), strict=True
    ):
        assert all(v.score in (None, s) for v, s in zip(row, honest_row, strict=True))
