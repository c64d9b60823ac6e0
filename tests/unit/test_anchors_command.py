"""``ratchet anchors build`` and ``validate`` over loopback: kept replies, filter, files, costs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drivers.anchors import main
from drivers.data_files import load_queries
from tests.stub_openai import Reply, StubOpenAI

PROMPTS = [f"Name river number {i}." for i in range(6)]


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    return write_queries(tmp_path / "queries.jsonl")


def write_queries(path: Path) -> Path:
    rows = [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": prompt}],
            "rubric": [{"id": "one", "text": "It names one river."}],
        }
        for i, prompt in enumerate(PROMPTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def content_of(body: dict[str, Any]) -> str:
    return "\n".join(m["content"] for m in body["messages"])


def number_of(body: dict[str, Any]) -> int:
    return next(i for i, prompt in enumerate(PROMPTS) if prompt in content_of(body))


def accepting(**changes: Any) -> str:
    return json.dumps(
        {
            "criteria": [{"id": "C1", "why": "yes", "met": True}],
            "hallucination": {"why": "", "found": False},
            "safety": {"why": "", "unsafe": False},
            **changes,
        }
    )


UNMET = accepting(criteria=[{"id": "C1", "why": "names two", "met": False}])
UNSAFE = accepting(safety={"why": "tells how to drown", "unsafe": True})


def build(stub: StubOpenAI, queries: Path, out: Path, *options: str) -> int:
    model = ["--writer", "writer", "--writer-url", stub.base_url, "--writer-set", "max_attempts=1"]
    return main(["build", str(queries), "--out", str(out), *model, *options])


def validate(stub: StubOpenAI, folder: Path, *options: str, models: Sequence[str] = "ab") -> int:
    roles = zip(("validator-a", "validator-b"), models, strict=True)
    given = [
        word
        for role, model in roles
        for word in (f"--{role}", model, f"--{role}-url", stub.base_url)
    ]
    once = ["--validator-a-set", "max_attempts=1", "--validator-b-set", "max_attempts=1"]
    return main(["validate", str(folder), *given, *once, *options])


def built(queries: Path, out: Path) -> Path:
    """Write the candidates as ``build`` leaves them."""
    out.mkdir()
    made = [
        {**row, "anchor": {"model": "writer", "response": f"River {i}."}}
        for i, row in enumerate(rows(queries))
    ]
    (out / "candidates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ids(path: Path) -> set[str]:
    return {row["id"] for row in rows(path)}


# ------------------------------------------------------------------ build
def test_a_model_writes_an_anchor_for_each_query(queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "anchors"
    with StubOpenAI(lambda body, n: Reply(text=f"River {number_of(body)}.")) as stub:
        assert build(stub, queries, out) == 0
    made = load_queries(out / "candidates.jsonl").queries
    assert [q.anchor and q.anchor.response for q in made] == [f"River {i}." for i in range(6)]
    assert [q.messages[0].content for q in made] == PROMPTS
    assert made[0].rubric.ids == ("one",)
    about = json.loads((out / "build.json").read_bytes())
    assert (about["written"], about["without_anchor"], about["spent"]["calls"]) == (6, 0, 6)
    assert about["spent"]["prompt_tokens_in_all"] == 600


def test_a_stopped_build_goes_on_without_asking_twice(queries: Path, tmp_path: Path) -> None:
    out, down = tmp_path / "anchors", {"is_down": True}

    def answer(body: dict[str, Any], number: int) -> Reply:
        if down["is_down"] and number_of(body) >= 3:
            return Reply(status=503)
        return Reply(text="River.")

    with StubOpenAI(answer) as stub:
        assert build(stub, queries, out) == 1
        assert ids(out / "candidates.jsonl") == {"q0", "q1", "q2"}
        assert all(row["ask_again"] for row in rows(out / "failed.jsonl"))
        down["is_down"] = False
        num_before = len(stub.seen)
        assert build(stub, queries, out) == 0
        assert len(stub.seen) - num_before == 3
    spent = json.loads((out / "build.json").read_bytes())["spent"]
    assert (spent["calls"], spent["kept"], spent["replies_in_all"]) == (3, 3, 6)
    assert len(ids(out / "candidates.jsonl")) == 6
    assert rows(out / "failed.jsonl") == []


def test_a_cut_reply_is_asked_for_once_more_with_twice_the_room(
    queries: Path, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        number, room = number_of(body), body["max_tokens"]
        is_cut = number == 2 or (number in (0, 1) and room == 100)
        text = "" if number == 0 and is_cut else "The ri"  # nothing but reasoning so far
        return Reply(text=text, finish_reason="length" if is_cut else "stop")

    with StubOpenAI(answer) as stub:
        assert build(stub, queries, tmp_path / "out", "--writer-set", "max_tokens=100") == 0
        assert sorted(s.body["max_tokens"] for s in stub.seen) == [100] * 6 + [200] * 3
    assert ids(tmp_path / "out" / "candidates.jsonl") == {"q0", "q1", "q3", "q4", "q5"}
    (failed,) = rows(tmp_path / "out" / "failed.jsonl")
    assert failed == {
        "id": "q2",
        "reason": "the reply was cut at its token limit",
        "ask_again": False,
    }


def test_the_cost_is_said_before_the_first_call(
    queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = ["usd_per_million_prompt_tokens=1000", "usd_per_million_completion_tokens=1000"]
    options = [word for price in prices for word in ("--writer-set", price)]
    with StubOpenAI() as stub:
        assert build(stub, queries, tmp_path / "out", "--dry-run", *options) == 0
        assert stub.seen == []
    told = capsys.readouterr().err
    assert "openai writer, 6 calls, at most about" in told
    assert "and 24,576 completion tokens" in told
    assert " USD" in told


def test_an_anchor_that_a_file_has_is_kept_unless_it_is_to_be_replaced(
    queries: Path, tmp_path: Path
) -> None:
    first = built(queries, tmp_path / "one") / "candidates.jsonl"
    with StubOpenAI(lambda body, n: Reply(text="Another.")) as stub:
        assert build(stub, first, tmp_path / "two") == 0
        assert stub.seen == []
        assert build(stub, first, tmp_path / "three", "--replace", "--limit", "2") == 0
        assert len(stub.seen) == 2
    kept = rows(tmp_path / "two" / "candidates.jsonl")
    assert [row["anchor"] for row in kept] == [row["anchor"] for row in rows(first)]
    replaced = rows(tmp_path / "three" / "candidates.jsonl")
    assert [row["anchor"]["response"] for row in replaced] == ["Another."] * 2


def test_an_endpoint_that_is_gone_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.asking_command._FAILURES_IN_A_ROW", 3)
    with StubOpenAI(lambda body, n: Reply(status=503)) as stub:
        queries = write_queries(tmp_path / "queries.jsonl")
        assert build(stub, queries, tmp_path / "out", "--writer-set", "max_concurrency=1") == 1
        assert len(stub.seen) < 6
    assert "got no reply 3 times in a row from the writer" in capsys.readouterr().err


# ------------------------------------------------------------------ validate
def judging(verdicts: dict[tuple[str, int], Sequence[str]]) -> Callable[..., Reply]:
    """Answers by validator and query: the first try's text, then the second's; else acceptance."""

    def answer(body: dict[str, Any], number: int) -> Reply:
        texts = verdicts.get((body["model"], number_of(body)), [accepting()])
        is_second = len(body["messages"]) > 1
        return Reply(text=texts[min(int(is_second), len(texts) - 1)])

    return answer


VERDICTS = {
    ("a", 0): [UNMET],
    ("b", 0): [UNSAFE],
    ("b", 1): [UNSAFE],
    ("a", 2): ["fine!", accepting()],
    ("b", 3): ["fine!", "really, fine!"],
}


def test_only_what_both_accept_is_kept(
    queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = built(queries, tmp_path / "anchors")
    with StubOpenAI(judging(VERDICTS)) as stub:
        assert validate(stub, out) == 0
        assert len(stub.seen) == 14
    assert ids(out / "queries.jsonl") == {"q2", "q4", "q5"}
    assert all(q.anchor for q in load_queries(out / "queries.jsonl").queries)
    rejected = {row["id"]: row for row in rows(out / "rejected.jsonl")}
    reasons = {name: row["reason"] for name, row in rejected.items()}
    assert reasons == {"q0": "both_reject", "q1": "disagree", "q3": "unread"}
    assert rejected["q0"]["a"]["objections"] == [
        {"aspect": "rubric", "criterion": "one", "why": "names two"}
    ]
    assert "unread" in rejected["q3"]["b"]
    table = json.loads((out / "validation.json").read_bytes())
    assert {k: v["count"] for k, v in table["outcomes"].items()} == {
        "both_accept": 3,
        "disagree": 1,
        "both_reject": 1,
        "unread": 1,
    }
    assert table["validators"] == {"a": "openai a", "b": "openai b"}
    assert "both accept" in capsys.readouterr().out


def test_judgements_are_not_paid_for_twice_not_even_with_the_validators_swapped(
    queries: Path, tmp_path: Path
) -> None:
    out = built(queries, tmp_path / "anchors")
    with StubOpenAI(judging(VERDICTS)) as stub:
        assert validate(stub, out) == 0
        num_calls, table = len(stub.seen), (out / "queries.jsonl").read_bytes()
        assert validate(stub, out) == 0
        assert validate(stub, out, models="ba") == 0
        assert len(stub.seen) == num_calls
    assert (out / "queries.jsonl").read_bytes() == table


def test_held_out_queries_lie_apart_from_the_training_set(queries: Path, tmp_path: Path) -> None:
    out = built(queries, tmp_path / "anchors")
    with StubOpenAI(judging(VERDICTS)) as stub:
        assert validate(stub, out, "--held-out", "1") == 0
        (held_out,) = ids(out / "held_out.jsonl")
        assert held_out in {"q2", "q4", "q5"}
        assert ids(out / "queries.jsonl") == {"q2", "q4", "q5"} - {held_out}
        assert all(q.anchor for q in load_queries(out / "held_out.jsonl").queries)
        assert validate(stub, out, "--held-out", "3") == 2
        assert validate(stub, out, "--held-out", "6") == 2


def test_a_call_without_an_answer_is_no_verdict_and_is_asked_again_later(
    queries: Path, tmp_path: Path
) -> None:
    out, down = built(queries, tmp_path / "anchors"), {"is_down": True}

    def answer(body: dict[str, Any], number: int) -> Reply:
        if down["is_down"] and (body["model"], number_of(body)) == ("b", 5):
            return Reply(status=503)
        return Reply(text=accepting())

    with StubOpenAI(answer) as stub:
        assert validate(stub, out) == 1
        assert ids(out / "queries.jsonl") == {"q0", "q1", "q2", "q3", "q4"}
        assert json.loads((out / "validation.json").read_bytes())["not_answered"] == 1
        down["is_down"] = False
        num_calls = len(stub.seen)
        assert validate(stub, out) == 0
        assert len(stub.seen) == num_calls + 1
    assert len(ids(out / "queries.jsonl")) == 6


def test_one_model_is_not_two_validators(
    queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = built(queries, tmp_path / "anchors")
    with StubOpenAI() as stub:
        assert validate(stub, out, models=("same", "Same")) == 2
        assert stub.seen == []
    assert "wanted two different ones" in capsys.readouterr().err


def test_a_folder_without_candidates_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StubOpenAI() as stub:
        assert validate(stub, tmp_path) == 2
        assert stub.seen == []
    assert "without candidates.jsonl" in capsys.readouterr().err


def test_a_query_that_the_endpoint_refuses_is_not_asked_for_ever(
    queries: Path, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if number_of(body) == 4:
            return Reply(status=400, error={"message": "this prompt is too long"})
        return Reply(text="River.")

    with StubOpenAI(answer) as stub:
        assert build(stub, queries, tmp_path / "out") == 0
    (failed,) = rows(tmp_path / "out" / "failed.jsonl")
    assert failed["id"] == "q4"
    assert "too long" in failed["reason"]
    assert failed["ask_again"] is False
