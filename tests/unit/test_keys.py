"""The endpoint's key: from the environment only, and in nothing that is written down."""

import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from core.config_served import JudgeConfig, ServedModelConfig
from core.errors import ConfigError
from core.records import Completion, JudgeReply, JudgeRequest, ScoredGroup
from core.rubric import Criterion
from drivers.config_file import dump_config
from drivers.report import write_report
from serve.backends.base import CompletionRequest, read_api_key
from serve.backends.openai import OpenAIBackend
from serve.backends.redaction import Redaction
from serve.identity import judge_identity
from serve.judge import Judge
from serve.limits import CallLimiter, CallSlots
from tests.run_example import example_group, example_query, make_run
from tests.stub_openai import Reply, StubOpenAI

KEY = "sk-very-secret-planted-key"
TONE = Criterion(id="c0", text="The tone is warm.")
REQUEST = JudgeRequest(query_id="q", prompt="p", response="r", criteria=(TONE,))


def judge_config(stub: StubOpenAI) -> JudgeConfig:
    return JudgeConfig(
        backend="openai", model="m", base_url=stub.base_url, timeout_s=10.0, max_attempts=1
    )


async def graded(echoing: Reply) -> tuple[JudgeReply, Completion]:
    """What judge and backend make of an endpoint that answers so."""
    with StubOpenAI(lambda body, number: echoing) as stub:
        config = judge_config(stub)
        slots = CallSlots(CallLimiter("stub"), "judge", 4)
        backend = OpenAIBackend(config, read_api_key(config), slots)
        raw = await backend.complete(CompletionRequest(prompt="x"))
        reply = await Judge(config, backend).grade(REQUEST)
        await backend.close()
    assert stub.seen[0].authorization == f"Bearer {KEY}"
    return reply, raw


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.parametrize(
    "echoing",
    [
        Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}. You can"}),
        Reply(status=401, error={"message": "Incorrect API key provided: sk-very-s****cret."}),
        Reply(status=401, error={"message": "x" * 280 + f"{KEY} and more"}),
        Reply(status=403, error={"message": f"Bearer {KEY} has no access"}),
        Reply(status=400, error={"message": f"{KEY}", "code": "content_filter"}),
        Reply(raw=json.dumps({"error": f"no such key {KEY}"}).encode()),
        Reply(text=None, refusal=f"Your key {KEY} may not"),
        Reply(text=f'{{"c1": {{"reason": "the header says {KEY}", "score": 1}}}}'),
        Reply(status=429, error={"message": f"{KEY} is slow", "code": "insufficient_quota"}),
    ],
)
async def test_the_key_is_sent_but_never_logged_or_told(
    echoing: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply, raw = await graded(echoing)
    for text in (repr(raw), repr(reply), caplog.text):
        assert KEY[:9] not in text


async def test_no_file_of_a_run_and_no_config_holds_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply, _ = await graded(
        Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}"})
    )
    assert "HTTP 401" in reply.verdicts[0].reason
    folder = make_run(tmp_path / "run")
    config = folder.files.read_config().model_copy(
        update={"judge": JudgeConfig(backend="openai", model="m")}
    )
    folder.files.write_config(dump_config(config))
    query = example_query("q1")
    group = example_group(query, query.rubric, 13)
    folder.files.write_rollouts(13, [_with_verdicts(group, reply)])
    write_report(folder.files)

    shown = (repr(config), str(config), dump_config(config), judge_identity(config.judge))
    for text in (*shown, caplog.text, repr(read_api_key(config.judge))):
        assert KEY[:9] not in text
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any(b"HTTP 401" in path.read_bytes() for path in files)
    assert [path for path in files if KEY[:9].encode() in path.read_bytes()] == []


def _with_verdicts(group: ScoredGroup, reply: JudgeReply) -> ScoredGroup:
    """The group as if this had been the judge's reply on each rollout."""
    verdicts = {v.criterion_id: v for v in reply.verdicts}
    rollouts = tuple(
        replace(r, graded=replace(r.graded, verdicts=verdicts), reward=None, before_veto=None)
        for r in group.rollouts
    )
    return replace(group, rollouts=rollouts, is_masked=True)


def test_a_key_with_slashes_is_taken_out_as_json_may_spell_it() -> None:
    redaction = Redaction(SecretStr("ab/cd/ef-planted"))
    assert redaction.kept('{"reason": "key ab\\/cd\\/ef-planted"}') == '{"reason": "key [key]"}'
    assert redaction.kept("key ab/cd/ef-planted") == "key [key]"


def test_an_ordinary_word_that_stands_for_no_key_stays_in_texts() -> None:
    none = Redaction(SecretStr("none"))
    assert none.told("none of them; *markdown* and **bold** stay") == (
        "none of them; *markdown* and **bold** stay"
    )
    short = Redaction(SecretStr("word"))
    assert short.kept("a word in a reply") == "a word in a reply"
    assert short.told("a word in an error") == "a [key] in an error"
    started = time.monotonic()
    assert len(Redaction(SecretStr(KEY)).told("a-" * 5_000_000)) == 300
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("key", ["sk-with\nnewline", "sk-with blank", "sk-ümlaut"])
def test_a_key_that_cannot_be_one_is_refused_without_its_text(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="environment variable OPENAI_API_KEY with") as caught:
        read_api_key(ServedModelConfig(backend="openai", model="m"))
    assert "sk-" not in str(caught.value)


def test_the_key_comes_from_the_named_variable_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    provider = ServedModelConfig(backend="openai", model="m")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is empty"):
        read_api_key(provider)
    own = provider.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    assert read_api_key(own).get_secret_value() == "none"
    named = provider.model_copy(update={"api_key_env": "OTHER_KEY"})
    assert read_api_key(named).get_secret_value() == KEY
    assert KEY not in repr(read_api_key(named))
    monkeypatch.delenv("OTHER_KEY")
    own_named = own.model_copy(update={"api_key_env": "OTHER_KEY"})
    with pytest.raises(ConfigError, match="OTHER_KEY is empty"):
        read_api_key(own_named)
