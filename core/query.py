"""One training task as it stands in a query file (JSONL, one object a line)."""

from typing import Any, Self, cast

from pydantic import Field, JsonValue, field_validator, model_validator

from core.config_evolution import Scope
from core.errors import ConfigError
from core.rubric import Criterion, Frozen, Rubric


class Message(Frozen):
    """One chat message."""

    role: str
    content: str


class Anchor(Frozen):
    """The reference answer (CARE section 3.3): a point to compare with, not a ceiling."""

    model: str = "unknown"
    response: str = Field(min_length=1)

    @field_validator("response")
    @classmethod
    def _is_not_blank(cls, response: str) -> str:
        if not response.strip():
            raise ValueError("got a blank response, wanted a reference answer (or no anchor)")
        return response


class Query(Frozen):
    """A prompt with its initial rubric, anchor, and gold criteria that are never rewarded."""

    id: str = Field(min_length=1)
    messages: tuple[Message, ...] = Field(min_length=1)
    rubric: Rubric
    anchor: Anchor | None = None
    gold: tuple[Criterion, ...] = ()
    task: str | None = None
    meta: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("rubric", mode="before")
    @classmethod
    def _list_is_version_zero(cls, value: Any) -> Any:
        """A file gives the criteria as a plain list; they are version 0."""
        return {"criteria": cast("list[Any]", value)} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _has_a_user_turn_and_separate_gold(self) -> Self:
        if not any(m.role == "user" and m.content.strip() for m in self.messages):
            raise ValueError("got no user message with text, wanted at least one")
        gold_ids = [c.id for c in self.gold]
        if len(set(gold_ids)) != len(gold_ids) or set(gold_ids) & set(self.rubric.ids):
            raise ValueError(
                f"got gold ids {gold_ids}, wanted ids that are unique and not in the rubric"
            )
        return self

    @property
    def prompt_text(self) -> str:
        """The conversation as plain text for judges and writers (``role: content`` blocks)."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n\n".join(f"{m.role}: {m.content}" for m in self.messages)


def rubric_id(query: Query, scope: Scope) -> str:
    """Return the key of the rubric that scores ``query``: its own, or the one of its task."""
    if scope == "query":
        return query.id
    if query.task is None:
        raise ConfigError(
            f"got query {query.id[:80]!r} without a task, wanted one for a rubric that is shared "
            "by all queries of a task: give each row a `task`, or use a method with a rubric a "
            "query (evolution.scope=query)"
        )
    return shared_id(query.task)


_SHARED = "task:"


def shared_id(task: str) -> str:
    """Return the id of the rubric that the queries of a task share."""
    return f"{_SHARED}{task}"


def is_shared(rubric_id: str) -> bool:
    """Whether the id is one that ``shared_id`` makes."""
    return rubric_id.startswith(_SHARED)
