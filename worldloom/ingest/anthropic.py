"""Anthropic's Messages: content blocks with ``tool_use`` and ``tool_result``; ``system`` stands beside the messages."""

from collections.abc import Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.openai_chat import is_chat, tools_of
from worldloom.ingest.row import agent_of, id_of, outcome_of
from worldloom.ingest.turns import Dialogue, Told, Turn

BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


def matches(record: Any) -> bool:
    """Messages with blocks that only Anthropic has, or with a ``system`` beside them."""
    if not isinstance(record, Mapping) or not is_chat(record):
        return False
    contents = [message.get("content") for message in record["messages"]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    schemas = any(isinstance(tool, Mapping) and "input_schema" in tool for tool in tools_of(record))
    return schemas or "system" in record or any(isinstance(b, Mapping) and b.get("type") in BLOCKS for b in blocks)


def read(record: Any) -> Dialogue:
    """One conversation. A user's message with results and words is both: the words come after the results."""
    if not isinstance(record, Mapping) or not isinstance(record.get("messages"), list):
        raise ProtocolError("has no list 'messages'")
    left_out: list[str] = []
    said = [*system_of(record, left_out), *chat.turns(record["messages"], left_out)]
    return Dialogue(
        said, tools=tools_of(record), id=id_of(record), outcome=outcome_of(record), agent=agent_of(record),
        left_out=left_out,
    )  # fmt: skip


def system_of(row: Mapping[str, Any], left_out: list[str]) -> list[Turn]:
    """The system prompt beside the messages, a text or blocks."""
    text = chat.text_of(row.get("system"), left_out)
    return [Told(text)] if text else []
