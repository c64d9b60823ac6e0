"""Thousands of damaged replies for one reader, drawn by hypothesis from seeds."""

import random
from collections.abc import Callable, Sequence

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit.reply_mutations import mutated

NUM_BATCHES = 50
BATCH = 200
FINISH_REASONS = ("stop", "stop", "stop", "length", "abort", "content_filter", "")


def read_damaged(replies: Sequence[str], read: Callable[[str, str], bool]) -> int:
    """Damage ``replies`` 10,000 times; return of how many damaged ones anything was used.

    ``read`` reads a text with a finish reason, asserts what must hold of any reply, and says
    whether anything was used. A failure names the reply that caused it. Hypothesis draws the seeds
    of whole batches: one example a reply would cost more than reading it.
    """
    used: list[bool] = []

    @settings(
        max_examples=NUM_BATCHES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
    )
    @given(seed=st.integers(min_value=0, max_value=2**64))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(BATCH):
            text = mutated(rng.choice(replies), replies, rng)
            finish_reason = rng.choice(FINISH_REASONS)
            try:
                used.append(read(text, finish_reason))
            except Exception as error:
                raise AssertionError(f"{finish_reason!r} reply {text[:4000]!r}") from error

    run()
    assert len(used) == NUM_BATCHES * BATCH
    return sum(used)
