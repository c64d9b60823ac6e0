"""Reads a row's prompt, in whatever shape it comes, into chat messages.

A text, a message, a list of messages, either of them as JSON text, content as text parts, or
``from``/``value`` turns. Answers at the end are cut: the policy is to write them.
"""

import json
from typing import Any, cast

from core.clean_text import clean_text
from core.formats.rows import RowError
from core.query import Message

PROMPT_FIELDS = (
    "messages", "prompt", "question", "query", "instruction", "problem", "conversation",
    "conversations", "input", "task_prompt", "user_prompt",
)  # fmt: skip
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant",
          "chatgpt": "assistant", "developer": "system"}  # fmt: skip
_KNOWN_ROLES = ("system", "user", "assistant", "tool")


def messages_of(row: dict[str, Any]) -> tuple[Message, ...]:
    """Return the conversation up to the turn to be answered; raises RowError if there is none."""
    value = next((row[f] for f in PROMPT_FIELDS if row.get(f) is not None), None)
    messages = _messages(_decoded(value))
    if row.get("instruction") is value and isinstance(row.get("input"), str):
        messages = _with_input(messages, row["input"])
    system = row.get("system_prompt") or row.get("system")
    if isinstance(system, str) and system.strip() and all(m.role != "system" for m in messages):
        messages = [Message(role="system", content=clean_text(system)), *messages]
    return tuple(_up_to_last_question(messages))


def _decoded(value: Any) -> Any:
    """Return a JSON text's messages; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if _is_conversation(decoded):
            return decoded
    return value


def _is_conversation(value: Any) -> bool:
    turns = cast(list[Any], value if isinstance(value, list) else [value])
    return bool(turns) and all(
        isinstance(t, dict) and ({"role", "content"} <= set(t) or {"from", "value"} <= set(t))  # pyright: ignore[reportUnknownArgumentType]
        for t in turns
    )


def _messages(value: Any) -> list[Message]:
    if value is None:
        raise RowError("empty_prompt", f"got no prompt, wanted one of {list(PROMPT_FIELDS)}")
    if isinstance(value, str):
        if not value.strip():
            raise RowError("empty_prompt", "got a blank prompt, wanted text")
        return [Message(role="user", content=clean_text(value))]
    if isinstance(value, dict) and "messages" in value:
        value = cast(dict[str, Any], value)["messages"]
    turns = cast(list[Any], value if isinstance(value, list) else [value])
    if not turns:
        raise RowError("empty_prompt", "got an empty list of messages, wanted a user turn")
    return [m for m in map(_message, turns) if m.content.strip() or m.role == "user"]


def _message(turn: Any) -> Message:
    if not isinstance(turn, dict):
        raise RowError("bad_prompt", f"got {turn!r:.60} as a message, wanted role and content")
    fields = cast(dict[str, Any], turn)
    role = str(fields.get("role", fields.get("from", ""))).strip().lower()
    role = _ROLES.get(role, role)
    if role not in _KNOWN_ROLES:
        raise RowError("bad_prompt", f"got the role {role!r:.40}, wanted one of {_KNOWN_ROLES}")
    return Message(role=role, content=_content(fields.get("content", fields.get("value"))))


def _content(content: Any) -> str:
    """Return a message's text; text parts are joined, other kinds of parts are refused."""
    if content is None:
        return ""
    if isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list):
        raise RowError("bad_prompt", f"got the content {content!r:.60}, wanted text")
    texts: list[str] = []
    for part in cast(list[Any], content):
        text: Any = cast(dict[str, Any], part).get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise RowError("bad_prompt", f"got the content part {part!r:.60}, wanted text")
        texts.append(clean_text(text))
    return "\n".join(texts)


def _with_input(messages: list[Message], text: str) -> list[Message]:
    if len(messages) != 1 or not text.strip():
        return messages
    return [Message(role="user", content=f"{messages[0].content}\n{clean_text(text)}")]


def _up_to_last_question(messages: list[Message]) -> list[Message]:
    while messages and messages[-1].role == "assistant":
        messages = messages[:-1]
    users = [m for m in messages if m.role == "user"]
    if not users:
        raise RowError("no_user_turn", "got no user turn to answer, wanted at least one")
    if not any(m.content.strip() for m in users):
        raise RowError("empty_prompt", "got a blank user turn, wanted text")
    return [m for m in messages if m.content.strip()]
