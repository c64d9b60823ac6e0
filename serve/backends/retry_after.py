"""Reads how long an endpoint asks to be left alone (RFC 9110 section 10.2.3)."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds that Retry-After asks for (a number or a date); 0 when it does not.

    ``now`` is wall-clock time. ``retry-after-ms``, which some providers send, is finer and wins.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(name, "")) * unit_s
        if seconds > 0:
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
