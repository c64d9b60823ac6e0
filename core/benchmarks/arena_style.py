"""Arena-Hard's style control: how long and how decorated answers are, and the scores without that.

Features, normalisation and model are the authors' (github lmarena/arena-hard-auto,
utils/add_markdown_info.py and show_result.py with ``--control-features markdown length``): four
differences of style a battle, standardised over all battles, beside one coefficient a model; a
model's score is its chance to beat the baseline at equal style. The fit is joint: a score depends
on which models are in it. Their optimiser (LBFGS of 50 iterations) stops a little short of the
optimum; what is reported here is the optimum, so the two may differ in the third digit. A feature
that is the same in every battle, on which theirs fails, is left out and named.
Lengths are tokens of one counter, and counts of different counters are never compared.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from core.benchmarks.bradley_terry import optima, optimum
from core.errors import ConfigError
from core.rows import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FEATURES = ("length", "header", "list", "bold")
AUTHORS_COUNTER = "tiktoken o200k_base"

_COUNTS = ("header_count", "list_count", "bold_count")
_CODE_BLOCK = re.compile(r"```([^`]*)```")
_HEADERS = {f"h{k}": re.compile(rf"^#{{{k}}}\s", re.MULTILINE) for k in range(1, 7)}
_LISTS = {
    "ordered": re.compile(r"^\s*\d+\.\s", re.MULTILINE),
    "unordered": re.compile(r"^\s*[-*+]\s", re.MULTILINE),
}
_BOLDS = {"**": re.compile(r"\*\*[^*\n]+\*\*"), "__": re.compile(r"__[^_\n]+__")}
_PIECE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]+|_+|\n+")
_BYTES_A_TOKEN = 6

_OFFICIAL_BOOTSTRAPS = 100
_MAX_LOST_FRAC = 0.05
"""Of the replicates: with more of them without an optimum, an interval would be one of the rest."""


# ------------------------------------------------------------------ one answer
@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCounter:
    """How lengths are counted; its name goes into every outcome."""

    name: str
    count: Callable[[str], int]


def approximate_tokens(text: str) -> int:
    """Return about as many tokens as o200k_base would make, without its vocabulary.

    Words, digits by threes, runs of marks and of newlines, each one token for every six bytes of
    UTF-8 that it has begun.
    """
    return sum(-(-len(piece.encode("utf-8", "replace")) // _BYTES_A_TOKEN)
               for piece in _PIECE.findall(text))  # fmt: skip


STAND_IN = TokenCounter(name="stand-in", count=approximate_tokens)
"""Where o200k_base cannot be loaded; its scores compare only with scores that it made."""


def answer_metadata(text: str, counter: TokenCounter) -> Row:
    """Return an answer's length and Markdown counts, in the authors' layout.

    As theirs, the content of each code block is taken out wherever it stands in the answer, and its
    fences stay.
    """
    outside = text
    for content in _CODE_BLOCK.findall(text):
        outside = outside.replace(content, "")
    return {
        "token_len": counter.count(text),
        "header_count": _found(_HEADERS, outside),
        "list_count": _found(_LISTS, outside),
        "bold_count": _found(_BOLDS, outside),
    }


def is_metadata(value: object) -> bool:
    """Whether a value has the length and the counts that the features need."""
    if not isinstance(value, dict):
        return False
    fields = cast("Row", value)
    has_length = isinstance(fields.get("token_len"), int) and fields["token_len"] >= 0
    return has_length and all(isinstance(fields.get(name), dict) for name in _COUNTS)


def style_features(model: Row, baseline: Row) -> tuple[float, ...]:
    """Return the four differences of style between two answers, each from -1 to 1.

    Length: (m - b) / (m + b). The others, of densities d = count / (tokens + 1):
    (d_m - d_b) / (d_m + d_b + 1). Two empty answers have the same length.
    """
    length, other = model["token_len"], baseline["token_len"]
    differences = [(length - other) / (length + other) if length + other else 0.0]
    for name in _COUNTS:
        dense = sum(model[name].values()) / (length + 1)
        dense_other = sum(baseline[name].values()) / (other + 1)
        differences.append((dense - dense_other) / (dense + dense_other + 1))
    return tuple(differences)


def _found(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, int]:
    return {name: len(pattern.findall(text)) for name, pattern in patterns.items()}


# ------------------------------------------------------------------ many battles
@dataclass(frozen=True, kw_only=True, slots=True)
class StyleScore:
    """A model's score at equal style, in percent."""

    value: float | None
    """At the optimum of all battles; None when there is no finite one."""
    low: float | None
    """95 % percentile bootstrap over prompts; None where too many replicates have no optimum."""
    high: float | None
    official: Row
    """As the authors report: median, 5 % and 95 % of 100 bootstraps over battles (at optima)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StyleControlled:
    """A joint fit."""

    baseline: str
    counter: str
    scores: Mapping[str, StyleScore]
    """By model; the baseline has 50 by definition."""
    coefficients: Mapping[str, float]
    """By feature, per standard deviation; empty when there is no optimum."""
    constant_features: tuple[str, ...]
    num_battles: int
    num_dropped: int
    """Outcomes without scores or without style: none of their battles is in the fit."""
    lost_replicates: int
    """Of the bootstrap over prompts, those without a finite optimum."""


def style_controlled(
    outcomes_by_model: Mapping[str, Sequence[Row]], *, replicates: int = 10_000, seed: int = 0
) -> StyleControlled:
    """Fit the models' outcomes against one baseline, together, and return their scores.

    The interval resamples prompts with all their battles of all models; features are standardised
    once, over all battles, as the authors do. ``outcomes_by_model``: outcomes of ``ArenaHard`` (or
    of ``judged_outcomes``) of one category. Raises ConfigError for no battles, several baselines, a
    model that is the baseline, and lengths by several counters.
    """
    import numpy as np

    table = _table(outcomes_by_model)
    rng = np.random.default_rng(seed)
    place: dict[str, int] = {}
    prompt_K = [place.setdefault(prompt, len(place)) for prompt in table.prompts]
    coefs_P = optimum(table.design_KP, table.counts_K, table.wins_K)
    if coefs_P is None:
        return _without_optimum(table)
    num_prompts, num_battles = len(place), int(table.counts_K.sum())
    drawn = rng.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), size=replicates)
    drawn_RK = drawn[:, prompt_K].astype(np.float64)
    ours_RP = optima(table.design_KP, drawn_RK * table.counts_K, drawn_RK * table.wins_K, coefs_P)
    drawn = rng.multinomial(
        num_battles, np.full(num_battles, 1 / num_battles), size=_OFFICIAL_BOOTSTRAPS
    )
    starts_K = np.concatenate([[0], np.cumsum(table.counts_K)[:-1]]).astype(np.intp)
    theirs_RP = optima(
        table.design_KP,
        np.add.reduceat(drawn, starts_K, axis=1).astype(np.float64),
        np.add.reduceat(drawn * table.battles_N, starts_K, axis=1),
        coefs_P,
    )
    num_models = len(table.models)
    return StyleControlled(
        baseline=table.baseline,
        counter=table.counter,
        scores={
            model: StyleScore(
                value=float(_percent(coefs_P[i])),
                low=_quantile(ours_RP[:, i], 0.025),
                high=_quantile(ours_RP[:, i], 0.975),
                official=_official(theirs_RP[:, i]),
            )
            for i, model in enumerate(table.models)
        },
        coefficients={
            name: float(c) for name, c in zip(table.features, coefs_P[num_models:], strict=True)
        },
        constant_features=table.constant,
        num_battles=num_battles,
        num_dropped=table.num_dropped,
        lost_replicates=int(np.isnan(ours_RP).any(axis=1).sum()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    """The battles as a design; a row is a prompt of a model. N: battles."""

    baseline: str
    counter: str
    models: tuple[str, ...]
    features: tuple[str, ...]
    constant: tuple[str, ...]
    prompts: tuple[str, ...]  # [K]
    design_KP: "Array"
    counts_K: "Array"
    wins_K: "Array"
    battles_N: "Array"
    num_dropped: int


def _table(outcomes_by_model: Mapping[str, Sequence[Row]]) -> _Table:
    import numpy as np

    models = tuple(sorted(outcomes_by_model))
    every = [(m, row) for m in models for row in outcomes_by_model[m]]
    used = [(m, row) for m, row in every if row["scores"] is not None and row["style"] is not None]
    baseline = _the_one(used, "baseline", lambda row: row["baseline"])
    counter = _the_one(used, "counter of lengths", lambda row: row["style"]["counter"])
    if baseline in models:
        raise ConfigError(
            f"got the baseline {baseline!r} among the models, wanted only models that were "
            "compared with it: leave its outcomes out"
        )
    models = tuple(m for m in models if any(m == other for other, _ in used))
    counts_K = np.array([len(row["scores"]) for _, row in used], dtype=np.float64)
    raw = [style_features(row["style"]["model"], row["style"]["baseline"]) for _, row in used]
    styles_KF, varies_F = _standardised(np.array(raw, dtype=np.float64), counts_K)
    one_hot_KM = np.array([[float(m == other) for other in models] for m, _ in used])
    return _Table(
        baseline=baseline,
        counter=counter,
        models=models,
        features=tuple(n for n, varies in zip(FEATURES, varies_F, strict=True) if varies),
        constant=tuple(n for n, varies in zip(FEATURES, varies_F, strict=True) if not varies),
        prompts=tuple(row["id"] for _, row in used),
        design_KP=np.concatenate([one_hot_KM, styles_KF], axis=1),
        counts_K=counts_K,
        wins_K=np.array([sum(row["scores"]) for _, row in used], dtype=np.float64),
        battles_N=np.array([s for _, row in used for s in row["scores"]], dtype=np.float64),
        num_dropped=len(every) - len(used),
    )


def _the_one(used: Sequence[tuple[str, Row]], what: str, of: Callable[[Row], str]) -> str:
    found = sorted({of(row) for _, row in used})
    if not found:
        raise ConfigError(
            "got no outcome with scores and style, wanted battles to fit: judge answers first"
        )
    if len(found) > 1:
        raise ConfigError(
            f"got outcomes with more than one {what} ({', '.join(found)}), wanted one: fit the "
            "outcomes of one category, whose lengths were counted in one way"
        )
    return found[0]


def _standardised(raw_KF: "Array", counts_K: "Array") -> "tuple[Array, list[bool]]":
    """Return the features that vary, over battles of mean 0 and unbiased deviation 1."""
    import numpy as np

    num_battles = float(counts_K.sum())
    centred_KF = raw_KF - counts_K @ raw_KF / num_battles
    deviation_F = np.sqrt(counts_K @ centred_KF**2 / max(1.0, num_battles - 1.0))
    varies_F = deviation_F > 1e-12
    return centred_KF[:, varies_F] / deviation_F[varies_F], [bool(v) for v in varies_F]


def _without_optimum(table: _Table) -> StyleControlled:
    nothing: Row = {"value": None, "low": None, "high": None}
    score = StyleScore(value=None, low=None, high=None, official=nothing)
    return StyleControlled(
        baseline=table.baseline,
        counter=table.counter,
        scores=dict.fromkeys(table.models, score),
        coefficients={},
        constant_features=table.constant,
        num_battles=int(table.counts_K.sum()),
        num_dropped=table.num_dropped,
        lost_replicates=0,
    )


def _official(coefs_R: "Array") -> Row:
    names = {"value": 0.5, "low": 0.05, "high": 0.95}
    return {name: _quantile(coefs_R, q) for name, q in names.items()}


def _quantile(coefs_R: "Array", q: float) -> float | None:
    """Return the quantile in percent of the replicates that have an optimum."""
    import numpy as np

    is_lost_R = np.isnan(coefs_R)
    if float(is_lost_R.mean()) > _MAX_LOST_FRAC:
        return None
    return float(np.quantile(_percent(coefs_R[~is_lost_R]), q))


def _percent(coefs: "Any") -> "Any":
    """Return the chance to beat the baseline, whose coefficient is 0, in percent."""
    import numpy as np

    return 100.0 / (1.0 + np.exp(-coefs))
