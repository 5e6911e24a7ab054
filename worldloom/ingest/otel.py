"""OpenTelemetry GenAI spans in OTLP's JSON: calls of a model, runs of tools, by the conventions of gen_ai.*.

Messages are read from the attributes ``gen_ai.system_instructions``, ``gen_ai.input.messages`` and
``gen_ai.output.messages`` (structured or as the text of JSON), on the span or on its event
``gen_ai.client.inference.operation.details``; else from OpenLLMetry's ``gen_ai.prompt.N.*`` and
``gen_ai.completion.N.*``.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.records import Record, Skip
from worldloom.ingest.row import Outcome, terminal_of
from worldloom.ingest.traces import Exchange, ToolRun, answered, conversations, of_tools_alone
from worldloom.ingest.turns import Dialogue, Heard, Told, ToolCall
from worldloom.trajectory import AgentRef, Failure

DETAILS, EVALUATION = "gen_ai.client.inference.operation.details", "gen_ai.evaluation.result"
INPUT, OUTPUT, SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(\w+)(?:\.(\d+)\.(\w+))?$")
MOST_INDEXED = 10_000

Attributes = Mapping[str, Any]


def matches(record: Any) -> bool:
    """Spans."""
    return isinstance(record, Mapping) and "traceId" in record and "spanId" in record


def key(record: Any) -> str:
    """The trace that a span belongs to.

    Raises:
        ProtocolError: it is no span.
    """
    if not matches(record) or not isinstance(record["traceId"], str):
        raise ProtocolError("is no span with a traceId")
    return str(record["traceId"])


def read_group(records: Sequence[Record]) -> Iterator[Dialogue | Skip]:
    """The conversations of a trace."""
    spans = sorted((record.value for record in records), key=_started)
    told = [(span, _attributes(span)) for span in spans]
    ours = [(span, found) for span, found in told if any(name.startswith("gen_ai.") for name in found)]
    if others := len(told) - len(ours):
        yield Skip(records[0].place, "a span that is no GenAI span", records=others, lost=False)
    left_out: list[str] = []
    calls = [call for span, found in ours if (call := _exchange(span, found, left_out))]
    runs = [run for span, found in ours if (run := _tool_run(span, found, left_out))]
    turns = [answered([*call.request, *call.reply], runs) for call in conversations(calls)]
    if not turns and runs:
        turns = [of_tools_alone([], runs)]
    if not turns and ours:
        reason = "a GenAI span whose messages were not captured"
        yield Skip(records[0].place, reason, records=len(ours))
    for number, each in enumerate(turns):
        yield Dialogue(
            each, tools=_tools(ours), id=_id(ours) + (f"/{number + 1}" if number else ""),
            outcome=Outcome(_verdict(told)), error=_error(told), agent=_agent(ours), left_out=left_out,
            place=records[0].place, records=1 if number else len(ours) - len(turns) + 1,
        )  # fmt: skip


def _started(span: Mapping[str, Any]) -> int:
    return int(span.get("startTimeUnixNano") or 0)


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a span or an event by their names."""
    pairs = holder.get("attributes") or []
    return {pair["key"]: value_of(pair.get("value")) for pair in pairs if isinstance(pair, Mapping) and "key" in pair}


def value_of(value: Any) -> Any:
    """An OTLP AnyValue as plain JSON."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [value_of(each) for each in (inner or {}).get("values") or []]
    if kind == "kvlistValue":
        return {pair["key"]: value_of(pair.get("value")) for pair in (inner or {}).get("values") or []}
    return int(inner) if kind == "intValue" else inner


def _json(value: Any) -> Any:
    """A structured value, or the text of one; any other text stays."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _events(span: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    events = span.get("events") or []
    return [_attributes(event) for event in events if isinstance(event, Mapping) and event.get("name") == name]


def _exchange(span: Mapping[str, Any], found: Attributes, left_out: list[str]) -> Exchange | None:
    """A span's messages; None if it has none."""
    for event in _events(span, DETAILS):
        found = {**found, **event}
    request, reply = _json(found.get(INPUT)), _json(found.get(OUTPUT))
    if not request and not reply:
        request, reply = _indexed(found, "prompt"), _indexed(found, "completion")
    if not request:
        return None
    told = chat.text_of(_json(found.get(SYSTEM)), left_out)
    if isinstance(reply, list) and len(reply) > 1:
        left_out.append("other choices")
        reply = reply[:1]
    asked = chat.turns(request, left_out)
    return Exchange([Told(told), *asked] if told else asked, chat.turns(reply or [], left_out))


def _indexed(found: Attributes, side: str) -> list[dict[str, Any]]:
    """OpenLLMetry's messages, one attribute for each field."""
    messages: dict[int, dict[str, Any]] = {}
    for name, value in found.items():
        match = INDEXED.match(name)
        if not match or match[1] != side or len(messages) > MOST_INDEXED:
            continue
        message = messages.setdefault(int(match[2]), {"role": "assistant"})
        if match[4] is None:
            message[match[3]] = value
        elif match[3] == "tool_calls":
            message.setdefault("calls", {}).setdefault(int(match[4]), {})[match[5]] = value
    for message in messages.values():
        if calls := message.pop("calls", None):
            message["tool_calls"] = [calls[number] for number in sorted(calls)]
    return [messages[number] for number in sorted(messages)]


def _tool_run(span: Mapping[str, Any], found: Attributes, left_out: list[str]) -> ToolRun | None:
    """A tool's run, if its result was captured or it failed."""
    failed = _failed(span)
    result = found.get("gen_ai.tool.call.result")
    if found.get("gen_ai.operation.name") != "execute_tool" or (result is None and not failed):
        return None
    call = ToolCall(
        str(found.get("gen_ai.tool.name")),
        _json(found.get("gen_ai.tool.call.arguments")),
        found.get("gen_ai.tool.call.id"),
    )
    text = chat.text_of(result, left_out) if result is not None else _message(span, found)
    return ToolRun(call, Heard(text, of_tool=True, call_id=call.id, failed=failed))


def _failed(span: Mapping[str, Any]) -> bool:
    status = span.get("status")
    return isinstance(status, Mapping) and status.get("code") in (2, "STATUS_CODE_ERROR")


def _message(span: Mapping[str, Any], found: Attributes) -> str:
    return str(span.get("status", {}).get("message") or found.get("error.type") or "")


def _error(told: Sequence[tuple[Mapping[str, Any], Attributes]]) -> Failure | None:
    """Why a trace broke: its first span without a parent failed."""
    root = next(((span, found) for span, found in told if not span.get("parentSpanId")), None)
    if root is None or not _failed(root[0]):
        return None
    return Failure(kind=str(root[1].get("error.type") or "error"), message=_message(*root))


def _verdict(told: Sequence[tuple[Mapping[str, Any], Attributes]]) -> Any:
    """What the evaluations in a trace say, if all that say pass or fail agree."""
    events = [event for span, _ in told for event in _events(span, EVALUATION)]
    said = {terminal_of(event.get("gen_ai.evaluation.score.label")) for event in events} - {None}
    return said.pop() if len(said) == 1 else None


def _first(ours: Sequence[tuple[Any, Attributes]], name: str) -> Any:
    return next((found[name] for _, found in ours if found.get(name)), None)


def _id(ours: Sequence[tuple[Mapping[str, Any], Attributes]]) -> str:
    return str(_first(ours, "gen_ai.conversation.id") or ours[0][0]["traceId"])


def _tools(ours: Sequence[tuple[Any, Attributes]]) -> list[Any]:
    tools = _json(_first(ours, "gen_ai.tool.definitions"))
    return tools if isinstance(tools, list) else []


def _agent(ours: Sequence[tuple[Any, Attributes]]) -> AgentRef | None:
    name, model = _first(ours, "gen_ai.agent.name"), _first(ours, "gen_ai.request.model")
    return AgentRef(name=str(name or "llm"), params={"model": model} if model else {}) if name or model else None
