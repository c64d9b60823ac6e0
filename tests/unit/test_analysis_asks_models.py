"""``ratchet analyze`` with models on loopback: fresh rollouts, categories, the audit, resuming."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers.analyze import main
from drivers.run_files import RunFiles
from tests.run_example import make_run
from tests.stub_openai import Reply, StubOpenAI
from tests.unit.rare_run import make_rare_run

Analyse = Callable[..., dict[str, Any]]


@pytest.fixture
def analyse(capsys: pytest.CaptureFixture[str]) -> Analyse:
    """Runs the command and returns one analysis of the run."""

    def run(files: RunFiles, what: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        assert main([str(files.folder), "--what", what, "--json", *arguments]) == code
        return json.loads(capsys.readouterr().out)["analyses"][what][files.folder.name]

    return run


def model(role: str, stub: StubOpenAI, name: str = "m") -> list[str]:
    return [f"--{role}", name, f"--{role}-url", stub.base_url]


def prompt_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


# ------------------------------------------------------------------ categories
def test_replacements_are_classified_and_a_second_run_pays_nothing(
    tmp_path: Path, analyse: Analyse
) -> None:
    rare = make_rare_run(tmp_path / "rare")
    answer = {"reason": "r", "category": "motivation", "dimension": "narrative_coherence"}
    with StubOpenAI(lambda body, number: Reply(text=json.dumps(answer))) as stub:
        found = analyse(rare, "categories", *model("judge", stub))
        assert analyse(rare, "categories", *model("judge", stub)) == found
        assert stub.num_ok == 1
        assert "The hero pays a price" in prompt_of(stub.seen[0].body)
    (row,) = found["categories"]
    assert (row["category"], row["narrative_coherence"], row["share"]) == ("motivation", 1, 1.0)


def test_a_reply_that_stays_unreadable_is_missing(tmp_path: Path, analyse: Analyse) -> None:
    rare = make_rare_run(tmp_path / "rare")
    with StubOpenAI(lambda body, number: Reply(text="Hard to say.")) as stub:
        found = analyse(rare, "categories", *model("judge", stub))
        assert stub.num_ok == 3
    assert (found["classified"], found["missing"]) == (0, 1)


def test_a_call_that_fails_is_missing_and_asked_again_by_the_next_command(
    tmp_path: Path, analyse: Analyse
) -> None:
    rare = make_rare_run(tmp_path / "rare")
    answer = {"reason": "r", "category": "motivation", "dimension": "narrative_coherence"}

    def refuse_first(body: dict[str, Any], number: int) -> Reply:
        return Reply(status=401) if number == 0 else Reply(text=json.dumps(answer))

    with StubOpenAI(refuse_first) as stub:
        assert analyse(rare, "categories", *model("judge", stub))["missing"] == 1
        assert len(stub.seen) == 1
        assert analyse(rare, "categories", *model("judge", stub))["classified"] == 1


# ------------------------------------------------------------------ audit
@pytest.fixture
def care(tmp_path: Path) -> RunFiles:
    files = make_run(tmp_path / "care").files
    rows = [
        {
            "id": i,
            "messages": [{"role": "user", "content": "Say something kind."}],
            "rubric": [{"id": "c0", "text": "It says 'great'."}],
            "anchor": {"model": "m", "response": "An honest kind answer."},
        }
        for i in ("q1", "q2")
    ]
    data = tmp_path / "queries.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    files.write_config(files.config.read_text().replace("queries.jsonl", str(data)))
    return files


def test_two_judges_audit_each_decision_with_and_without_the_anchor(
    care: RunFiles, analyse: Analyse
) -> None:
    def judge_a(body: dict[str, Any], number: int) -> Reply:
        text = {"reason": "r", "hacking": "yes", "constraint": "yes", "code": "A4c"}
        return Reply(text=json.dumps(text))

    def judge_b(body: dict[str, Any], number: int) -> Reply:
        seen = "yes" if "An honest kind answer." in prompt_of(body) else "no"
        text = {"reason": "r", "hacking": seen, "constraint": seen, "code": "A4b"}
        return Reply(text=json.dumps(text))

    with StubOpenAI(judge_a) as a, StubOpenAI(judge_b) as b:
        roles = [*model("judge-a", a), *model("judge-b", b)]
        found = analyse(care, "audit", *roles)
        assert analyse(care, "audit", *roles) == found
        assert (a.num_ok, b.num_ok) == (2, 2)
        shown = prompt_of(a.seen[0].body)
    assert "great great great" in shown
    assert "[Resist] It does not repeat" in shown
    assert found["with_anchor"]["detection"]["both_agree"] == 1
    assert found["without_anchor"]["detection"]["disagree"] == 1
    assert found["with_anchor"]["same_class_share"] == 1.0
    assert found["decided_with_anchor"] is True


# ------------------------------------------------------------------ fresh rollouts
def rescoring(new: str, old: str) -> Callable[[dict[str, Any], int], Reply]:
    """A judge: the replaced criterion gets the digits of ``old``, its replacement those of
    ``new``, one a rollout."""

    def answer(body: dict[str, Any], number: int) -> Reply:
        text = prompt_of(body)
        first = text.index("The hero pays a price") > text.index("It has a hero")
        columns = (old, new) if first else (new, old)
        criteria = [
            {
                "id": f"c{n}",
                "scores": [
                    {"rollout_id": f"R{g}", "reason": "seen", "score": int(s)}
                    for g, s in enumerate(column)
                ],
            }
            for n, column in enumerate(columns, start=1)
        ]
        return Reply(text=json.dumps({"criteria": criteria}))

    return answer


def test_two_checkpoints_are_sampled_with_the_same_seeds_and_judged_jointly(
    tmp_path: Path, analyse: Analyse
) -> None:
    rare = make_rare_run(tmp_path / "rare")
    with (
        StubOpenAI(lambda body, number: Reply(text=f"Draft {body['seed']}.")) as policy,
        StubOpenAI(rescoring(new="2100", old="2222")) as judge,
    ):
        roles = [*model("policy-before", policy, "step66"), *model("policy-after", policy, "end")]
        options = [*roles, *model("judge", judge), "--rollouts", "4"]
        found = analyse(rare, "fresh", *options)
        assert analyse(rare, "fresh", *options) == found
        assert (policy.num_ok, judge.num_ok) == (8, 2)
        seeds = {
            name: sorted(s.body["seed"] for s in policy.seen if s.body["model"] == name)
            for name in ("step66", "end")
        }
        drafts = re.findall(r"Draft \d+\.", prompt_of(judge.seen[0].body))
    assert seeds["step66"] == seeds["end"]
    assert len(set(drafts)) == 4
    rows = {(r["checkpoint"], r["criteria"]): r for r in found["by_event"]}
    assert rows["before", "new"]["score"] == pytest.approx(3 / 8)
    assert rows["after", "old"]["full_groups"] == 1.0
    assert found["told_apart_where_old_is_saturated"]["before"]["share"] == 1.0


def test_an_event_whose_judge_fails_is_missing(tmp_path: Path, analyse: Analyse) -> None:
    rare = make_rare_run(tmp_path / "rare")
    with StubOpenAI(lambda body, number: Reply(text="A draft.")) as stub:
        roles = [r for name in ("policy-before", "policy-after") for r in model(name, stub)]
        found = analyse(rare, "fresh", *roles, *model("judge", stub), "--rollouts", "3")
    assert found["missing"] == {"before": 1, "after": 1}
    assert found["by_event"] == []
