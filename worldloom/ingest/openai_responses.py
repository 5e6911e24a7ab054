"""OpenAI's Responses: ``instructions``, and items: messages, calls, their outputs, reasoning."""

from collections.abc import Iterator, Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.openai_chat import tools_of
from worldloom.ingest.row import agent_of, error_of, id_of, outcome_of
from worldloom.ingest.turns import Dialogue, Heard, Said, Told, ToolCall, Turn

ITEM_TYPES = ("function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output")
NO_HISTORY = "goes on from an earlier response (previous_response_id), whose history it does not hold"
OWN = {"type", "id", "call_id", "status", "name", "output", "outputs", "results", "result", "error"}  # no arguments


def items_of(record: Any) -> list[Any] | None:
    """The items of a row: its ``input`` (or ``items``) and, where it has one, its ``output``."""
    row = record if isinstance(record, Mapping) else {"input": record}
    first = row["items"] if "items" in row else row.get("input")
    items = [{"role": "user", "content": first}] if isinstance(first, str) else first
    output = row.get("output", [])
    return [*items, *output] if isinstance(items, list) and isinstance(output, list) else None


def matches(record: Any) -> bool:
    """Rows with an ``input`` or ``items`` of which one is of a kind that only this API has, or with its other keys."""
    items = items_of(record)
    if not items or not all(isinstance(item, Mapping) and ("type" in item or "role" in item) for item in items):
        return False
    row = record if isinstance(record, Mapping) else {}
    return bool(row.get("instructions")) or "output" in row or any(item.get("type") in ITEM_TYPES for item in items)


def read(record: Any) -> Dialogue:
    """One conversation."""
    items = items_of(record)
    if items is None:
        raise ProtocolError("has no list 'input' or 'items'")
    row = record if isinstance(record, Mapping) else {}
    if row.get("previous_response_id"):
        raise ProtocolError(NO_HISTORY)
    left_out: list[str] = []
    return Dialogue(
        [*instructions_of(row, left_out), *turns(items, left_out)], tools=tools_of(row), id=id_of(row),
        outcome=outcome_of(row), error=error_of(row), agent=agent_of(row), left_out=left_out,
    )  # fmt: skip


def instructions_of(row: Mapping[str, Any], left_out: list[str]) -> list[Turn]:
    """The instructions, a text or messages."""
    told = row.get("instructions")
    return [Told(told)] if isinstance(told, str) and told else chat.turns(told, left_out) if told else []


def turns(items: list[Any], left_out: list[str]) -> list[Turn]:
    """Items as turns.

    Raises:
        ProtocolError: one is of no kind that is known; names the item.
    """
    return [turn for number, item in enumerate(items, 1) for turn in _item(number, item, left_out)]


def _item(number: int, item: Any, left_out: list[str]) -> Iterator[Turn]:
    if not isinstance(item, Mapping):
        raise ProtocolError(f"item {number} is no object")
    kind = item.get("type", "message")
    if kind == "message" and "role" in item:
        yield from chat.turns([item], left_out)
    elif kind == "reasoning":
        yield Said(thought=chat.text_of(item.get("summary") or item.get("content"), left_out))
    elif isinstance(kind, str) and kind.endswith("_output"):
        failed = item.get("status") in ("failed", "incomplete")
        id_ = item.get("call_id") if isinstance(item.get("call_id"), str) else None
        yield Heard(chat.text_of(item.get("output"), left_out), of_tool=True, call_id=id_, failed=failed)
    elif isinstance(kind, str) and kind.endswith("_call"):
        yield from _call(item, kind, left_out)
    else:
        raise ProtocolError(f"item {number} is of an unknown type")


def _call(item: Mapping[str, Any], kind: str, left_out: list[str]) -> Iterator[Turn]:
    """A call; what the provider ran itself has its result within."""
    if kind in ("function_call", "custom_tool_call", "mcp_call"):
        call = chat.call_of(item)
    else:
        arguments = {key: value for key, value in item.items() if key not in OWN}
        call = ToolCall(kind, arguments, item.get("call_id") or item.get("id"))
    yield Said(calls=(call,))
    within = next((item[key] for key in ("error", "output", "outputs", "results", "result") if item.get(key)), None)
    if within is not None:
        yield Heard(chat.text_of(within, left_out), of_tool=True, call_id=call.id, failed=bool(item.get("error")))
