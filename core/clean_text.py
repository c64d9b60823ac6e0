"""Text that every file, database, endpoint and tokenizer takes.

A lone surrogate has no UTF-8 form and a zero byte ends a text in many places; a data file can hold
either (as JSON escapes), and so can a policy's response. Query files are cleaned when they are
read. A response is kept as it is, and cleaned where it leaves for another model.
"""

from typing import Any


def clean_text(text: str) -> str:
    """Return ``text`` without zero bytes and with ``?`` for each lone surrogate."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def clean_value(value: Any) -> Any:
    """Return a JSON value with all its texts cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [clean_value(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {clean_text(str(k)): clean_value(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
