"""Keeps an endpoint's key out of everything that is written down.

Endpoints echo keys in their error texts, whole or partly starred out. ``told`` is for texts that
people read (details, reasons, logs): the key and whatever looks like one goes. ``kept`` is for a
model's reply, which must stay as it is but for the key itself. The stand-in key of an endpoint that
needs none is an ordinary word and stays.
"""

import re

from pydantic import SecretStr

from serve.backends.base import NO_KEY

HIDDEN = "[key]"
_MAX_TOLD = 300
_MAX_LOOKED_AT = 4_000
_SHORTEST_TOLD = 4
_SHORTEST_KEPT = 8
_LIKE_A_KEY = re.compile(r"\bsk-[\w*.-]{6,}|[\w.-]{0,80}\*{3,}[\w.*-]*")


class Redaction:
    """Takes one key out of texts."""

    def __init__(self, key: SecretStr) -> None:
        self._key = key

    def told(self, text: str) -> str:
        """Return a short text without the key or anything like it."""
        clean = _LIKE_A_KEY.sub(HIDDEN, self._without(text, _SHORTEST_TOLD)[:_MAX_LOOKED_AT])
        return clean if len(clean) <= _MAX_TOLD else clean[: _MAX_TOLD - 3] + "..."

    def kept(self, text: str) -> str:
        """Return the whole text without the key."""
        return self._without(text, _SHORTEST_KEPT)

    def _without(self, text: str, shortest: int) -> str:
        key = self._key.get_secret_value()
        if key == NO_KEY or len(key) < shortest:
            return text
        for spelling in (key, key.replace("/", "\\/")):  # as some write it inside JSON
            text = text.replace(spelling, HIDDEN)
        return text
