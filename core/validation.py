"""What is wrong with a record that pydantic refused, in one clause.

Pydantic's own text repeats the value, which may be a key that stands where a name belongs.
"""

from pydantic import ValidationError

_MAX_PLACE = 8
"""Parts of a place that are named; all places of our own records are shorter."""


def first_problem(error: ValidationError) -> str:
    """Return the first problem with its place, without the value."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"][:_MAX_PLACE])
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
