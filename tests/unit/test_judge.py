"""The judge with a scripted backend: what goes to code, to the model, and what is asked again."""

import json
from collections.abc import Sequence

import pytest

from core.config_served import JudgeConfig
from core.query import Message, Query
from core.records import Completion, JudgeRequest, RescoreRequest, Usage
from core.rubric import Criterion, Rubric, Rule
from core.rules.phrases import text_from_rule
from drivers.cached_judge import CachedJudge
from serve import identity
from serve.backends.base import CompletionRequest
from serve.identity import judge_identity
from serve.judge import Judge
from serve.prompts import load_prompt
from tests.fakes import FakeStore

SHORT = Criterion(id="short", text="Be brief.", rule=Rule(name="max_words", args={"n": 3}))
TONE = Criterion(id="tone", text="The tone is warm.")
DEPTH = Criterion(id="depth", text="The answer goes into causes.", max=3)
MODEL = JudgeConfig(backend="openai", model="m", base_url="http://127.0.0.1:9/v1")


class ScriptedBackend:
    """Answers with the given replies in order and keeps what it was asked."""

    def __init__(self, *replies: Completion) -> None:
        self.replies = list(replies)
        self.asked: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        return self.replies.pop(0)

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""


def says(scores: dict[str, object], finish_reason: str = "stop") -> Completion:
    text = json.dumps({name: {"reason": "seen", "score": s} for name, s in scores.items()})
    return raw(text, finish_reason)


def raw(text: str, finish_reason: str = "stop") -> Completion:
    usage = Usage(calls=1, prompt_tokens=10, completion_tokens=5)
    return Completion(text=text, finish_reason=finish_reason, model="m", usage=usage)


def failing(kind: str) -> Completion:
    return Completion(
        text="",
        finish_reason="",
        model="m",
        failure=kind,  # type: ignore[arg-type]
        detail="because",
    )


def request(criteria: Sequence[Criterion], response: str = "one two three") -> JudgeRequest:
    return JudgeRequest(query_id="q", prompt="Say it.", response=response, criteria=tuple(criteria))


async def grade(
    backend: ScriptedBackend | None, asked: JudgeRequest, config: JudgeConfig = MODEL
) -> dict[str, tuple[float | None, str | None]]:
    reply = await Judge(config, backend).grade(asked)
    assert [v.criterion_id for v in reply.verdicts] == [c.id for c in asked.criteria]
    assert reply.judge == judge_identity(config)
    return {v.criterion_id: (v.score, v.failure) for v in reply.verdicts}


async def test_rules_are_decided_by_code_and_the_rest_in_one_call() -> None:
    backend = ScriptedBackend(says({"c1": 1, "c2": 2}))
    verdicts = await grade(backend, request([TONE, SHORT, DEPTH]))
    assert verdicts == {"tone": (1, None), "short": (1, None), "depth": (2, None)}
    (asked,) = backend.asked
    assert "warm" in asked.prompt
    assert "causes" in asked.prompt
    assert "Be brief" not in asked.prompt


async def test_a_rubric_that_code_decides_costs_no_call() -> None:
    backend = ScriptedBackend()
    canonical = Criterion(id="words", text=text_from_rule(Rule(name="max_words", args={"n": 2})))
    verdicts = await grade(backend, request([SHORT, canonical]))
    assert verdicts == {"short": (1, None), "words": (0, None)}
    assert backend.asked == []


async def test_without_a_model_other_criteria_are_undecidable_not_zero() -> None:
    verdicts = await grade(None, request([SHORT, TONE]), JudgeConfig())
    assert verdicts == {"short": (1, None), "tone": (None, "undecidable")}


async def test_a_missing_verdict_is_asked_for_once_more_with_the_error_told() -> None:
    backend = ScriptedBackend(says({"c1": 1}), says({"c2": 3}))
    reply = await Judge(MODEL, backend).grade(request([TONE, DEPTH]))
    assert [v.score for v in reply.verdicts] == [1, 3]
    assert reply.usage.calls == 2
    first, repair = backend.asked
    assert first.prompt in repair.prompt
    assert '"c2": missing' in repair.prompt
    assert first.schema is not None
    assert repair.schema is not None
    assert list(repair.schema["properties"]) == ["c2"]
    assert list(first.schema["properties"]) == ["c1", "c2"]


async def test_the_repair_never_overrides_a_score() -> None:
    backend = ScriptedBackend(says({"c1": 1}), says({"c1": 0, "c2": 3}))
    assert await grade(backend, request([TONE, DEPTH])) == {"tone": (1, None), "depth": (3, None)}


async def test_garbage_twice_is_a_failure_for_each_criterion() -> None:
    backend = ScriptedBackend(raw("I like it."), raw("Still prose."))
    verdicts = await grade(backend, request([TONE, DEPTH]))
    assert [score for score, _ in verdicts.values()] == [None, None]
    assert all(kind in ("missing", "unparsable") for _, kind in verdicts.values())
    assert len(backend.asked) == 2


async def test_a_score_outside_the_scale_is_never_clamped() -> None:
    backend = ScriptedBackend(says({"c1": 7}), says({"c1": 90}))
    assert await grade(backend, request([DEPTH])) == {"depth": (None, "out_of_scale")}


@pytest.mark.parametrize("kind", ["filtered", "refused", "unavailable", "timeout"])
async def test_a_reply_that_did_not_come_is_not_asked_for_again(kind: str) -> None:
    backend = ScriptedBackend(failing(kind))
    reply = await Judge(MODEL, backend).grade(request([TONE, SHORT]))
    assert [(v.score, v.failure) for v in reply.verdicts] == [(None, kind), (1, None)]
    assert reply.verdicts[0].reason == "because"


async def test_a_cut_reply_is_asked_for_again() -> None:
    backend = ScriptedBackend(failing("truncated"), says({"c1": 0}))
    assert await grade(backend, request([TONE])) == {"tone": (0, None)}


async def test_only_what_follows_the_reasoning_is_judged() -> None:
    backend = ScriptedBackend(says({"c1": 1}))
    asked = request([SHORT, TONE], "<think>one two three four</think>\nShort answer")
    assert await grade(backend, asked) == {"short": (1, None), "tone": (1, None)}
    assert "four" not in backend.asked[0].prompt


async def test_the_verbatim_template_asks_by_text() -> None:
    config = MODEL.model_copy(update={"template": "verbatim"})
    backend = ScriptedBackend(raw(json.dumps({TONE.text: "1"})), raw(json.dumps({DEPTH.text: "2"})))
    verdicts = await grade(backend, request([TONE, DEPTH]), config)
    assert verdicts == {"tone": (1, None), "depth": (2, None)}
    assert backend.asked[1].schema is not None
    assert list(backend.asked[1].schema["properties"]) == [DEPTH.text]


def test_the_identity_changes_with_everything_that_can_change_a_verdict() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"model": "n"},
        {"temperature": 0.5},
        {"seed": 1},
        {"max_tokens": 9},
        {"template": "verbatim"},
        {"base_url": None},
        {"per_criterion": True},
    ]
    lines = [judge_identity(MODEL.model_copy(update=change)) for change in changes]
    assert len(set(lines)) == len(changes)
    same = MODEL.model_copy(update={"num_replicas": 3, "timeout_s": 7.0})
    assert judge_identity(same) == lines[0]


def test_the_identity_changes_with_the_text_of_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    before = judge_identity(MODEL)
    for changed in ("judge_ids", "judge_repair", "rescore"):
        texts = {n: load_prompt(n) for n in ("judge_ids", "judge_repair", "rescore")}
        texts[changed] += " Be fair."
        monkeypatch.setattr(identity, "load_prompt", texts.__getitem__)
        assert judge_identity(MODEL) != before


def test_by_rules_nothing_but_the_rules_decides() -> None:
    assert judge_identity(JudgeConfig(per_criterion=True, seed=3)) == judge_identity(JudgeConfig())


# ------------------------------------------------------------------ the verdict cache
RUBRIC = tuple(Criterion(id=f"k{i}", text=f"It says thing {i}.") for i in range(5))


class AnswersAll:
    """Full score on whatever it is asked; keeps which texts each call asked about."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        lines = [line for line in request.prompt.splitlines() if line.startswith('{"id": "c')]
        criteria = [json.loads(line) for line in lines]
        self.asked.append([c["criterion"] for c in criteria])
        return says({c["id"]: 1 for c in criteria})

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""


class Direct:
    """The judge without Serve between."""

    def __init__(self, config: JudgeConfig, backend: AnswersAll) -> None:
        self._judge = Judge(config, backend)
        self.identity = self._judge.identity
        self.grade = self._judge.grade
        self.rescore = self._judge.rescore

    def stats(self) -> dict[str, float]:
        return {}


async def asked_after_edit(
    store: FakeStore, criteria: Sequence[Criterion], config: JudgeConfig = MODEL
) -> list[list[str]]:
    """What the model is asked about the same response under ``criteria``."""
    backend = AnswersAll()
    query = Query(
        id="q",
        messages=(Message(role="user", content="Say it."),),
        rubric=Rubric(criteria=tuple(criteria)),
    )
    found = await CachedJudge(Direct(config, backend), store).judged(query, "all", criteria)
    assert {i: v.score for i, v in found.verdicts.items()} == {c.id: 1 for c in criteria}
    assert found.num_cached == len(criteria) - sum(map(len, backend.asked))
    return backend.asked


@pytest.mark.parametrize("num_edited", [0, 1, 2, 5])
async def test_after_an_edit_of_k_criteria_exactly_k_are_judged_again(num_edited: int) -> None:
    store = FakeStore()
    assert await asked_after_edit(store, RUBRIC) == [[c.text for c in RUBRIC]]
    rewritten = [
        c.model_copy(update={"text": f"It proves thing {c.id}."}) for c in RUBRIC[:num_edited]
    ]
    wanted = [c.text for c in rewritten]
    asked = await asked_after_edit(store, (*rewritten, *RUBRIC[num_edited:]))
    assert asked == ([wanted] if wanted else [])
    # An added one is asked alone, a moved or weighted one not at all.
    added = Criterion(id="new", text="It says one thing more.")
    heavier = RUBRIC[4].model_copy(update={"id": "other", "weight": 3.0})
    assert await asked_after_edit(store, (added, heavier)) == [[added.text]]


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"temperature": 0.5}, {"template": "ids", "max_tokens": 9}, {"model": "n"}],
)
async def test_another_sampling_or_model_finds_no_verdict_of_the_first(
    change: dict[str, object],
) -> None:
    store = FakeStore()
    await asked_after_edit(store, RUBRIC)
    other = MODEL.model_copy(update=change)
    assert await asked_after_edit(store, RUBRIC, other) == [[c.text for c in RUBRIC]]


async def test_one_call_a_criterion_is_another_judge_with_a_cache_of_its_own() -> None:
    store, alone = FakeStore(), MODEL.model_copy(update={"per_criterion": True})
    await asked_after_edit(store, RUBRIC)
    asked = await asked_after_edit(store, RUBRIC, alone)
    assert sorted(asked) == [[c.text] for c in RUBRIC]
    assert await asked_after_edit(store, RUBRIC, alone) == []


# ------------------------------------------------------------------ rescoring
def joint(cells: dict[str, list[object]]) -> Completion:
    entries = [
        {
            "id": name,
            "scores": [
                {"rollout_id": f"R{i}", "reason": "seen", "score": s}
                for i, s in enumerate(scores)
                if s is not None
            ],
        }
        for name, scores in cells.items()
    ]
    return raw(json.dumps({"criteria": entries}))


def rescore_request(criteria: Sequence[Criterion]) -> RescoreRequest:
    return RescoreRequest(
        query_id="q",
        prompt="Say it.",
        responses=("one two three", "one two three four"),
        criteria=tuple(criteria),
    )


async def test_rescoring_mixes_code_and_one_joint_call() -> None:
    backend = ScriptedBackend(joint({"c1": [3, 0]}))
    reply = await Judge(MODEL, backend).rescore(rescore_request([SHORT, DEPTH]))
    assert [[v.score for v in row] for row in reply.verdicts] == [[1, 3], [0, 0]]
    assert [[v.criterion_id for v in row] for row in reply.verdicts] == [["short", "depth"]] * 2
    assert len(backend.asked) == 1


async def test_a_missing_cell_is_asked_for_once_more() -> None:
    backend = ScriptedBackend(joint({"c1": [2, None]}), joint({"c1": [0, 1]}))
    reply = await Judge(MODEL, backend).rescore(rescore_request([DEPTH]))
    assert [[v.score for v in row] for row in reply.verdicts] == [[2], [1]]
    assert backend.asked[0].prompt in backend.asked[1].prompt
    assert reply.usage.calls == 2


async def test_a_rescoring_without_reply_fails_every_cell() -> None:
    reply = await Judge(MODEL, ScriptedBackend(failing("timeout"))).rescore(
        rescore_request([DEPTH, TONE])
    )
    assert [[v.failure for v in row] for row in reply.verdicts] == [["timeout"] * 2] * 2


async def test_a_joint_reply_that_runs_in_circles_is_asked_again_without_structure() -> None:
    looping = raw('{"criteria": [' + " " * 500, "length")
    backend = ScriptedBackend(looping, joint({"c1": [2, 1]}))
    reply = await Judge(MODEL, backend).rescore(rescore_request([DEPTH]))
    assert [[v.score for v in row] for row in reply.verdicts] == [[2], [1]]
    assert [ask.schema is None for ask in backend.asked] == [False, True]
    assert "over and over until it was cut" in backend.asked[1].prompt
