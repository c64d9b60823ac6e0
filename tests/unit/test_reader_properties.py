"""10,000 damaged replies for each reader: nothing raised but what the reader documents, nothing out
of range, nothing lost or doubled.

A reader is one line of ``READERS``: the replies to damage (good ones and odd ones) and a function
that reads one and asserts what must hold of any reply. Hypothesis draws the seeds; each example is
a batch of mutations, and a failure names the reply that caused it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit import reader_checks as checks
from tests.unit.reply_mutations import mutated

NUM_EXAMPLES = 50
BATCH = 200
FINISH_REASONS = ("stop", "stop", "stop", "length", "abort", "content_filter", "")


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
    used: list[bool] = []

    @settings(
        max_examples=NUM_EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
    )
    @given(seed=st.integers(min_value=0, max_value=2**64))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(BATCH):
            text = mutated(rng.choice(reader.replies), reader.replies, rng)
            finish_reason = rng.choice(FINISH_REASONS)
            try:
                used.append(reader.read(text, finish_reason))
            except Exception as error:
                raise AssertionError(f"{finish_reason!r} reply {text[:4000]!r}") from error

    run()
    assert len(used) == NUM_EXAMPLES * BATCH
    assert 100 < sum(used) < len(used) - 100, "the mutations must neither ruin nor spare all"


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_replies_hold_too(name: str) -> None:
    used = [READERS[name].read(text, "stop") for text in READERS[name].replies]
    assert any(used)
