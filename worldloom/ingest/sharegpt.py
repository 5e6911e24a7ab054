"""ShareGPT ``conversations`` (also LLaMA-Factory's): ``from`` and ``value``; ``gpt`` is the agent."""

import json
from collections.abc import Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.row import agent_of, id_of, outcome_of
from worldloom.ingest.turns import Dialogue, Told, Turn

ROLES = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "model": "assistant",
    "function_call": "function_call", "observation": "tool", "function_response": "tool", "tool": "tool",
}  # fmt: skip


def matches(record: Any) -> bool:
    """Rows with ``conversations`` of ``from`` and ``value``."""
    said = record.get("conversations") if isinstance(record, Mapping) else None
    return isinstance(said, list) and bool(said) and all(isinstance(m, Mapping) and "from" in m for m in said)


def as_messages(said: Any) -> list[dict[str, Any]]:
    """``from`` and ``value`` as role and content; a ``function_call`` is a message that makes the calls of its JSON.

    Raises:
        ProtocolError: there is no list, or a speaker is unknown.
    """
    if not isinstance(said, list):
        raise ProtocolError("has no list 'conversations'")
    return [_message(number, message) for number, message in enumerate(said, 1)]


def _message(number: int, message: Any) -> dict[str, Any]:
    role = ROLES.get(str(message.get("from"))) if isinstance(message, Mapping) else None
    if role is None:
        raise ProtocolError(f"message {number} is from nobody who is known")
    value = message.get("value")
    if role != "function_call":
        return {"role": role, "content": value}
    try:
        calls = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ProtocolError(f"message {number} is a call that is not JSON") from error
    return {"role": "assistant", "tool_calls": calls if isinstance(calls, list) else [calls]}


def read(record: Any) -> Dialogue:
    """One conversation."""
    left_out: list[str] = []
    row = record if isinstance(record, Mapping) else {}
    system: list[Turn] = [Told(row["system"])] if isinstance(row.get("system"), str) and row["system"] else []
    return Dialogue(
        [*system, *chat.turns(as_messages(row.get("conversations")), left_out)], tools=_tools(row.get("tools")),
        id=id_of(row), outcome=outcome_of(row), agent=agent_of(row), left_out=left_out,
    )  # fmt: skip


def _tools(told: Any) -> list[Any]:
    """Tools: a list, the JSON of one, or a text."""
    try:
        found = json.loads(told) if isinstance(told, str) and told.strip() else told
    except ValueError:
        found = told
    return found if isinstance(found, list) else [found] if found else []
