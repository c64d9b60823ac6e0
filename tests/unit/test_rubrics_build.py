"""``ratchet rubrics build`` over loopback: each way, retries, stops and what is left out."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers.data_files import load_queries, load_rubric
from drivers.rubrics import main
from tests.stub_openai import Reply, StubOpenAI

QUERIES = [
    {"id": "q1", "messages": [{"role": "user", "content": "Write a poem on rivers."}]},
    {"id": "q2", "prompt": "Name three bakeries.", "anchor": {"model": "m", "response": "Rye."}},
    {"id": "q3", "prompt": "Say nothing new."},
    {"id": "bad", "prompt": ""},
]


def contrast_reply(num_criteria: int = 2) -> str:
    checks = ["Images are concrete.", "The ending answers the opening.", "Sounds carry the sense."]
    return json.dumps(
        {
            "criteria": [
                {
                    "id": f"check_{i}",
                    "difference": "one shows, one tells",
                    "better": [f"R{i % 3}"],
                    "weaker": [f"R{(i + 1) % 3}"],
                    "check": checks[i],
                    "scoring_rule": "2 = throughout; 1 = in places; 0 = nowhere",
                    "max_points": 2,
                }
                for i in range(num_criteria)
            ]
        }
    )


CHECKLIST = "They want names.\nKey Criteria Questions:\n- Are there three names? (100)\n<END>"


class Models:
    """Policies and the writer behind one endpoint; notes each call, and can fail from one on."""

    def __init__(self, writes: Callable[[str], str], fails_from: int | None = None) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.fails_from = fails_from
        self._writes = writes

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        if self.fails_from is not None and number >= self.fails_from:
            return Reply(status=400, error={"message": "not now"})
        text = body["messages"][-1]["content"]
        self.calls.append((body["model"], text, body["seed"]))
        if body["model"] == "writer":
            return Reply(text=self._writes(text))
        is_same = text == "Say nothing new."
        own = "Nothing." if is_same else f"<think>hm</think>{text} take {body['seed']}"
        return Reply(text=own)

    def of(self, model: str) -> list[str]:
        return [text for name, text, _ in self.calls if name == model]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_build(folder: Path, stub: StubOpenAI, how: str, *more: str) -> int:
    source = folder / "prompts.jsonl"
    if not source.exists():
        write_rows(source, QUERIES)
    writer = ["--writer", "writer", "--writer-url", stub.base_url]
    out = ["--out", str(folder / "out")]
    return main(["build", str(source), "--how", how, *out, *writer, *more])


def policy(stub: StubOpenAI, name: str = "policy") -> tuple[str, ...]:
    return ("--policy", name, "--policy-url", stub.base_url)


def built(folder: Path) -> dict[str, Any]:
    loaded = load_queries(folder / "out" / "queries.jsonl")
    assert loaded.dropped == ()
    return {q.id: q for q in loaded.queries}


def dropped(folder: Path) -> dict[str, str]:
    rows = rows_of(folder / "out" / "dropped.jsonl")
    return {row.get("id", f"row {row.get('row')}"): row["reason"] for row in rows}


# ------------------------------------------------------------------ contrast
def test_contrast_shows_the_writer_the_rollouts_and_leaves_a_query_file_to_train_on(
    tmp_path: Path,
) -> None:
    models = Models(lambda _: contrast_reply())
    with StubOpenAI(models) as stub:
        assert run_build(tmp_path, stub, "contrast", *policy(stub), "--rollouts", "3") == 0
    queries = built(tmp_path)
    assert queries["q1"].rubric.ids == ("check_0", "check_1", "content_density")
    assert queries["q1"].rubric.criteria[0].levels == {
        2: "throughout",
        1: "in places",
        0: "nowhere",
    }
    assert queries["q2"].anchor.response == "Rye."
    assert queries["q1"].meta["rubric_built"] == {"how": "contrast", "writer": "writer"}
    assert dropped(tmp_path) == {"row 3": "empty_prompt", "q3": "no_contrast"}
    assert len(models.of("policy")) == 9
    (shown,) = [t for t in models.of("writer") if "rivers" in t]
    assert "rivers. take 2" in shown
    assert "hm" not in re.findall(r"<R0 \w+>\n(.*)\n", shown)[0]


def test_a_refused_reply_is_asked_for_again_with_what_was_wrong(tmp_path: Path) -> None:
    def writes(prompt: str) -> str:
        return contrast_reply(2 if "Your last reply was refused" in prompt else 1)

    models = Models(writes)
    with StubOpenAI(models) as stub:
        arguments = (*policy(stub), "--rollouts", "3", "--limit", "1")
        assert run_build(tmp_path, stub, "contrast", *arguments) == 0
    assert list(built(tmp_path)) == ["q1"]
    first, second = models.of("writer")
    assert "refused" not in first
    assert "got 1 criteria, wanted from 2 to 7" in second


def test_a_writer_that_never_gets_it_right_leaves_the_query_without_a_rubric(
    tmp_path: Path,
) -> None:
    models = Models(lambda _: "no idea")
    with StubOpenAI(models) as stub:
        arguments = (*policy(stub), "--rollouts", "3", "--limit", "1", "--tries", "2")
        assert run_build(tmp_path, stub, "contrast", *arguments) == 1
    assert dropped(tmp_path)["q1"] == "refused_reply"
    assert len(models.of("writer")) == 2


@pytest.mark.parametrize("stop_after", [2, 7])
def test_a_stopped_build_goes_on_and_asks_nothing_twice(tmp_path: Path, stop_after: int) -> None:
    stopped = Models(lambda _: contrast_reply(), fails_from=stop_after)
    with StubOpenAI(stopped) as stub:
        arguments = (*policy(stub), "--rollouts", "3", "--limit", "2")
        assert run_build(tmp_path, stub, "contrast", *arguments) == 1
    assert len(stopped.calls) == stop_after
    rest = Models(lambda _: contrast_reply())
    with StubOpenAI(rest) as stub:
        arguments = (*policy(stub), "--rollouts", "3", "--limit", "2")
        assert run_build(tmp_path, stub, "contrast", *arguments) == 0
        assert not set(stopped.calls) & set(rest.calls)
        assert len(rest.calls) == 2 * 3 + 2 - stop_after
        assert set(built(tmp_path)) == {"q1", "q2"}
        assert run_build(tmp_path, stub, "contrast", *arguments) == 0
        assert len(rest.calls) == 2 * 3 + 2 - stop_after


def test_a_rollout_that_did_not_come_leaves_no_rubric_from_the_others(tmp_path: Path) -> None:
    models = Models(lambda _: contrast_reply())

    def one_fails(body: dict[str, Any], number: int) -> Reply:
        is_lost = body["model"] == "policy" and body["seed"] == 1
        return Reply(status=400, error={"message": "lost"}) if is_lost else models(body, number)

    with StubOpenAI(one_fails) as stub:
        arguments = (*policy(stub), "--rollouts", "4", "--limit", "1")
        assert run_build(tmp_path, stub, "contrast", *arguments) == 1
    assert dropped(tmp_path)["q1"] == "no_response"
    assert models.of("writer") == []


def test_rollouts_of_a_run_can_stand_in_for_a_policy(tmp_path: Path) -> None:
    rollouts = [{"query_id": "q1", "response": f"verse {i}", "index": i} for i in range(3)]
    file = write_rows(tmp_path / "step_00001.jsonl", rollouts)
    models = Models(lambda _: contrast_reply())
    with StubOpenAI(models) as stub:
        assert run_build(tmp_path, stub, "contrast", "--responses", str(file)) == 0
    assert list(built(tmp_path)) == ["q1"]
    assert dropped(tmp_path)["q2"] == "no_contrast"
    assert "verse 2" in models.of("writer")[0]


def test_an_own_fixed_check_takes_the_place_of_ours(tmp_path: Path) -> None:
    own = {"id": "dichte", "text": "Nichts ist Beiwerk.", "max": 1}
    (tmp_path / "own.json").write_text(json.dumps(own))
    models = Models(lambda _: contrast_reply())
    with StubOpenAI(models) as stub:
        arguments = (*policy(stub), "--rollouts", "3", "--limit", "1")
        own_check = ("--density", str(tmp_path / "own.json"))
        assert run_build(tmp_path, stub, "contrast", *arguments, *own_check) == 0
        assert built(tmp_path)["q1"].rubric.ids[-1] == "dichte"
        more = (*arguments, "--no-density", "--min-criteria", "2")
        assert run_build(tmp_path, stub, "contrast", *more) == 0
    assert built(tmp_path)["q1"].rubric.ids == ("check_0", "check_1")


# ------------------------------------------------------------------ checklists
def test_a_checklist_is_written_from_an_expert_and_several_models(tmp_path: Path) -> None:
    models = Models(lambda _: CHECKLIST)
    with StubOpenAI(models) as stub:
        arguments = (*policy(stub, "small"), "--also", "medium", "--rollouts", "3")
        assert run_build(tmp_path, stub, "checklist", *arguments) == 0
    query = built(tmp_path)["q2"]
    assert [(c.id, c.weight) for c in query.rubric.criteria] == [("c1", 100), ("universal", 100)]
    assert (len(models.of("small")), len(models.of("medium"))) == (6, 3)
    (shown,) = [t for t in models.of("writer") if "bakeries" in t]
    assert "Rye." in shown
    assert "take 1" in shown
    files = {p.name for p in (tmp_path / "out").glob("replies_*.jsonl")}
    assert files == {
        "replies_policy.jsonl",
        "replies_policy_2.jsonl",
        "replies_writer.jsonl",
    }


def test_a_direct_checklist_needs_no_policy_and_none_means_no_questions(tmp_path: Path) -> None:
    def writes(prompt: str) -> str:
        return CHECKLIST if "bakeries" in prompt else "Key Criteria Questions:\nNone"

    models = Models(writes)
    with StubOpenAI(models) as stub:
        assert run_build(tmp_path, stub, "direct", "--universal", "none") == 0
        assert {i: q.rubric.ids for i, q in built(tmp_path).items()} == {"q2": ("c1",)}
        assert dropped(tmp_path)["q1"] == "no_questions"
        asked = len(models.calls)
        assert run_build(tmp_path, stub, "direct") == 0
    assert built(tmp_path)["q1"].rubric.ids == ("universal",)
    assert len(models.calls) == asked == 3


# ------------------------------------------------------------------ task
def test_a_shared_rubric_is_summarised_from_all_and_loads_as_a_task_rubric(
    tmp_path: Path,
) -> None:
    rubric = [{"id": "c1", "text": "Own check.", "max": 1, "levels": {"0": "no", "1": "yes"}}]
    rows = [
        {"id": f"q{i}", "messages": [{"role": "user", "content": f"Script {i}"}], "rubric": rubric}
        for i in range(5)
    ]
    rows[4]["task"] = "live action"
    write_rows(tmp_path / "prompts.jsonl", rows)

    def writes(_: str) -> str:
        reply = json.loads(contrast_reply())
        keys = ("id", "check", "scoring_rule", "max_points")
        return json.dumps({"criteria": [{k: c[k] for k in keys} for c in reply["criteria"]]})

    models = Models(writes)
    with StubOpenAI(models) as stub:
        arguments = ("--task", "animation", "--criteria", "2", "--batch", "2")
        assert run_build(tmp_path, stub, "task", *arguments) == 0
    queries = built(tmp_path)
    assert {q.task for q in queries.values()} == {"animation", "live action"}
    assert queries["q0"].rubric == queries["q3"].rubric
    assert queries["q0"].rubric.total_max == 4
    # animation: 4 rubrics in batches of 2, then their 2 summaries; live action: 1.
    assert len(models.calls) == 3 + 1
    shared = load_rubric(tmp_path / "out" / "rubrics" / "animation.json")
    assert shared == queries["q0"].rubric
    assert len(list((tmp_path / "out" / "rubrics").glob("live_action_*.json"))) == 1


def test_a_batch_that_cannot_be_summarised_leaves_no_shared_rubric_of_the_rest(
    tmp_path: Path,
) -> None:
    rows = [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": f"Script {i}"}],
            "rubric": [f"Own check {i}."],
        }
        for i in range(4)
    ]
    write_rows(tmp_path / "prompts.jsonl", rows)

    def writes(prompt: str) -> str:
        reply = json.loads(contrast_reply())
        keys = ("id", "check", "scoring_rule", "max_points")
        criteria = [{k: c[k] for k in keys} for c in reply["criteria"]]
        return "cannot" if "Own check 3." in prompt else json.dumps({"criteria": criteria})

    with StubOpenAI(Models(writes)) as stub:
        arguments = ("--task", "animation", "--criteria", "2", "--batch", "2", "--tries", "2")
        assert run_build(tmp_path, stub, "task", *arguments) == 1
    assert set(dropped(tmp_path).values()) == {"no_rubric"}
    assert not (tmp_path / "out" / "rubrics").exists()


def test_a_query_without_a_task_is_left_out_of_the_shared_rubric(tmp_path: Path) -> None:
    rows = [
        {"id": "q0", "messages": [{"role": "user", "content": "x"}], "rubric": ["Short."]},
    ]
    write_rows(tmp_path / "prompts.jsonl", rows)
    with StubOpenAI(Models(lambda _: "{}")) as stub:
        assert run_build(tmp_path, stub, "task") == 1
        assert stub.seen == []
    assert dropped(tmp_path) == {"q0": "no_task"}


# ------------------------------------------------------------------ before anything is asked
def test_a_dry_run_tells_calls_and_cost_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StubOpenAI(Models(lambda _: contrast_reply())) as stub:
        price = ("--policy-set", "usd_per_million_completion_tokens=1000000")
        arguments = (*policy(stub), "--max-response-tokens", "10", "--dry-run", *price)
        assert run_build(tmp_path, stub, "contrast", *arguments) == 0
        assert stub.seen == []
    told = capsys.readouterr().err
    # 3 queries x 8 rollouts x 10 tokens at a dollar each.
    assert "responses: openai policy, 24 calls" in told
    assert "240.00 USD" in told
    assert "rubrics: openai writer, 3 calls" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("how", "more", "said"),
    [
        ("contrast", (), "got no --policy"),
        ("direct", ("--rollouts", "3"), "--rollouts with --how direct, wanted it with contrast"),
        ("contrast", ("--universal", "two"), "wanted it with checklist or direct"),
        ("contrast", ("--rollouts", "1"), "nothing to compare"),
        ("contrast", ("--min-criteria", "9"), "--max-criteria 8"),
        ("task", ("--batch", "1"), "--batch 1, wanted at least 2"),
        ("direct", ("--tries", "0"), "--tries 0"),
        ("direct", ("--policy", "p"), "which asks none"),
        ("contrast", ("--responses", "r.jsonl", "--policy", "p"), "--policy with --responses"),
        ("contrast", ("--responses", "r.jsonl", "--seed", "3"), "--seed with --responses"),
        ("contrast", ("--responses", "nowhere.jsonl"), "got no file nowhere.jsonl"),
        ("contrast", ("--density", "nowhere.json", "--policy", "p"), "nowhere.json"),
    ],
)
def test_options_that_do_not_fit_end_with_two_before_anything_is_asked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    how: str,
    more: tuple[str, ...],
    said: str,
) -> None:
    with StubOpenAI(Models(lambda _: "")) as stub:
        rows = [{"id": "q", "messages": [{"role": "user", "content": "x"}], "rubric": ["Short."]}]
        write_rows(tmp_path / "prompts.jsonl", rows)
        assert run_build(tmp_path, stub, how, *more) == 2
        assert stub.seen == []
    assert said in capsys.readouterr().err


def test_a_file_of_responses_that_is_none_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_rows(tmp_path / "r.jsonl", [{"id": "q1", "response": "a"}, {"text": "b"}])
    with StubOpenAI(Models(lambda _: "")) as stub:
        assert run_build(tmp_path, stub, "contrast", "--responses", str(file)) == 2
    assert "r.jsonl:2: got" in capsys.readouterr().err
