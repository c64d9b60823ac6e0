"""Whatever stands in a reply, the tolerant reader steps over it and ends."""

import pytest

from core.grading.reply import read_verdicts
from core.rubric import Criterion

CRITERIA = (Criterion(id="a", text="Names a river", max=2), Criterion(id="b", text="Is short"))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        "[1) 2]",
        "[[0), 1]",
        "[2, )]",
        '{"c1": [)]}',
        "[1, /* a comment that never ends " + "x" * 2_500,
        "[)" * 30,
        "[(1), (2)]]",
    ],
)
def test_a_bracket_that_closes_nothing_or_an_endless_comment_is_no_endless_loop(text: str) -> None:
    got = read_verdicts(text, CRITERIA, "stop", template="ids")
    assert [v.criterion_id for v in got] == ["a", "b"]


@pytest.mark.parametrize("text", ["[1) 1]", '{"c1": 1, "c2": [)]}', "[1, )1]"])
def test_a_list_with_a_bracket_that_closes_nothing_has_no_score(text: str) -> None:
    got = read_verdicts(text, CRITERIA, "stop", template="ids")
    assert [v.score for v in got] == [None, None]
