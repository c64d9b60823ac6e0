"""Pairs out of scored responses, the filter, and ``ratchet offline pairs`` over loopback."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from core.preference_pairs import (
    PreferencePair,
    ScoredResponse,
    pair_row,
    preference_pair,
    strongest,
)
from core.query import Message
from drivers import offline_pairs
from tests.stub_openai import Reply, StubOpenAI

ASKED = (Message(role="user", content="Write a line."),)


def scored(text: str, reward: float | None, **scores: float | None) -> ScoredResponse:
    return ScoredResponse(text=text, scores=scores, reward=reward)


def pair(name: str, **leads: float) -> PreferencePair:
    """A pair whose chosen response leads by these points on its items."""
    made = preference_pair(
        name,
        ASKED,
        scored(f"{name} better", 0.9, **{i: 50.0 + lead for i, lead in leads.items()}),
        scored(f"{name} worse", 0.1, **dict.fromkeys(leads, 50.0)),
    )
    assert isinstance(made, PreferencePair)
    return made


# ------------------------------------------------------------------ pure
def test_the_response_with_the_higher_reward_is_chosen() -> None:
    made = preference_pair("q", ASKED, scored("a", 0.4, c1=40.0), scored("b", 0.7, c1=70.0))
    assert isinstance(made, PreferencePair)
    assert (made.chosen.text, made.rejected.text) == ("b", "a")


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (scored("a", 0.4, c1=40.0), scored("b", 0.4, c1=40.0), "tie"),
        (scored("a", None, c1=None), scored("b", 0.4, c1=40.0), "missing_score"),
        (scored("a", 0.0, c1=0.0), scored("b", None, c1=None), "missing_score"),
        (scored("a", None, c1=None), scored("a", None, c1=None), "same_response"),
    ],
)
def test_a_tie_a_missing_score_and_equal_responses_make_no_pair(
    first: ScoredResponse, second: ScoredResponse, why: str
) -> None:
    assert preference_pair("q", ASKED, first, second) == why


def test_the_lead_is_the_largest_difference_on_one_item_and_may_be_one_of_several() -> None:
    assert pair("q", c1=5.0, c2=-30.0, c3=12.0).largest_lead == 12.0


def test_the_filter_keeps_the_largest_leads_rounded_down_and_the_earlier_of_equals() -> None:
    pairs = [pair(f"q{i}", c1=lead) for i, lead in enumerate([10.0, 40.0, 20.0, 40.0, 30.0])]
    # 40 % of 5 is 2: both leads of 40. 60 % is 3. 39 % is 1.95, so 1.
    assert [p.id for p in strongest(pairs)] == ["q1", "q3"]
    assert [p.id for p in strongest(pairs, 60.0)] == ["q1", "q3", "q4"]
    assert [p.id for p in strongest(pairs, 39.0)] == ["q1"]
    assert strongest([], 40.0) == []


def test_a_row_has_the_conversation_and_both_scores_of_each_item() -> None:
    row = pair_row(pair("q", c1=25.0))
    assert row["prompt"] == [{"role": "user", "content": "Write a line."}]
    assert row["chosen"] == [{"role": "assistant", "content": "q better"}]
    assert row["rejected"] == [{"role": "assistant", "content": "q worse"}]
    assert (row["chosen_score"], row["rejected_score"]) == (0.9, 0.1)
    assert row["items"] == {"c1": {"chosen": 75.0, "rejected": 50.0}}


# ------------------------------------------------------------------ the command
SCORES = {
    # (query, place of the response, item): the numbers of the samples, in order of their seeds
    ("alpha", 0): {"kind?": ["80", "60"], "short?": ["100", "-1"]},
    ("alpha", 1): {"kind?": ["20", "40"], "short?": ["50", "50"]},
    ("beta", 0): {"kind?": ["10", "10"], "short?": ["10", "10"]},
    ("beta", 1): {"kind?": ["10", "10"], "short?": ["10", "10"]},
    ("gamma", 0): {"kind?": ["50", "50"], "short?": ["50", "50"]},
    ("gamma", 1): {"kind?": ["n/a", "no"], "short?": ["90", "90"]},
    ("delta", 0): {"kind?": ["30", "30"], "short?": ["40", "40"]},
    ("delta", 1): {"kind?": ["31", "31"], "short?": ["40", "40"]},
}


class Models:
    """Policy and judge behind one endpoint; notes each call, and can fail from one on."""

    def __init__(self, fails_from: int | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.fails_from = fails_from

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        if self.fails_from is not None and number >= self.fails_from:
            return Reply(status=400, error={"message": "no such thing"})
        text = body["messages"][-1]["content"]
        self.calls.append((text, body["seed"]))
        if body["model"] == "policy":
            name = "same" if "epsilon" in text else f"seed {body['seed']}"
            return Reply(text=f"answer to {text} ({name})")
        found = re.search(r"answer to (\w+) \(seed (\d)\)", text)
        question = re.search(r"<question \w+>\n(.*)\n", text)
        assert found is not None
        assert question is not None
        samples = SCORES[found[1], int(found[2])][question[1]]
        return Reply(text=samples[body["seed"]])


def write_queries(path: Path, names: tuple[str, ...]) -> None:
    items = [
        {"id": "c1", "text": "kind?", "weight": 100.0},
        {"id": "c2", "text": "short?", "weight": 50.0},
    ]
    rows = [
        {"id": f"q-{n}", "messages": [{"role": "user", "content": n}], "rubric": items}
        for n in names
    ]
    rows.append(
        {
            "id": "q-weightless",
            "messages": [{"role": "user", "content": "zeta"}],
            "rubric": [*items, {"id": "c3", "text": "nice?", "weight": 0.0}],
        }
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_pairs(folder: Path, stub: StubOpenAI, *more: str) -> int:
    models = [
        part
        for role in ("policy", "judge")
        for part in (f"--{role}", role, f"--{role}-url", stub.base_url)
    ]
    arguments = [str(folder / "queries.jsonl"), "--out", str(folder / "pairs.jsonl"), *models]
    return offline_pairs.main([*arguments, "--samples", "2", *more])


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_command_writes_pairs_scores_and_why_the_others_gave_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_queries(tmp_path / "queries.jsonl", ("alpha", "beta", "gamma", "delta", "epsilon"))
    models = Models()
    with StubOpenAI(models) as stub:
        assert run_pairs(tmp_path, stub, "--keep-percent", "50") == 0
    (kept,) = rows_of(tmp_path / "pairs.jsonl")
    # alpha: kind 70 against 30, short 100 against 50; lead 50. delta leads by 1 only.
    assert kept["id"] == "q-alpha"
    assert kept["chosen"][0]["content"] == "answer to alpha (seed 0)"
    assert kept["items"] == {
        "c1": {"chosen": 70.0, "rejected": 30.0},
        "c2": {"chosen": 100.0, "rejected": 50.0},
    }
    assert kept["chosen_score"] == pytest.approx((100 * 70 + 50 * 100) / 15000)
    assert kept["rejected_score"] == pytest.approx((100 * 30 + 50 * 50) / 15000)
    files = tmp_path / "pairs.jsonl_files"
    assert {r["id"]: r["reason"] for r in rows_of(files / "dropped.jsonl")} == {
        "q-weightless": "bad_weights",
        "q-beta": "tie",
        "q-gamma": "missing_score",
        "q-epsilon": "same_response",
    }
    gamma = next(r for r in rows_of(files / "scores.jsonl") if r["id"] == "q-gamma")
    assert gamma["responses"][1]["scores"] == {"c1": None, "c2": 90.0}
    assert gamma["responses"][1]["reward"] is None
    told = capsys.readouterr().err
    assert "2 x items x samples = 40 calls to the judge" in told
    assert "2 pairs, 1 kept" in told
    # 5 prompts x 2 responses, and 4 prompts (epsilon's responses are one) x 2 x 2 items x 2.
    assert len(models.calls) == 10 + 32


def test_a_stopped_command_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    write_queries(tmp_path / "queries.jsonl", ("alpha", "delta"))
    stopped = Models(fails_from=9)
    with StubOpenAI(stopped) as stub:
        assert run_pairs(tmp_path, stub, "--keep-percent", "100") == 1
    assert rows_of(tmp_path / "pairs.jsonl") == []
    rest = Models()
    with StubOpenAI(rest) as stub:
        assert run_pairs(tmp_path, stub, "--keep-percent", "100") == 0
        assert {r["id"] for r in rows_of(tmp_path / "pairs.jsonl")} == {"q-alpha", "q-delta"}
        assert len(stopped.calls) == 9
        assert not set(stopped.calls) & set(rest.calls)
        assert len(set(rest.calls)) == len(rest.calls) == 20 - 9
        done = len(rest.calls)
        assert run_pairs(tmp_path, stub, "--keep-percent", "100") == 0
        assert len(rest.calls) == done


def test_one_sample_that_did_not_come_leaves_no_mean_over_the_others(tmp_path: Path) -> None:
    write_queries(tmp_path / "queries.jsonl", ("alpha", "delta"))
    models = Models()

    def one_fails(body: dict[str, Any], number: int) -> Reply:
        text = body["messages"][-1]["content"]
        is_lost = "alpha (seed 0)" in text and "kind?" in text and body["seed"] == 1
        return Reply(status=400, error={"message": "lost"}) if is_lost else models(body, number)

    with StubOpenAI(one_fails) as stub:
        assert run_pairs(tmp_path, stub, "--keep-percent", "100") == 1
    assert [r["id"] for r in rows_of(tmp_path / "pairs.jsonl")] == ["q-delta"]
    alpha = rows_of(tmp_path / "pairs.jsonl_files" / "scores.jsonl")[0]
    assert alpha["responses"][0]["scores"]["c1"] is None
    assert "lost" in alpha["missing"]["0/c1"]


def test_a_dry_run_tells_the_cost_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_queries(tmp_path / "queries.jsonl", ("alpha",))
    with StubOpenAI(Models()) as stub:
        price = ("--judge-set", "usd_per_million_completion_tokens=1000000")
        assert run_pairs(tmp_path, stub, "--dry-run", *price) == 0
        assert stub.seen == []
    # 8 scores of at most 10 tokens at one dollar a token.
    assert "8 calls" in (told := capsys.readouterr().err)
    assert "80.00 USD" in told
    assert not (tmp_path / "pairs.jsonl").exists()


def test_an_item_with_a_rule_is_decided_by_code_too(tmp_path: Path) -> None:
    rule = {"name": "max_words", "args": {"n": 40}}
    item = {"id": "c1", "text": "kind?", "weight": 100.0, "rule": rule}
    row = {"id": "q", "messages": [{"role": "user", "content": "alpha"}], "rubric": [item]}
    (tmp_path / "queries.jsonl").write_text(json.dumps(row) + "\n")
    with StubOpenAI(Models()) as stub:
        assert run_pairs(tmp_path, stub, "--keep-percent", "100") == 0
    (kept,) = rows_of(tmp_path / "pairs.jsonl")
    # Both have at most 40 words: (70 + 100) / 2 and (30 + 100) / 2.
    assert kept["items"] == {"c1": {"chosen": 85.0, "rejected": 65.0}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--samples", "0"), "--samples 0"),
        (("--keep-percent", "0"), "--keep-percent 0"),
        (("--limit", "0"), "--limit 0"),
    ],
)
def test_bad_options_end_with_two_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], said: str
) -> None:
    write_queries(tmp_path / "queries.jsonl", ("alpha",))
    with StubOpenAI(Models()) as stub:
        assert run_pairs(tmp_path, stub, *more) == 2
        assert stub.seen == []
    assert said in capsys.readouterr().err
