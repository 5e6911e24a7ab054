"""OpenAI's Chat Completions: one conversation a row, ``messages`` (and ``tools``) or a bare list of messages."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.row import agent_of, error_of, id_of, outcome_of
from worldloom.ingest.turns import Dialogue

READ = {"messages", "tools", "functions"}


def messages_of(record: Any) -> Any:
    """The messages of a row; None if it has none."""
    return record if isinstance(record, list) else record.get("messages") if isinstance(record, Mapping) else None


def is_chat(record: Any) -> bool:
    """Whether it is a row of messages with roles, whatever they mean."""
    messages = messages_of(record)
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages)
    )


def matches(record: Any) -> bool:
    """Rows of messages of which something says that ``assistant`` is the agent: tools, or what only an API gives."""
    if not is_chat(record):
        return False
    row = record if isinstance(record, Mapping) else {}
    roles = [message["role"] for message in messages_of(record)]
    beside = any(row.get(key) for key in ("tools", "functions", "model", "parallel_tool_calls", "recorded"))
    called = any(message.get("tool_calls") or message.get("function_call") for message in messages_of(record))
    repeated = any(one == other for one, other in pairwise(roles))
    return beside or called or repeated or {"tool", "function", "developer"} & {*roles} != set() or roles[-1] == "user"


def read(record: Any) -> Dialogue:
    """One conversation."""
    if messages_of(record) is None:
        raise ProtocolError("has no list 'messages'")
    row = record if isinstance(record, Mapping) else {}
    left_out: list[str] = []
    return Dialogue(
        chat.turns(messages_of(record), left_out), tools=tools_of(row), id=id_of(row), outcome=outcome_of(row),
        error=error_of(row), agent=agent_of(row), left_out=left_out,
    )  # fmt: skip


def tools_of(row: Mapping[str, Any]) -> list[Any]:
    """The tools that a row lists, under the name of today or the former one."""
    tools = row.get("tools") or row.get("functions") or []
    return tools if isinstance(tools, list) else [tools]
