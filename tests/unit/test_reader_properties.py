"""10,000 damaged replies for each reader: nothing raised but what the reader documents, nothing out
of range, nothing lost or doubled.

A reader is one line of ``READERS``: the replies to damage (good ones and odd ones) and a function
that reads one and asserts what must hold of any reply.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.unit import reader_checks as checks
from tests.unit.damaged_replies import read_damaged


# ------------------------------------------------------------------ the table
@dataclass(frozen=True, slots=True)
class Reader:
    """A reader under test."""

    replies: Sequence[str]
    """What is damaged."""
    read: Callable[[str, str], bool]
    """Reads a text with a finish reason and asserts what must hold; whether anything was used."""


READERS: dict[str, Reader] = {
    "judge, ids": Reader(checks.IDS_REPLIES + checks.ODD_REPLIES, checks.verdict_reader("ids")),
    "judge, verbatim": Reader(
        checks.VERBATIM_REPLIES + checks.ODD_REPLIES, checks.verdict_reader("verbatim")
    ),
    "joint rescoring": Reader(checks.RESCORE_REPLIES + checks.ODD_REPLIES, checks.read_matrix),
    "CARE's writer": Reader(
        checks.CARE_REPLIES * 4 + checks.EVOLUTION_REPLIES, checks.read_care_set
    ),
    "RARE's writer": Reader(checks.RARE_REPLIES, checks.read_rare_updates),
}
if checks.JUDGE_ROWS:
    READERS["judge, shared cases"] = Reader(tuple(checks.JUDGE_ROWS), checks.read_shared_scores)


@pytest.mark.parametrize("name", READERS)
def test_no_damaged_reply_breaks_a_reader(name: str) -> None:
    reader = READERS[name]
    num_used = read_damaged(reader.replies, reader.read)
    assert 100 < num_used < 9_900, "the mutations must neither ruin nor spare all"


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_replies_hold_too(name: str) -> None:
    used = [READERS[name].read(text, "stop") for text in READERS[name].replies]
    assert any(used)
