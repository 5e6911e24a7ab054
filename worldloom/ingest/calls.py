"""Logs of API calls, request and response in one row: OpenAI's Chat Completions and Responses, Anthropic's Messages.

Rows are ``{"request": ..., "response": ...}``, or a request with its ``response``,
``choices`` or ``output`` beside its own keys.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import anthropic, chat, openai_responses
from worldloom.ingest.openai_chat import tools_of
from worldloom.ingest.records import Record, Skip
from worldloom.ingest.row import agent_of, id_of, outcome_of
from worldloom.ingest.spill import Spill
from worldloom.ingest.traces import Exchange, Seen, mark_of
from worldloom.ingest.turns import Dialogue, Turn

REPEATED = "an earlier call of a conversation that a later row has in full"


def matches(record: Any) -> bool:
    """Rows that have both sides of a call; a row of `worldloom conversations` is a whole conversation instead."""
    if isinstance(record, Mapping) and "recorded" in record:
        return False
    request, response = _sides(record)
    return request is not None and ("messages" in request or "input" in request) and response is not None


def _sides(record: Any) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    if not isinstance(record, Mapping):
        return None, None
    request = _body(record.get("request", record))
    beside = record if "choices" in record or isinstance(record.get("output"), list) else None
    response = _body(record["response"]) if "response" in record else beside
    return request, response


def _body(side: Any) -> Mapping[str, Any] | None:
    inner = side.get("body", side) if isinstance(side, Mapping) else None
    return inner if isinstance(inner, Mapping) else None


def exchange(record: Any, left_out: list[str]) -> Exchange:
    """Both sides of a call as turns.

    Raises:
        ProtocolError: the row has no request, or one that goes on from a history which it does not hold.
    """
    request, response = _sides(record)
    if request is None:
        raise ProtocolError("has no request")
    if request.get("previous_response_id"):
        raise ProtocolError(openai_responses.NO_HISTORY)
    if "messages" in request:
        asked = [*anthropic.system_of(request, left_out), *chat.turns(request["messages"], left_out)]
    else:
        items = openai_responses.items_of({"input": request.get("input")})
        if items is None:
            raise ProtocolError("has no 'messages' and no 'input'")
        told = openai_responses.instructions_of(request, left_out)
        asked = [*told, *openai_responses.turns(items, left_out)]
    return Exchange(asked, _reply(response or {}, left_out), tools_of(request))


def _reply(response: Mapping[str, Any], left_out: list[str]) -> list[Turn]:
    """What the model said: the first choice; nothing where the call failed."""
    choices = response.get("choices")
    if isinstance(choices, list):
        if len(choices) > 1:
            left_out.append("other choices")
        first = choices[0] if choices and isinstance(choices[0], Mapping) else {}
        return chat.turns([first["message"]], left_out) if isinstance(first.get("message"), Mapping) else []
    if isinstance(response.get("output"), list):
        return openai_responses.turns(response["output"], left_out)
    return chat.turns([response], left_out) if response.get("role") == "assistant" else []


def read(record: Any) -> Dialogue:
    """One call with its history."""
    left_out: list[str] = []
    found = exchange(record, left_out)
    request = _sides(record)[0] or {}
    return Dialogue(
        [*found.request, *found.reply], tools=found.tools, id=id_of(record) or id_of(request),
        outcome=outcome_of(record), agent=agent_of(request), left_out=left_out,
    )  # fmt: skip


def episodes(
    records: Iterator[Record | Skip], spill: Callable[[], Spill], attempt: Callable[..., Any]
) -> Iterator[tuple[int, Dialogue, Any] | Skip]:
    """The conversations of a log: rows that no other row goes on from."""
    with spill() as aside:
        for item in records:
            mark = item if isinstance(item, Skip) else attempt(item.place, _mark, item.value)
            if isinstance(mark, Skip):
                yield mark
            else:
                aside.add("", Record(item.place, item.value), mark)  # type: ignore[union-attr]
        seen = Seen()
        kept = {number for number, mark in aside.longest_marks() if seen.add(mark)}
        for row in aside.rows():
            if row.number not in kept:
                yield Skip(row.record.place, REPEATED, lost=False)
                continue
            found = attempt(row.record.place, read, row.record.value)
            yield found if isinstance(found, Skip) else (row.record.place, found, row.record.value)


def _mark(record: Any) -> bytes:
    return mark_of(exchange(record, []))
