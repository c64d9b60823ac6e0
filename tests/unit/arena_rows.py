"""Small Arena-Hard rows for tests: files of the fixtures, and outcomes made from labels."""

import json
from pathlib import Path
from typing import Any

from core.benchmarks.arena_labels import battle_scores
from core.rows import Row

TESTS = Path(__file__).resolve().parents[1]
FIXTURES = TESTS / "fixtures" / "arena"
SHARED = TESTS.parents[1] / "shared" / "data"


def jsonl(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def files(*names: str, folder: Path = FIXTURES) -> dict[str, list[Row]]:
    return {name: jsonl(folder / name) for name in names}


def metadata(length: int, *, header: int = 0, items: int = 0, bold: int = 0) -> Row:
    return {
        "token_len": length,
        "header_count": {"h1": header},
        "list_count": {"ordered": 0, "unordered": items},
        "bold_count": {"**": bold, "__": 0},
    }


def outcome(
    id: str,
    game_1: str | None,
    game_2: str | None,
    *,
    model: Row | None = None,
    baseline: Row | None = None,
    counter: str = "stand-in",
) -> Row:
    scores = battle_scores(game_1, game_2)
    labels = (game_1, game_2)
    return {
        "id": id,
        "category": "hard_prompt",
        "subcategory": "math",
        "baseline": "b",
        "games": [{"label": x, "odd": None, "tries": 1} for x in labels],
        "scores": None if scores is None else list(scores),
        "style": {
            "counter": counter,
            "model": model or metadata(100),
            "baseline": baseline or metadata(100),
        },
    }


def vector_outcomes(vector: dict[str, Any]) -> list[Row]:
    """The rows of a style vector, in our fixture's short form or in the shared file's form."""
    return [
        outcome(
            row["uid"],
            row["game1"],
            row["game2"],
            model=row.get("model_metadata") or metadata(row["model_len"]),
            baseline=row.get("baseline_metadata") or metadata(row["baseline_len"]),
        )
        for row in vector["rows"]
    ]
