"""LangSmith / LangChain run trees: ``llm`` runs with their messages, ``tool`` runs; nested (``child_runs``) or flat.

Where no llm run has messages, an episode is made of the tools' runs, between the root's inputs and outputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.records import Record, Skip
from worldloom.ingest.traces import Exchange, ToolRun, answered, conversations, of_tools_alone
from worldloom.ingest.turns import Dialogue, Heard, Said, ToolCall, Turn
from worldloom.trajectory import AgentRef, Failure

CLASSES = {
    "SystemMessage": "system", "HumanMessage": "user", "AIMessage": "assistant", "ToolMessage": "tool",
    "FunctionMessage": "tool", "AIMessageChunk": "assistant", "HumanMessageChunk": "user",
}  # fmt: skip

Run = Mapping[str, Any]


def matches(record: Any) -> bool:
    """Runs."""
    return isinstance(record, Mapping) and "run_type" in record and ("inputs" in record or "child_runs" in record)


def key(record: Any) -> str:
    """The trace that a run belongs to.

    Raises:
        ProtocolError: it is no run, or has no id.
    """
    if not isinstance(record, Mapping) or "run_type" not in record:
        raise ProtocolError("is no run with a run_type")
    found = record.get("trace_id") or record.get("id")
    if not isinstance(found, str):
        raise ProtocolError("is a run without trace_id and id")
    return found


def read_group(records: Sequence[Record]) -> Iterator[Dialogue | Skip]:
    """The conversations of a trace."""
    runs = sorted((run for record in records for run in _flat(record.value)), key=_order)
    root = next((run for run in runs if not run.get("parent_run_id")), runs[0])
    left_out: list[str] = []
    calls = [call for run in runs if (call := _exchange(run, left_out))]
    tools = [_tool_run(run, left_out) for run in runs if run.get("run_type") == "tool"]
    kept = conversations(calls)
    turns = [answered([*call.request, *call.reply], tools) for call in kept]
    if not turns and tools:
        turns = [of_tools_alone(_words(root.get("inputs"), "user"), tools, _words(root.get("outputs"), "assistant"))]
    shown = max(1, min(len(turns), len(records)))
    if not turns:
        yield Skip(records[0].place, "a trace without messages and without runs of tools", records=len(records))
    for number, each in enumerate(turns):
        yield Dialogue(
            each, tools=kept[number].tools if kept else (), id=key(root) + (f"/{number + 1}" if number else ""),
            error=_error(root), agent=_agent(runs), left_out=left_out, place=records[0].place,
            records=(len(records) - shown + 1) if number == 0 else int(number < shown),
        )  # fmt: skip


def _flat(run: Any) -> Iterator[Run]:
    """A run and all below it."""
    waiting = [run]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            yield each
            children = each.get("child_runs")
            waiting += children if isinstance(children, list) else []


def _order(run: Run) -> tuple[str, str]:
    return str(run.get("start_time") or ""), str(run.get("dotted_order") or "")


def _exchange(run: Run, left_out: list[str]) -> Exchange | None:
    """The messages of an llm run; None if it is none or has none."""
    inputs, outputs = run.get("inputs"), run.get("outputs")
    asked = inputs.get("messages") if isinstance(inputs, Mapping) else None
    if run.get("run_type") != "llm" or not isinstance(asked, list) or not asked:
        return None
    asked = asked[0] if isinstance(asked[0], list) and not _is_pair(asked[0]) else asked
    request = chat.turns([message(each) for each in asked], left_out)
    return Exchange(request, chat.turns([message(each) for each in _replies(outputs, left_out)], left_out), _tools(run))


def _is_pair(said: Any) -> bool:
    return isinstance(said, list) and len(said) == 2 and all(isinstance(each, str) for each in said)


def _replies(outputs: Any, left_out: list[str]) -> list[Any]:
    """The message in an llm run's outputs, in any of the forms: the first of several."""
    if not isinstance(outputs, Mapping):
        return []
    for name in ("generations", "choices", "messages", "message", "output"):
        found, others = outputs.get(name), False
        while isinstance(found, list) and found:
            found, others = found[0], others or len(found) > 1
        if others and isinstance(found, Mapping):
            left_out.append("other choices")
        if isinstance(found, Mapping):
            return [found.get("message") or found]
    return [outputs] if "role" in outputs else []


def message(said: Any) -> dict[str, Any]:
    """A LangChain message, serialized in any of its ways, as role and content.

    Raises:
        ProtocolError: it is none of them.
    """
    if _is_pair(said):
        return {"role": said[0], "content": said[1]}
    if not isinstance(said, Mapping):
        raise ProtocolError("a run has a message that is none")
    if isinstance(said.get("kwargs"), Mapping) and isinstance(said.get("id"), list) and said["id"]:
        body, role = said["kwargs"], CLASSES.get(str(said["id"][-1]))
    else:
        body = said["data"] if isinstance(said.get("data"), Mapping) else said
        role = said.get("role") or said.get("type")
    more = body.get("additional_kwargs") if isinstance(body.get("additional_kwargs"), Mapping) else {}
    return {**(more or {}), **{k: v for k, v in body.items() if v not in (None, [])}, "role": role}


def _tool_run(run: Run, left_out: list[str]) -> ToolRun:
    inputs, outputs, error = run.get("inputs"), run.get("outputs"), run.get("error")
    given = inputs["input"] if isinstance(inputs, Mapping) and list(inputs) == ["input"] else inputs
    told = outputs["output"] if isinstance(outputs, Mapping) and list(outputs) == ["output"] else outputs
    body = message(told) if isinstance(told, Mapping) and ("kwargs" in told or "tool_call_id" in told) else {}
    text = str(error) if error else chat.text_of(body.get("content", told), left_out)
    id_ = body.get("tool_call_id")
    return ToolRun(
        ToolCall(str(run.get("name")), given, id_), Heard(text, of_tool=True, call_id=id_, failed=bool(error))
    )


def _words(told: Any, role: str) -> list[Turn]:
    """The words in a root's inputs or outputs: its only text, else all of it as JSON."""
    if not told:
        return []
    only = next(iter(told.values())) if isinstance(told, Mapping) and len(told) == 1 else told
    text = chat.text_of(only, [])
    return [Heard(text) if role == "user" else Said(text)]


def _error(root: Run) -> Failure | None:
    return Failure(kind="run", message=str(root["error"])) if root.get("error") else None


def _extra(run: Run, *path: str) -> Any:
    found: Any = run.get("extra")
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _tools(run: Run) -> list[Any]:
    tools = _extra(run, "invocation_params", "tools")
    return tools if isinstance(tools, list) else []


def _agent(runs: Sequence[Run]) -> AgentRef | None:
    named = (_extra(run, "metadata", "ls_model_name") or _extra(run, "invocation_params", "model") for run in runs)
    model = next((name for name in named if isinstance(name, str)), None)
    return AgentRef(name="llm", params={"model": model}) if model else None
