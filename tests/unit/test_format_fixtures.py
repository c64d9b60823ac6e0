"""Each known format: told by its content, read with its scale and signs, written as our own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from core.formats.names import FormatName
from core.formats.native import native_row
from core.formats.reading import read_rows
from core.formats.registry import FORMATS
from core.formats.rows import Row
from core.normalisers import NORMALISERS
from core.query import Query
from core.rubric import Criterion
from drivers.data_files import LoadedQueries, load_queries, load_rubric

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"
SHARED = Path(__file__).parents[3] / "shared" / "data"


def load(name: str) -> LoadedQueries:
    return load_queries(FIXTURES / f"{name}.jsonl", strict=False)


def criteria(query: Query) -> tuple[Criterion, ...]:
    return query.rubric.criteria


def weights(query: Query) -> list[float]:
    return [c.weight for c in query.rubric.criteria]


FOUND: Mapping[str, tuple[int, str, list[str]]] = {
    "native": (2, "max_points", []),
    "plain": (2, "pos_sum", []),
    "wildchecklists": (2, "weight100", []),
    "general_requirements": (1, "weight100", ["bad_weight"]),
    "rlcf_requirements": (1, "weight100", ["no_rubrics"]),
    "rare": (2, "max_points", ["bad_rubric"]),
    "dr_tulu": (2, "pos_sum_floor1", []),
    "rar": (2, "pos_sum", []),
    "healthbench": (2, "pos_sum", []),
    "healthbench_professional": (2, "pos_sum", []),
    "chasing_tail": (2, "raw_sum", []),
    "online_rubrics": (2, "pos_sum", ["not_a_query"]),
    "open_rubrics": (2, "pos_sum", []),
    "rubric_arm": (2, "pos_sum", []),
    "research_rubrics": (2, "pos_sum", []),
    "advanced_if": (2, "pos_sum", []),
    "auto_rubric": (1, "pos_sum", ["marked_invalid"]),
    "tinker": (2, "pos_sum", []),
}
"""By fixture: queries, normaliser, reasons of what is left out."""


@pytest.mark.parametrize("name", FOUND)
def test_a_format_is_told_by_content_and_says_how_its_source_counts(name: str) -> None:
    loaded = load(name)
    num_queries, normaliser, reasons = FOUND[name]
    assert (loaded.format, loaded.normaliser) == (name, normaliser)
    assert len(loaded.queries) == num_queries
    assert [d.reason for d in loaded.dropped] == reasons
    assert all(d.detail and d.line for d in loaded.dropped)
    assert loaded.why[name]


@pytest.mark.parametrize("name", FOUND)
def test_a_queries_own_row_reads_as_the_same_query(name: str) -> None:
    queries = load(name).queries
    rows = [json.loads(json.dumps(native_row(q))) for q in queries]
    again = read_rows([Row(number=i, value=row) for i, row in enumerate(rows)])
    assert again.queries == queries
    assert again.formats == {"native": len(queries)}


def test_the_names_are_the_registrys_and_each_normaliser_exists() -> None:
    assert get_args(FormatName) == ("auto", *FORMATS)
    assert {f.normaliser for f in FORMATS.values()} <= set(NORMALISERS)


def test_a_fixture_is_there_for_every_format_that_has_rows_of_its_own() -> None:
    without = {"rar_explicit", "rare_queries"}  # rar's rows; rows without a rubric
    assert {p.stem for p in FIXTURES.glob("*.jsonl")} - {"rare_queries"} == set(FORMATS) - without


# ---------------------------------------------------------------------- what each must get right
def test_the_universal_item_of_several_lines_is_one_criterion() -> None:
    first, second = load("wildchecklists").queries
    assert weights(first) == [100, 100, 50]
    assert criteria(first)[1].text == (
        "Does the response satisfy both of these:\n1) it answers the request and nothing else\n"
        "2) its tone suits the request"
    )
    assert first.meta["chosen"] == "Sandpiper, Little Wave"
    assert second.anchor is not None
    assert second.anchor.model == "writer-1"


def test_general_and_intermediate_requirements_keep_their_weights() -> None:
    (general,) = load("general_requirements").queries
    (early,) = load("rlcf_requirements").queries
    assert (weights(general), weights(early)) == ([100, 40], [100, 80])
    assert "raw_response" not in early.meta


def test_rares_scales_tasks_and_caps_are_kept_and_no_rule_is_lost() -> None:
    first, second = load("rare").queries
    assert (first.id, first.task, second.task) == ("7", "3d_stopmotion", "live_action")
    light, end = criteria(first)
    assert (light.max, light.levels) == (2, {0: "没有。", 1: "只出现", 2: "改变"})
    assert (end.levels, end.text) == (None, "检查结尾。\n满分给收束的结尾。")
    assert second.rubric.caps[0].max_normalized_score == 0.3
    assert first.meta["stem_uid"] == "3d_video_0007_q01"


def test_rares_queries_take_the_rubric_of_their_task() -> None:
    rubric = load_queries(FIXTURES / "native.jsonl").queries[1].rubric
    path = FIXTURES / "rare_queries.jsonl"
    loaded = load_queries(path, stand_in=rubric)
    assert [q.task for q in loaded.queries] == ["2d_animation", "live_action"]
    assert loaded.queries[0].messages[0].content == "写一只纸船"
    with pytest.raises(ValueError, match=r"data\.task_rubrics\.2d_animation"):
        load_queries(path)


def test_dr_tulus_scale_is_two_and_of_old_rows_the_critical_ingredients_count() -> None:
    first, old = load("dr_tulu").queries
    assert weights(first) == [1, -1, 1]
    assert {c.max for c in criteria(first)} == {2}
    assert criteria(first)[1].levels is not None
    assert [c.text for c in criteria(old)] == ["Mention the sun compass"]
    assert old.prompt_text == "How do bees find home?"


def test_a_pitfall_that_says_what_is_wanted_is_turned_and_an_omission_is_not() -> None:
    first, listed = load("rar").queries
    assert weights(first) == [5, 3, 1, 2, -1, -1]
    assert criteria(first)[3].text == "Does not recommend butter."
    assert criteria(first)[4].text == "Pitfall Criteria: Recommends ice on the skin."
    assert (first.meta["pitfalls_turned"], first.meta["pitfalls_as_penalty"]) == (1, 2)
    assert first.anchor is not None
    assert weights(listed) == [1, -1]


def test_rar_explicit_has_the_papers_category_weights_and_no_penalty() -> None:
    loaded = load_queries(FIXTURES / "rar.jsonl", format="rar_explicit")
    assert weights(loaded.queries[0]) == [1.0, 0.7, 0.3, 0.9, 0.9, 0.9]
    texts = [c.text for c in criteria(loaded.queries[0])]
    assert texts[3:5] == [
        "Does not recommend butter.",
        "Avoids this mistake: Recommends ice on the skin.",
    ]
    assert loaded.format == "rar_explicit"


def test_healthbenchs_negative_points_are_penalties_and_its_tags_are_kept() -> None:
    first, _ = load("healthbench").queries
    assert [(c.weight, c.is_penalty, c.max) for c in criteria(first)] == [
        (7, False, 1),
        (-6, True, 1),
    ]
    assert len(first.messages) == 3
    assert first.meta["rubric_tags"] == {
        "c1": ["level:example", "axis:accuracy"],
        "c2": ["level:example", "axis:accuracy"],
    }
    assert first.anchor is not None
    assert first.anchor.response == "Clicking without pain is common."
    nested, flat = load("healthbench_professional").queries
    assert (weights(nested), flat.prompt_text) == ([8, -5], "Sum up this note.")


def test_chasing_tails_weights_are_maxima_in_both_layouts() -> None:
    released, pipeline = load("chasing_tail").queries
    assert [(c.max, c.weight) for c in criteria(released)] == [(3, 3), (1, 1)]
    assert (pipeline.id, criteria(pipeline)[0].max) == ("ct-2", 2)


def test_tags_of_open_rubrics_leave_the_text_and_stay_in_meta() -> None:
    first, second = load("open_rubrics").queries
    texts = [c.text for q in (first, second) for c in criteria(q)]
    assert texts == [
        "The response has two sentences.",
        "The response is warm.",
        "The response names one tree.",
    ]
    assert first.meta["rubric_tags"] == {"c1": "hard_rule", "c2": "principle"}
    arm, listed = load("rubric_arm").queries
    assert arm.meta["rubric_tags"] == {"c1": "hard_rule", "c2": "principle"}
    assert (arm.id, listed.meta["chosen"]) == ("a-1", "A perch.")


def test_conversations_as_json_text_and_their_rubrics_are_read() -> None:
    first, second = load("advanced_if").queries
    assert [m.role for m in first.messages] == ["user", "assistant", "user"]
    assert [c.text for c in criteria(second)] == ["Is it French?"]
    research, _ = load("research_rubrics").queries
    assert (research.id, weights(research)) == ("s-1", [5, -3])
    assert research.meta["rubric_tags"] == {"c1": "Explicit Criteria", "c2": "Communication"}


# ---------------------------------------------------------------------- the shared samples
SAMPLES = {
    "wildchecklists.synthetic.jsonl": "wildchecklists",
    "rlcf_requirements.synthetic.jsonl": "rlcf_requirements",
    "rare_row.synthetic.jsonl": "rare",
    "dr_tulu.synthetic.jsonl": "dr_tulu",
    "rar.synthetic.jsonl": "rar",
    "healthbench.synthetic.jsonl": "healthbench",
    "chasing_tail.synthetic.jsonl": "chasing_tail",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_shared_sample_loads_as_its_format(name: str) -> None:
    loaded = load_queries(_shared("format_samples", name))
    assert loaded.format == SAMPLES[name]
    assert len(loaded.queries) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("online_rubrics.synthetic.jsonl", "not_a_query"),
        ("arena_judgment.synthetic.jsonl", "empty_prompt"),
    ],
)
def test_a_shared_file_of_judgements_is_named_as_no_queries(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_queries(_shared("format_samples", name), strict=False)


def test_the_shared_rubric_files_and_queries_of_rare_and_mpo_load() -> None:
    mpo = load_rubric(_shared("format_samples", "mpo_evaluation_rubric_iter_1.synthetic.txt"))
    assert [c.max for c in mpo.criteria] == [5, 5]
    rare = _shared("rare", "case_queries.jsonl")
    rubric = load_rubric(_shared("rare", "task_level_2d_animation_r0.json"))
    loaded = load_queries(rare, stand_in=rubric)
    tasks = [q.task for q in loaded.queries]
    assert (len(tasks), len(set(tasks))) == (9, 3)


def _shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.is_file():
        pytest.skip("the shared samples are not here")
    return path


def row(value: Any) -> Row:
    return Row(number=0, value=value, line=1)


def test_a_row_of_two_formats_is_named_and_an_override_settles_it() -> None:
    both = {
        "prompt": "p",
        "rubric_valid": "True",
        "input": [{"role": "user", "content": "q"}],
        "rubrics": [{"criterion": "c", "points": 2}],
    }
    (dropped,) = read_rows([row(both)]).dropped
    assert dropped.reason == "ambiguous_format"
    assert "auto_rubric" in dropped.detail
    assert "healthbench" in dropped.detail
    assert read_rows([row(both)], "healthbench").queries[0].prompt_text == "p"


def test_a_row_that_no_format_claims_is_read_as_most_of_its_file() -> None:
    good = {"prompt": "p", "rubrics": [{"criterion": "c", "weight": 2}], "total_weight": 2}
    cut = {"prompt": "q", "rubrics": [{"criterion": "c", "weight": 3}]}
    read = read_rows([row(good), row(cut)])
    assert read.formats == {"chasing_tail": 2}
    assert read.queries[1].rubric.criteria[0].max == 3


def test_what_may_be_two_formats_is_read_plainly_with_a_note() -> None:
    read = read_rows([row({"prompt": "q", "rubrics": [{"criterion": "c", "weight": 3}]})])
    assert read.formats == {"plain": 1}
    assert "chasing_tail" in read.notes[0]
    assert "line 1" in read.notes[0]


def test_text_after_the_last_importance_note_drops_the_row() -> None:
    block = "1) Is it short? (importance: 90/100)\n2) Is it kind?"
    (dropped,) = read_rows([row({"prompt": "p", "requirements": block})]).dropped
    assert dropped.reason == "bad_rubric"
    assert "Is it kind?" in dropped.detail
