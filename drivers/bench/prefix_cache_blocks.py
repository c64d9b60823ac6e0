"""The arithmetic of an engine's prefix cache: which tokens of a prompt it has already.

A prompt is cut into full blocks; a block is known by itself and all before it. As in vLLM, the
longest known run of blocks is taken from the cache, never the whole prompt (its last token has to
be computed), and every full block is in the cache as soon as the prompt is admitted. With a
capacity the blocks longest unused go first, a prompt's last ones before its first.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Prompt tokens, and how many of them the cache had; adds up with ``+``."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            calls=self.calls + other.calls,
            prompt=self.prompt + other.prompt,
            cached=self.cached + other.cached,
        )

    @property
    def share(self) -> float:
        """Share of the prompt tokens that came from the cache."""
        return self.cached / self.prompt if self.prompt else 0.0

    def as_json(self) -> dict[str, float]:
        """Return the figures of the result file."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt,
            "computed_tokens": self.prompt - self.cached,
            "share": round(self.share, 4),
        }


class BlockCache:
    """The blocks that an engine holds."""

    def __init__(self, block_size: int = 16, capacity: int | None = None) -> None:
        """``capacity`` in blocks; None holds everything."""
        self._block_size = block_size
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def admit(self, ids: Sequence[int]) -> Tokens:
        """Take a prompt in; return how much of it was there."""
        hashes = self._hashes(ids)
        most = (len(ids) - 1) // self._block_size
        known = 0
        while known < min(most, len(hashes)) and hashes[known] in self._blocks:
            known += 1
        for block in reversed(hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while self._capacity is not None and len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return Tokens(calls=1, prompt=len(ids), cached=known * self._block_size)

    def _hashes(self, ids: Sequence[int]) -> list[int]:
        size, last = self._block_size, 0
        hashes: list[int] = []
        for start in range(0, len(ids) - size + 1, size):
            last = hash((last, tuple(ids[start : start + size])))
            hashes.append(last)
        return hashes
