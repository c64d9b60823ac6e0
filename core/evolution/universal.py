"""Two generic criteria against hacking, for a static rubric (CARE section 4.1, after RLCF).

RLCF's released code holds them as one item of weight 100; CARE's baseline names two criteria. They
are [llm] criteria without veto, the same for every query, in our own words: a response answers the
request without padding or leaving the topic, and its tone and style suit the request. Each weighs
as much as the most important criterion can: 100 where the rubric's weights are importances out of
100, the largest weight of the rubric otherwise (1 for a rubric whose weights are all 1).
"""

from core.errors import ConfigError
from core.rubric import Criterion, Rubric

UNIVERSAL_TEXTS: tuple[str, str] = (
    "Answers what was asked directly: nothing in it is padding, needless length or off the topic.",
    "Its tone, style and register suit the request and the situation that the request describes.",
)
UNIVERSAL_IDS: tuple[str, str] = ("universal_1", "universal_2")

FULL_IMPORTANCE = 100.0
_LARGEST_PLAIN_WEIGHT = 10.0
"""Above it weights are importances out of 100; points of other data sets stay at or below it."""


def with_universal(rubric: Rubric, name: str) -> Rubric:
    """Return ``rubric`` with the two criteria appended; ``name`` says whose it is in a message."""
    taken = sorted(set(rubric.ids) & set(UNIVERSAL_IDS))
    if taken:
        raise ConfigError(
            f"got {name[:80]} with a criterion {taken[0]!r} of its own and "
            "evolution.universal=true, wanted that id free: rename the criterion, or set "
            "evolution.universal=false"
        )
    largest = max(c.weight for c in rubric.criteria)
    weight = FULL_IMPORTANCE if largest > _LARGEST_PLAIN_WEIGHT else largest
    added = tuple(
        Criterion(id=i, text=text, weight=weight)
        for i, text in zip(UNIVERSAL_IDS, UNIVERSAL_TEXTS, strict=True)
    )
    return Rubric(version=rubric.version, criteria=(*rubric.criteria, *added), caps=rubric.caps)
