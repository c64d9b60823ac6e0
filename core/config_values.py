"""The kinds of values that a config holds: what each of them takes, whichever key it stands at.

Numbers are finite: an endless wait or an infinite learning rate is a slip, and no limit at all.
"""

from typing import Annotated, Any, cast

from pydantic import AfterValidator, AnyHttpUrl, ConfigDict, Field, model_validator

from core.rubric import Frozen

_NUMBERS: tuple[object, ...] = (int, float)


class Part(Frozen):
    """Base of the config's parts: a number is finite, and yes or no is none."""

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _flag_is_no_number(cls, values: Any) -> Any:
        given = cast("dict[str, Any]", values if isinstance(values, dict) else {})
        for name, value in given.items():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation in _NUMBERS:
                raise ValueError(f"got {name}={str(value).lower()}, wanted a number")
        return cast(object, values)


def _whole_above_one(amount: float) -> float:
    """Ray shares one device or core out, and several only whole."""
    if amount > 1 and not amount.is_integer():
        raise ValueError(f"got {amount:g}, wanted a whole number, or a share of at most 1")
    return amount


Amount = Annotated[float, Field(ge=0.0), AfterValidator(_whole_above_one)]
"""CPUs or GPUs that a process reserves."""

Processes = Annotated[int, Field(ge=1, le=10_000)]
"""How many processes of a kind; more is a slip, and its plan alone would fill the memory."""

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Gate = Annotated[float, Field(gt=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
"""A run's name, which is also its folder's."""


def checked_address(address: str) -> str:
    """Return an http(s) address; ValueError for anything else.

    It is shown in logs, configs and identities, so it may carry no password and no query (whose
    text is not repeated: it may be a key).
    """
    try:
        parts = AnyHttpUrl(address)
    except ValueError:
        raise ValueError(
            f"got {address!r}, wanted an address like http://127.0.0.1:8000/v1"
        ) from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            f"got an address of {parts.host} with a user, a password or a query in it, wanted the "
            "bare address: a key belongs into the environment variable that api_key_env names"
        )
    return address


def checked_variable(name: str) -> str:
    """Return an environment variable's name; ValueError, without the text: it may be a key."""
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            "got a text that is no name of an environment variable, wanted the name of the one "
            "that holds the key, such as OPENAI_API_KEY (never the key itself)"
        )
    return name
