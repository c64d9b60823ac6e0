"""The reward settings that a format names give its source's own number on what was read."""

from pathlib import Path

import pytest

from core.config import RewardConfig
from core.formats.base import Format
from core.formats.registry import FORMATS
from core.normalisers import NORMALISERS
from core.query import Query
from core.records import Verdict
from core.reward import rollout_reward
from drivers.data_files import load_queries

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"


def reward(query: Query, known: Format, shares: list[float]) -> float | None:
    verdicts = {
        c.id: Verdict(criterion_id=c.id, score=share * c.max, max=c.max)
        for c, share in zip(query.rubric.criteria, shares, strict=True)
    }
    config = RewardConfig.model_validate(dict(known.reward))
    return rollout_reward(query.rubric, verdicts, config).value


def sources(query: Query, known: Format, shares: list[float]) -> float | None:
    """The source's normaliser on its own scales: 0..max of RARE, 0..100 of RLCF, shares else."""
    criteria = query.rubric.criteria
    weights = [float(c.max) if known.normaliser == "max_points" else c.weight for c in criteria]
    tops = {
        "max_points": [float(c.max) for c in criteria],
        "weight100": [100.0] * len(criteria),
    }.get(known.normaliser, [1.0] * len(criteria))
    scores = [share * top for share, top in zip(shares, tops, strict=True)]
    return NORMALISERS[known.normaliser](weights, scores)


@pytest.mark.parametrize("name", sorted(p.stem for p in FIXTURES.glob("*.jsonl")))
def test_a_run_with_these_settings_counts_as_the_source(name: str) -> None:
    if name in ("native", "rare_queries"):
        pytest.skip("these rows count as a run is told to")
    loaded = load_queries(FIXTURES / f"{name}.jsonl", strict=False)
    known = FORMATS[loaded.format]
    for query in (q for q in loaded.queries if not q.rubric.caps):
        for pattern in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)):
            shares = [pattern[i % 2] for i in range(len(query.rubric.criteria))]
            assert reward(query, known, shares) == pytest.approx(sources(query, known, shares))


def test_healthbenchs_official_vector_is_a_half(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    items = ", ".join(f'{{"criterion": "c{p}", "points": {p}}}' for p in (7, 5, 10, -6))
    path.write_text(
        f'{{"prompt": [{{"role": "user", "content": "q"}}], "rubrics": [{items}]}}', "utf-8"
    )
    (query,) = load_queries(path).queries
    assert reward(query, FORMATS["healthbench"], [1, 0, 1, 1]) == 0.5
