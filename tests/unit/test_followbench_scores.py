"""FollowBench's numbers: counted by hand, as the authors count, and what is missing."""

import json
from typing import Any

import pytest

from core.benchmarks.followbench import FollowBench
from core.benchmarks.followbench_scores import (
    Main,
    consistent_levels,
    followbench_scores,
    hsr_by_type,
    level_rates,
    official_tables,
)

Row = dict[str, Any]


def group(
    constraint_type: str,
    hard: list[int | None],
    soft: list[float | None] | None = None,
    of: int = 1,
) -> list[Row]:
    """The outcomes of one group, from level 1 on."""
    shares = hard if soft is None else soft
    return [
        {"id": f"{constraint_type}-{of}-{n}", "type": constraint_type, "example_id": of, "level": n,
         "hard": h, "soft": s}
        for n, (h, s) in enumerate(zip(hard, shares, strict=True), start=1)
    ]  # fmt: skip


CONTENT = [
    *group("content", [1, 1, 0, 1, 0], [1, 1, 2 / 3, 1, 0.8]),
    *group("content", [1, 0, 0, 0, 0], of=2),
]
STYLE = group("style", [1, 1, 1, 1, 1])
MIXED = group("mixed", [0, 0, 0, 0, 0], [0, 0.5, 0, 0, 0])
EXAMPLE = group("example", [1, 1, 1, 0, 1])


def test_hsr_ssr_and_csl_of_a_type_are_as_counted_by_hand() -> None:
    scores = followbench_scores(CONTENT)
    content = scores["types"]["content"]
    assert content["hsr"] == [100.0, 50.0, 0.0, 50.0, 0.0]
    assert content["ssr"] == pytest.approx([100.0, 50.0, 100 / 3, 50.0, 40.0])
    assert content["csl"] == 1.5
    assert (content["groups"], content["incomplete_groups"], content["missing"]) == (2, 0, 0)
    assert level_rates(CONTENT, "hard") == content["hsr"]
    assert consistent_levels(CONTENT) == {1: 2, 2: 1}


def test_averages_are_plain_over_the_types_of_the_papers_and_of_all_and_weighted() -> None:
    averages = followbench_scores([*EXAMPLE, *MIXED, *STYLE, *CONTENT])["averages"]
    papers, everything = averages["paper_types"], averages["all_types"]
    assert papers["types"] == ["content", "style"]
    assert papers["hsr"] == pytest.approx((40 + 100) / 2)
    assert papers["hsr_by_level"] == [100.0, 75.0, 50.0, 75.0, 50.0]
    assert papers["ssr"] == pytest.approx(((100 + 50 + 100 / 3 + 50 + 40) / 5 + 100) / 2)
    assert papers["csl"] == (1.5 + 5) / 2
    assert everything["hsr"] == pytest.approx((40 + 100 + 0 + 80) / 4)
    assert everything["ssr_by_level"][1] == pytest.approx((50 + 100 + 50) / 3)
    assert everything["csl"] == (1.5 + 5 + 0 + 3) / 4
    assert averages["weighted"]["types"] == ["content", "style", "mixed"]
    content = (100 + 2 * 50 + 4 * 50) / 15
    assert averages["weighted"]["hsr"] == pytest.approx((content + 100 + 0) / 3)


def test_hsr_by_type_is_the_plain_mean_over_levels() -> None:
    assert hsr_by_type([*STYLE, *CONTENT]) == {"content": 40.0, "style": 100.0}


@pytest.mark.parametrize(
    ("main", "at"),
    [
        ("hsr", ("paper_types", "hsr")),
        ("ssr", ("paper_types", "ssr")),
        ("csl", ("paper_types", "csl")),
        ("hsr_all_types", ("all_types", "hsr")),
        ("ssr_all_types", ("all_types", "ssr")),
        ("csl_all_types", ("all_types", "csl")),
        ("hsr_weighted", ("weighted", "hsr")),
        ("ssr_weighted", ("weighted", "ssr")),
    ],
)
def test_any_average_can_be_the_headline(main: Main, at: tuple[str, str]) -> None:
    bench = FollowBench(template="", one_template="", main=main)
    scores = bench.scores([*EXAMPLE, *MIXED, *STYLE, *CONTENT])
    assert scores["main"]["name"] == main
    assert scores["main"]["value"] == pytest.approx(scores["averages"][at[0]][at[1]])
    assert scores["main"]["low"] <= scores["main"]["value"] <= scores["main"]["high"]


def test_the_interval_draws_groups_within_their_type() -> None:
    # Content's groups have 60 and 20, style's only one has 100: a replicate is at most
    # (60 + 100) / 2 and at least (20 + 100) / 2, each in a quarter of the draws.
    main = followbench_scores([*STYLE, *CONTENT])["main"]
    assert main["n"] == 3
    assert main["value"] == pytest.approx(70.0)
    assert (main["low"], main["high"]) == (pytest.approx(60.0), pytest.approx(80.0))


def test_a_judge_failure_counts_0_is_reported_and_the_authors_minus_1_stands_beside_it() -> None:
    failed = [
        *group("content", [1, 1, None, 1, 0], [1, 1, None, 1, 0.8]),
        *group("content", [1, 0, 0, 0, 0], of=2),
    ]
    scores = followbench_scores([*failed, *STYLE])
    assert scores["missing"] == 1
    assert scores["types"]["content"]["missing"] == 1
    assert scores["types"]["content"]["hsr"] == [100.0, 50.0, 0.0, 50.0, 0.0]
    assert scores["main"]["value"] == pytest.approx(70.0)
    assert list(scores["official"]["types"]) == ["content"]
    assert scores["official"]["types"]["content"]["hsr"] == [100.0, 50.0, -50.0, 50.0, 0.0]
    assert scores["official"]["types"]["content"]["ssr"][2] == -50.0
    assert scores["official"]["averages"]["paper_types"]["hsr"] == pytest.approx((30 + 100) / 2)
    assert scores["official"]["averages"]["paper_types"]["csl"] == (1.5 + 5) / 2


def test_without_a_failure_there_is_no_second_number() -> None:
    assert "official" not in followbench_scores([*CONTENT, *STYLE])


def test_levels_and_groups_without_an_outcome_are_left_out_and_counted() -> None:
    scores = followbench_scores([*CONTENT, *group("content", [0, 0], of=3)])
    content = scores["types"]["content"]
    assert content["hsr"] == pytest.approx([200 / 3, 100 / 3, 0.0, 50.0, 0.0])
    assert (content["groups"], content["incomplete_groups"], content["csl"]) == (3, 1, 1.5)
    assert scores["main"]["value"] == pytest.approx((200 / 3 + 100 / 3 + 0 + 50 + 0) / 5)
    few = followbench_scores(group("style", [1, 0]))
    assert few["types"]["style"]["hsr"] == [100.0, 0.0, None, None, None]
    assert few["types"]["style"]["csl"] is None
    assert few["averages"]["weighted"]["hsr"] is None


@pytest.mark.parametrize("main", ["hsr", "csl", "hsr_weighted"])
def test_a_headline_that_cannot_be_had_is_none(main: Main) -> None:
    for outcomes in ([], EXAMPLE[:2]):
        score = followbench_scores(outcomes, main)["main"]
        assert (score["value"], score["low"], score["high"], score["n"]) == (None, None, None, 0)


def test_the_scores_are_json() -> None:
    scores = followbench_scores([*EXAMPLE, *MIXED, *STYLE, *CONTENT, *group("format", [None])])
    assert json.loads(json.dumps(scores)) == scores


def test_the_authors_csv_files_have_a_row_a_model() -> None:
    tables = official_tables({"a": [*CONTENT, *EXAMPLE], "b": group("content", [1, None])})
    assert sorted(tables) == [
        "content_csl.csv", "content_hsr.csv", "content_ssr.csv", "example_csl.csv",
        "example_rule_based.csv",
    ]  # fmt: skip
    assert tables["content_hsr.csv"] == [
        ["model_name", "level 1", "level 2", "level 3", "level 4", "level 5"],
        ["a", "100.00%", "50.00%", "0.00%", "50.00%", "0.00%"],
        ["b", "100.00%", "-100.00%", "", "", ""],
    ]
    assert tables["content_ssr.csv"][1][3] == "33.33%"
    assert tables["content_csl.csv"] == [["model_name", "CSL"], ["a", 1.5], ["b", ""]]
    assert tables["example_csl.csv"][1] == ["a", 3]
