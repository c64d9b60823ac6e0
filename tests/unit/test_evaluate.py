"""``ratchet evaluate`` over an endpoint on loopback: whole benchmarks, stops, refusals."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drivers import evaluate
from drivers.benchmark_registry import BENCHMARKS, build_benchmark
from tests.scripted_judges import DATA, FIXTURES, data_of, judge_reply, policy_reply
from tests.stub_openai import Reply, StubOpenAI


class Endpoint:
    """A policy and a judge behind one address; the judge can be taken away after some replies."""

    def __init__(self, benchmark: str, judge_ends_after: int | None = None) -> None:
        self._benchmark = benchmark
        self._judge_ends_after = judge_ends_after
        self.asked: list[str] = []
        """Every call that got a reply: model and conversation."""

    def answer(self, body: dict[str, Any], number: int) -> Reply:
        is_judge = body["model"] == "judge"
        num_judged = sum(call.startswith("judge") for call in self.asked)
        if is_judge and self._judge_ends_after is not None and num_judged >= self._judge_ends_after:
            return Reply(status=500)
        self.asked.append(f"{body['model']} {json.dumps(body['messages'])} {body['seed']}")
        text = judge_reply(self._benchmark, body) if is_judge else policy_reply(self._benchmark)
        return Reply(text=text)


def command(benchmark: str, address: str, out: Path, *more: str) -> list[str]:
    models = [
        part
        for role in ("model", "judge")
        for part in (
            f"--{role}",
            "policy" if role == "model" else "judge",
            f"--{role}-url",
            address,
            f"--{role}-set",
            "max_attempts=1",
        )
    ]
    return [benchmark, "--data", *data_of(benchmark), "--out", str(out), *models, *more]


def run(benchmark: str, out: Path, endpoint: Endpoint, *more: str) -> int:
    with StubOpenAI(endpoint.answer) as stub:
        return evaluate.main(command(benchmark, stub.base_url, out, *more))


def scores(out: Path) -> dict[str, Any]:
    return json.loads((out / "scores.json").read_bytes())


@pytest.mark.parametrize("benchmark", sorted(BENCHMARKS))
def test_each_benchmark_goes_on_after_a_stop_without_a_second_call_for_what_is_done(
    tmp_path: Path, benchmark: str
):
    stopped = Endpoint(benchmark, judge_ends_after=1)
    assert run(benchmark, tmp_path, stopped) == 1
    assert scores(tmp_path)["unfinished"]

    resumed = Endpoint(benchmark)
    assert run(benchmark, tmp_path, resumed) == 0
    twice = [call for call, n in Counter(stopped.asked + resumed.asked).items() if n > 1]
    # Tasks with the same text are two calls; nothing else is asked twice.
    assert len(twice) <= len(resumed.asked) // 4, twice
    assert not set(stopped.asked) & set(resumed.asked)
    result = scores(tmp_path)
    assert result["unfinished"] == {}
    assert result["main"]["value"] is not None

    done = Endpoint(benchmark)
    assert run(benchmark, tmp_path, done) == 0
    assert done.asked == []
    assert scores(tmp_path) == result


def test_every_benchmark_has_data_for_the_tests():
    assert set(DATA) == set(BENCHMARKS)


def test_the_judge_s_words_make_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run("writingbench", tmp_path, Endpoint("writingbench")) == 0
    assert scores(tmp_path)["main"]["value"] == 7.0
    assert "main.value" in capsys.readouterr().out


def test_answers_can_be_given_and_are_not_asked_for(tmp_path: Path):
    answers = tmp_path / "answers.jsonl"
    rows = [{"id": f"p{i}", "response": "Gull."} for i in (1, 2)]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    endpoint = Endpoint("pairwise")
    with StubOpenAI(endpoint.answer) as stub:
        given = command("pairwise", stub.base_url, tmp_path / "out", "--answers", str(answers))
        at = given.index("--model")
        code = evaluate.main(given[:at] + given[at + 6 :])
    assert code == 1  # p3 has no answer
    assert list(scores(tmp_path / "out")["unfinished"]) == ["p3"]
    assert not any(call.startswith("policy") for call in endpoint.asked)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--set", "mode=three_orders"], "mode"),
        (["--set", "colour=red"], "wanted KEY=VALUE with an option of pairwise"),
        (["--judge-set", "speed=3"], "wanted KEY=VALUE with one of"),
        (["--steps", "10"], "got --steps without --run"),
        (["--run", "nowhere"], "of --run, --model and --answers, wanted one"),
    ],
)
def test_wrong_input_ends_with_one_sentence_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: Sequence[str], told: str
):
    endpoint = Endpoint("pairwise")
    assert run("pairwise", tmp_path / "out", endpoint, *more) == 2
    assert told in capsys.readouterr().err
    assert endpoint.asked == []


def test_a_dry_run_says_what_it_would_ask_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    endpoint = Endpoint("pairwise")
    prices = ["--judge-set", "usd_per_million_completion_tokens=1000"]
    assert run("pairwise", tmp_path / "out", endpoint, "--dry-run", *prices) == 0
    told = capsys.readouterr().err
    assert "answers of model: openai policy, 3 calls" in told
    assert "judgements of model, the first ones: openai judge, 3 calls" in told
    assert "6.14 USD" in told  # three replies of at most 2,048 tokens
    assert endpoint.asked == []
    assert not (tmp_path / "out").exists()


def test_what_is_no_row_in_a_folder_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "biggen"
    folder.mkdir()
    for file in (FIXTURES / "biggen").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "excluded_18_ids.json").write_text('["refinement_llm_judge_absolute_0"]')
    endpoint = Endpoint("biggen")
    with StubOpenAI(endpoint.answer) as stub:
        given = command("biggen", stub.base_url, tmp_path / "out")
        given[2] = str(folder)
        assert evaluate.main(given) == 0
    assert "excluded_18_ids.json" in json.dumps(scores(tmp_path / "out")["dropped"])


def test_judges_are_never_mixed_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run("infobench", tmp_path, Endpoint("infobench")) == 0
    endpoint = Endpoint("infobench")
    with StubOpenAI(endpoint.answer) as stub:
        other = command("infobench", stub.base_url, tmp_path)
        other[other.index("judge")] = "another-judge"
        assert evaluate.main(other) == 2
    assert "got another evaluation (judge 'openai judge', now" in capsys.readouterr().err
    assert endpoint.asked == []


def test_an_endpoint_that_never_answers_ends_the_command_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with StubOpenAI(lambda body, number: Reply(status=500)) as stub:
        code = evaluate.main(command("followbench", stub.base_url, tmp_path))
        assert len(stub.seen) <= 64
    assert code == 1
    assert "got no reply 20 times in a row from the model under test" in capsys.readouterr().err


def test_options_have_the_types_of_the_benchmark():
    arena = build_benchmark("arena_hard", ["categories=creative_writing", "attempts=2"])
    assert (arena.categories, arena.attempts) == (("creative_writing",), 2)  # pyright: ignore[reportAttributeAccessIssue]
    assert build_benchmark("biggen", ["with_judge_tasks=true"]).with_judge_tasks is True  # pyright: ignore[reportAttributeAccessIssue]


def test_two_evaluations_are_compared_task_by_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("a", "b"):
        assert run("writingbench", tmp_path / name, Endpoint("writingbench")) == 0
    outcomes = tmp_path / "a" / "outcomes.jsonl"
    outcomes.write_text(outcomes.read_text().replace('"score": 7', '"score": 9'))
    capsys.readouterr()
    result = tmp_path / "result.json"
    folders = [str(tmp_path / "a"), "--against", str(tmp_path / "b")]
    assert evaluate.main(["compare", *folders, "--out", str(result)]) == 0
    difference = json.loads(result.read_bytes())["difference"]
    assert difference["difference"] == 2.0
    assert difference["interval"] == {"low": 2.0, "high": 2.0}
    assert "difference.num_pairs" in capsys.readouterr().out


def test_evaluations_of_other_data_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run("writingbench", tmp_path / "a", Endpoint("writingbench")) == 0
    assert run("infobench", tmp_path / "b", Endpoint("infobench")) == 0
    folders = [str(tmp_path / "a"), "--against", str(tmp_path / "b")]
    assert evaluate.main(["compare", *folders]) == 2
    assert "another benchmark" in capsys.readouterr().err
