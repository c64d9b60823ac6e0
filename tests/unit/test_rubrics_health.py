"""``ratchet rubrics health``: numbers from a run's files, a judge asked again, a model's labels."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.rubric_log import RubricLog
from drivers.config_file import dump_config
from drivers.rubrics import main
from drivers.run_files import RunFiles
from drivers.run_folder import RunFolder, RunRecorder
from drivers.trackers import Trackers
from tests.run_example import example_config, example_group, example_query, make_run
from tests.stub_openai import Reply, StubOpenAI


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    """Twelve steps of q1 and q2, with the data that the run was started with."""
    files = make_run(tmp_path / "mine").files
    write_queries(tmp_path / "queries.jsonl")
    change_config(files, {"data": {"train": str(tmp_path / "queries.jsonl")}})
    change_config(files, {"evolution": {"care": {"anchor": False}}})
    return files


def write_queries(path: Path) -> None:
    rows = [
        {
            "id": query_id,
            "messages": [{"role": "user", "content": f"Say something kind, {query_id}."}],
            "rubric": [{"id": "c0", "text": "It says 'great'."}],
        }
        for query_id in ("q1", "q2")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def change_config(files: RunFiles, changes: Mapping[str, Mapping[str, Any]]) -> None:
    tree = yaml.safe_load(files.config.read_bytes())
    for section, values in changes.items():
        for name, value in values.items():
            is_tree = isinstance(value, dict) and isinstance(tree[section].get(name), dict)
            tree[section][name] = tree[section][name] | value if is_tree else value
    files.write_config(yaml.safe_dump(tree))


def health(
    capsys: pytest.CaptureFixture[str], run: RunFiles, *arguments: str, code: int = 0
) -> dict[str, Any]:
    assert main(["health", str(run.folder), "--json", *arguments]) == code
    return json.loads(capsys.readouterr().out)["rubrics"]


def by_id(rubric: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {c["criterion"]["id"]: c for c in rubric["criteria"]}


def test_the_numbers_are_those_of_the_runs_rollouts(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    rubrics = health(capsys, run)
    # c0: scores 1, 1, 0, 1 in each of 12 groups: mean 3/4, deviation sqrt(3)/4.
    c0 = by_id(rubrics["q1"])["c0"]
    assert (c0["visits"], c0["full_rate"], c0["age_steps"]) == (12, 0.75, 12)
    assert c0["discrimination"] == pytest.approx(3**0.5 / 4)
    # c1 came in with step 3 and is first graded in step 4: scores 0, 1, 1, 1.
    c1 = by_id(rubrics["q1"])["c1"]
    assert (c1["since_version"], c1["visits"], c1["age_steps"]) == (1, 9, 9)
    assert (c1["veto_rate"], c1["all_zero_rate"]) == (0.25, 0.0)
    # The other query's rubric: one of its 48 verdicts failed.
    assert by_id(rubrics["q2"])["c0"]["failure_rate"] == pytest.approx(1 / 48)
    assert by_id(rubrics["q2"])["c0"]["rest_correlation"] is None
    assert not run.health.exists()


def test_the_table_shows_each_criterion_and_what_the_columns_mean(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    assert main(["health", str(run.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 criteria of 2 rubrics over 12 steps"
    assert lines[1].split()[:3] == ["visits", "discr", "corr"]
    assert any(line.startswith("9 ") and "q1" in line and "c1 [Resist]" in line for line in lines)
    assert any("discr: deviation of the scores in a group" in line for line in lines)


def test_the_runs_own_judge_is_asked_again_for_graded_rollouts(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    def answer(body: dict[str, Any], number: int) -> Reply:
        return Reply(text='{"c1": {"reason": "r", "score": 1}, "c2": {"reason": "r", "score": 1}}')

    with StubOpenAI(answer) as stub:
        served = {"backend": "openai", "model": "j", "base_url": stub.base_url}
        change_config(run, {"judge": served})
        rubrics = health(capsys, run, "--rubric", "q1", "--resample", "9")
    assert len(stub.seen) == 9
    assert all("Say something kind, q1." in s.body["messages"][0]["content"] for s in stub.seen)
    c0 = by_id(rubrics["q1"])["c0"]["disagreement"]
    assert (c0["num_asked"], c0["num_failed"]) == (9, 0)
    # The judge says 1 to everything: it differs where the run has 0.
    rows = [row for _, found in run.read_rollouts() for row in found if row["query_id"] == "q1"]
    picked = [rows[(2 * i + 1) * 48 // 18] for i in range(9)]
    zeros = sum(row["verdicts"]["c0"]["score"] == 0 for row in picked)
    assert c0["rate"] == pytest.approx(zeros / 9)
    assert 0 < zeros < 9
    # c1 only of the rollouts that were graded with it.
    c1 = by_id(rubrics["q1"])["c1"]["disagreement"]
    assert c1["num_asked"] == sum("c1" in row["verdicts"] for row in picked) < 9
    # What was asked is kept, and shown again without a call.
    kept = health(capsys, run)
    assert by_id(kept["q1"])["c0"]["disagreement"] == c0
    assert by_id(kept["q2"])["c0"]["disagreement"] is None


def test_a_judge_that_fails_is_counted_and_no_disagreement(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    with StubOpenAI(lambda body, number: Reply(status=400, error={"message": "no"})) as stub:
        served = {"backend": "openai", "model": "j", "base_url": stub.base_url}
        change_config(run, {"judge": served})
        rubrics = health(capsys, run, "--resample", "4", code=1)
    found = [c["disagreement"] for r in rubrics.values() for c in r["criteria"]]
    asked = [d for d in found if d is not None]
    assert sum(d["num_failed"] for d in asked) == sum(d["num_asked"] for d in asked) >= 4
    assert {d["rate"] for d in asked} == {None}


def labels_of(body: dict[str, Any], number: int) -> Reply:
    is_q1 = "Say something kind, q1." in body["messages"][0]["content"]
    entries = [{"name": "C1", "why": "a word meets it", "modes": ["hackable"]}]
    if is_q1:
        entries.append({"name": "C2", "why": "", "modes": []})
    missing = {"why": "kindness itself", "present": is_q1}
    return Reply(text=json.dumps({"criteria": entries, "missing_criteria": missing}))


def test_labels_come_from_one_call_a_rubric_and_are_kept(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    with StubOpenAI(labels_of) as stub:
        model = ("--model", "m", "--base-url", stub.base_url)
        assert main(["health", str(run.folder), "--label", *model]) == 0
    written = capsys.readouterr()
    assert "labelling: openai m, 2 rubrics, 2 calls" in written.err
    assert "q1, c0: hackable (a word meets it)" in written.out
    assert "q1, the rubric: missing_criteria (kindness itself)" in written.out
    assert "labels: 2 without a fault, 0 not labelled" in written.out
    assert len(stub.seen) == 2
    assert stub.seen[0].body["response_format"]["type"] == "json_schema"
    assert "A calm and short answer." in stub.seen[0].body["messages"][0]["content"]
    kept = json.loads(run.health.read_bytes())["rubrics"]
    assert by_id(kept["q1"])["c1"]["label"] == {"modes": [], "reason": "", "failure": None}
    # A criterion that changes loses its label; the others keep theirs.
    main(["rollback", str(run.folder), "--rubric", "q1", "--to", "0"])
    capsys.readouterr()
    rubrics = health(capsys, run)
    assert by_id(rubrics["q1"])["c0"]["label"]["modes"] == ["hackable"]
    assert rubrics["q1"]["missing_criteria"] is None
    assert rubrics["q2"]["missing_criteria"]["modes"] == []


def test_a_reply_that_cannot_be_read_is_a_failure_with_its_reason(
    run: RunFiles, capsys: pytest.CaptureFixture[str]
):
    with StubOpenAI(lambda body, number: Reply(text="All of them look fine to me.")) as stub:
        model = ("--label", "--model", "m", "--base-url", stub.base_url)
        rubrics = health(capsys, run, *model, code=1)
    label = by_id(rubrics["q1"])["c0"]["label"]
    assert (label["modes"], label["failure"]) == (None, "unparsable")
    assert "no JSON object" in label["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--label",), "backend=rules, which cannot label"),
        (("--model", "m"), "without --label"),
        (("--resample", "-3"), "got --resample -3"),
        (
            ("--label", "--model", "m", "--api-key-env", "sk-secret"),
            "a model that cannot be asked: api_key_env: got a text that is no name",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    run: RunFiles, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
):
    assert main(["health", str(run.folder), *arguments]) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert "secret" not in written.err
    assert written.out == ""


def test_data_that_is_gone_is_named_when_it_is_needed(
    run: RunFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "queries.jsonl").unlink()
    health(capsys, run)  # its numbers need the run's files only
    assert main(["health", str(run.folder), "--resample", "2"]) == 2
    assert "queries.jsonl" in capsys.readouterr().err


def test_a_rubric_that_a_task_shares_counts_the_groups_of_all_its_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tree = example_config().model_dump(mode="json")
    tree["evolution"] = {"method": "static", "scope": "task"}
    folder = RunFolder(tmp_path / "run")
    folder.begin(dump_config(type(example_config()).model_validate(tree)), 0)
    queries = [
        example_query(query_id).model_copy(update={"task": task})
        for query_id, task in (("q1", "kind"), ("q2", "polite"), ("q3", "kind"))
    ]
    log = RubricLog(folder.rubrics)
    log.register({"task:kind": queries[0].rubric, "task:polite": queries[1].rubric})
    log.close()
    recorder = RunRecorder(folder.files, Trackers([]))
    for step in (1, 2):
        shown = queries if step == 1 else queries[:1]
        recorder.step(step, [example_group(q, q.rubric, step) for q in shown], {})
    rubrics = health(capsys, folder.files)
    assert by_id(rubrics["task:kind"])["c0"]["visits"] == 3
    assert by_id(rubrics["task:polite"])["c0"]["visits"] == 1
    assert set(health(capsys, folder.files, "--rubric", "polite")) == {"task:polite"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.pop("verdicts"),
        lambda row: row.update(verdicts=[1]),
        lambda row: row["verdicts"]["c0"].update(score=7),
        lambda row: row["verdicts"]["c0"].update(max=3),
    ],
)
def test_a_damaged_record_is_one_sentence(
    run: RunFiles, capsys: pytest.CaptureFixture[str], damage: Callable[[dict[str, Any]], object]
):
    path = run.rollouts / "step_00005.jsonl"
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    damage(rows[0])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["health", str(run.folder)]) == 2
    message = capsys.readouterr().err
    assert "that is not a run's" in message
    assert message.count("\n") == 1
