"""Style control: features of an answer, and the exact optimum of the joint fit."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from core.benchmarks.arena_style import (
    AUTHORS_COUNTER,
    STAND_IN,
    answer_metadata,
    approximate_tokens,
    style_controlled,
    style_features,
)
from core.benchmarks.bradley_terry import optima, optimum
from core.errors import ConfigError
from core.rows import Row
from drivers import token_counter
from tests.unit.arena_rows import FIXTURES, SHARED, files, metadata, outcome, vector_outcomes

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")

VECTOR = json.loads((FIXTURES / "style_vector.json").read_text(encoding="utf-8"))


# ------------------------------------------------------------------ one answer
def test_markdown_is_counted_outside_of_code_blocks() -> None:
    text = (
        "# One\n## Two\n####### seven\n#none\n"
        "1. first\n  2. second\n- a\n* b\n  + c\n-d\n"
        "**bold** and __under__ and ** not closed\n"
        "```\n# code\n- code\n**code**\n```\n"
    )
    counts = answer_metadata(text, STAND_IN)
    assert counts["header_count"] == {"h1": 1, "h2": 1, "h3": 0, "h4": 0, "h5": 0, "h6": 0}
    assert counts["list_count"] == {"ordered": 2, "unordered": 3}
    assert counts["bold_count"] == {"**": 1, "__": 1}


def test_the_content_of_a_code_block_is_taken_out_wherever_it_stands() -> None:
    counts = answer_metadata("```- a```\n- a\n- b", STAND_IN)
    assert counts["list_count"]["unordered"] == 1


def test_style_features_are_the_authors_four_differences() -> None:
    model = metadata(99, header=2, items=4, bold=1)
    baseline = metadata(49, header=0, items=1, bold=5)
    expected = (
        50 / 148,
        0.02 / 1.02,
        (0.04 - 0.02) / 1.06,
        (0.01 - 0.1) / 1.11,
    )
    assert style_features(model, baseline) == pytest.approx(expected)
    assert style_features(metadata(0), metadata(0)) == (0.0, 0.0, 0.0, 0.0)


def test_the_stand_in_counts_words_digits_marks_and_newlines() -> None:
    assert approximate_tokens("") == 0
    assert approximate_tokens("The cat, 12345!\n\nextraordinary") == 1 + 1 + 1 + 2 + 1 + 1 + 3


@needs_shared
def test_the_authors_counts_of_markdown_are_found_again() -> None:
    name = "o3-mini-2025-01-31.answers.sample.jsonl"
    for row in files(name, folder=SHARED / "arena_hard")[name]:
        counts = answer_metadata(row["messages"][-1]["content"]["answer"], STAND_IN)
        assert counts | {"token_len": 0} == row["metadata"] | {"token_len": 0}


@needs_shared
def test_the_stand_in_is_near_the_authors_lengths() -> None:
    name = "o3-mini-2025-01-31.answers.sample.jsonl"
    rows = files(name, folder=SHARED / "arena_hard")[name]
    ours = [approximate_tokens(r["messages"][-1]["content"]["answer"]) for r in rows]
    theirs = [r["metadata"]["token_len"] for r in rows]
    assert sum(ours) == pytest.approx(sum(theirs), rel=0.15)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.97


# ------------------------------------------------------------------ the fit
def test_our_vector_has_its_exact_optimum() -> None:
    expected = VECTOR["expected"]
    rows = vector_outcomes(VECTOR)
    assert [list(r["scores"]) for r in rows] == [r["scores"] for r in VECTOR["rows"]]
    fit = style_controlled({"m": rows}, replicates=500)
    score = fit.scores["m"]
    assert fit.num_battles == expected["n_battles"]
    assert score.value == pytest.approx(100 * expected["style_controlled"], abs=1e-9)
    assert fit.coefficients == {"length": pytest.approx(expected["length_coefficient"], abs=1e-6)}
    assert fit.constant_features == ("header", "list", "bold")


@needs_shared
def test_the_shared_vector_has_its_exact_optimum() -> None:
    path = SHARED / "format_samples" / "arena_style_control_vector.synthetic.json"
    vector = json.loads(path.read_text(encoding="utf-8"))
    rows, expected = vector_outcomes(vector), vector["expected"]
    assert [list(r["scores"]) for r in rows] == [r["scores"] for r in vector["rows"]]
    battles = [s for r in rows for s in r["scores"]]
    assert len(battles) == expected["n_battles"]
    assert sum(battles) / len(battles) == pytest.approx(expected["vanilla"], abs=1e-12)
    fit = style_controlled({"m": rows}, replicates=200)
    assert fit.scores["m"].value == pytest.approx(100 * expected["style_controlled"], abs=5e-4)
    assert list(fit.coefficients.values()) == pytest.approx(expected["style_coefs"], abs=1e-5)


def scattered(num_prompts: int, seed: int) -> list[Row]:
    """Outcomes whose length, lists and bold text vary, and matter."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for i in range(num_prompts):
        model = metadata(int(rng.integers(50, 800)), items=int(rng.integers(9)), bold=i % 4)
        baseline = metadata(int(rng.integers(50, 800)), items=int(rng.integers(9)), bold=2)
        edge = style_features(model, baseline)[0] + rng.normal() + 0.3
        game_1, game_2 = ("B>A" if edge > 0 else "A>B"), ("A>>B" if edge > 0.8 else "A=B")
        rows.append(outcome(f"u{i}", game_1, game_2, model=model, baseline=baseline))
    return rows


def test_the_interval_holds_the_optimum_and_is_the_same_each_time() -> None:
    rows = scattered(60, seed=1)
    fit, again = (style_controlled({"m": rows}, replicates=400) for _ in range(2))
    score = fit.scores["m"]
    assert None not in (score.low, score.value, score.high)
    assert score.low < score.value < score.high  # pyright: ignore[reportOptionalOperand]
    assert score.official["low"] < score.official["value"] < score.official["high"]
    assert fit == again


def test_a_fit_depends_on_which_models_are_in_it() -> None:
    first, second = scattered(40, seed=1), scattered(40, seed=2)
    alone = style_controlled({"one": first}, replicates=1).scores["one"].value
    joint = style_controlled({"one": first, "two": second}, replicates=1)
    assert set(joint.scores) == {"one", "two"}
    assert joint.scores["one"].value != pytest.approx(alone, abs=1e-3)


def test_without_any_difference_of_style_the_scores_are_the_vanilla_ones() -> None:
    one = [outcome("1", "B>A", "A>B"), outcome("2", "A>B", "B>A"), outcome("3", "B>A", "B>A")]
    two = [outcome("1", "A>B", "A>B"), outcome("2", "A>>B", "A=B")]
    fit = style_controlled({"one": one, "two": two}, replicates=1)
    assert fit.coefficients == {}
    assert fit.scores["one"].value == pytest.approx(100 * 3 / 6)
    assert fit.scores["two"].value == pytest.approx(100 * 1.5 / 6)


def test_a_model_that_wins_every_battle_has_no_score_at_equal_style() -> None:
    rows = [outcome(str(i), "B>A", "A>B", model=metadata(100 + i)) for i in range(9)]
    score = style_controlled({"m": rows}, replicates=10).scores["m"]
    assert (score.value, score.low, score.high) == (None, None, None)


def test_an_interval_is_missing_where_too_many_replicates_have_no_optimum() -> None:
    rows = [outcome(str(i), "B>A", "A>B") for i in range(4)] + [outcome("x", "A>B", "A>B")]
    fit = style_controlled({"m": rows}, replicates=300)
    assert fit.scores["m"].value == pytest.approx(90.0)
    assert fit.lost_replicates == pytest.approx(300 * 0.8**5, abs=40)
    assert (fit.scores["m"].low, fit.scores["m"].high) == (None, None)


def test_dropped_rows_are_counted_and_their_battles_are_not_in_the_fit() -> None:
    rows = [outcome("1", "B>A", "B>A"), outcome("2", None, "A>B"), outcome("3", "A>B", "A>B")]
    rows[2]["style"] = None
    fit = style_controlled({"m": rows}, replicates=1)
    assert (fit.num_battles, fit.num_dropped) == (2, 2)


def test_lengths_of_two_counters_are_never_compared() -> None:
    rows = {"one": [outcome("1", "B>A", "B>A")],
            "two": [outcome("1", "B>A", "B>A", counter=AUTHORS_COUNTER)]}  # fmt: skip
    with pytest.raises(ConfigError, match=r"more than one counter of lengths \(stand-in, tik"):
        style_controlled(rows)


def test_two_baselines_the_baseline_itself_and_no_battles_are_refused() -> None:
    row, other = outcome("1", "B>A", "B>A"), outcome("2", "B>A", "B>A") | {"baseline": "c"}
    with pytest.raises(ConfigError, match="more than one baseline"):
        style_controlled({"m": [row, other]})
    with pytest.raises(ConfigError, match="got the baseline 'b' among the models"):
        style_controlled({"b": [row]})
    with pytest.raises(ConfigError, match="no outcome with scores and style"):
        style_controlled({"m": [outcome("1", None, None)]})


# ------------------------------------------------------------------ the optimum
def random_battles(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = np.concatenate([np.ones((80, 1)), rng.normal(size=(80, 3))], axis=1)
    counts = rng.integers(2, 7, size=80).astype(float)
    chance = 1 / (1 + np.exp(-design @ np.array([0.7, 1.5, -0.4, 0.1])))
    return design, counts, np.round(2 * counts * chance * rng.uniform(0.5, 1, 80)) / 2


def slope(design: np.ndarray, counts: np.ndarray, wins: np.ndarray, at: np.ndarray) -> float:
    return float(np.abs((counts / (1 + np.exp(-design @ at)) - wins) @ design).max())


def test_replicates_have_their_own_optima() -> None:
    design, counts, wins = random_battles(3)
    whole = optimum(design, counts, wins)
    assert whole is not None
    assert slope(design, counts, wins, whole) < 1e-6
    drawn = np.random.default_rng(0).multinomial(80, np.full(80, 1 / 80), size=50).astype(float)
    found = optima(design, drawn * counts, drawn * wins, whole)
    assert (
        max(slope(design, d * counts, d * wins, c) for d, c in zip(drawn, found, strict=True))
        < 1e-5
    )
    alone = optimum(design, drawn[7] * counts, drawn[7] * wins)
    assert found[7] == pytest.approx(alone, abs=1e-6)


def test_a_column_that_depends_on_another_leaves_the_others_as_they_are() -> None:
    design, counts, wins = random_battles(4)
    doubled = np.concatenate([design, design[:, 1:2]], axis=1)
    once, twice = optimum(design, counts, wins), optimum(doubled, counts, wins)
    assert once is not None
    assert twice is not None
    assert twice[0] == pytest.approx(once[0], abs=1e-6)
    assert twice[1] + twice[4] == pytest.approx(once[1], abs=1e-6)


def test_a_feature_that_decides_every_battle_has_no_optimum() -> None:
    side = np.array([1.0, 2.0, -1.0, -0.5])
    design = np.stack([np.ones(4), side], axis=1)
    counts = np.full(4, 2.0)
    assert optimum(design, counts, 2.0 * (side > 0)) is None
    assert optimum(design, counts, np.array([2.0, 1.0, 0.0, 1.0])) is not None


def test_a_rare_loss_is_an_optimum_far_out_and_not_taken_for_none() -> None:
    found = optimum(np.ones((1, 1)), np.array([2000.0]), np.array([1999.0]))
    assert found is not None
    assert found[0] == pytest.approx(math.log(1999.0), abs=1e-6)


# ------------------------------------------------------------------ the counter
def test_without_the_vocabulary_at_hand_the_stand_in_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError("the vocabulary was fetched")

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=refuse))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert token_counter.token_counter() is STAND_IN


def test_with_the_vocabulary_at_hand_the_authors_counter_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encoding = SimpleNamespace(encode=lambda text, disallowed_special: list(text))
    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=lambda _: encoding))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").touch()
    counter = token_counter.token_counter()
    assert (counter.name, counter.count("four")) == (AUTHORS_COUNTER, 4)
