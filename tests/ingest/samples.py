"""One small log in each format, made after its public documentation, all of one conversation where that can be said."""

import json
from typing import Any

POLICY, ASK, CONFIRM = "You help shop customers.", "Cancel my order 17.", "Yes, cancel it."
LOOK, CANCEL = {"name": "get_order", "arguments": {"id": 17}}, {"name": "cancel", "arguments": {"id": 17}}
FOUND, DONE = '{"id": 17, "status": "open"}', '{"id": 17, "status": "cancelled"}'
QUESTION, GOODBYE, THANKS = "Shall I cancel it?", "It is cancelled.", "Thanks, bye."
TOOL = {"name": "get_order", "description": "Look up an order", "parameters": {"type": "object"}}
STEPS = [
    (json.dumps(LOOK), FOUND),
    (QUESTION, CONFIRM),
    (json.dumps(CANCEL), DONE),
    (GOODBYE, THANKS),
]
"""Actions and observations of the conversation, worked out by hand."""
FIRST = f"{POLICY}\n\nTools:\n{json.dumps(TOOL)}\n\n{ASK}"

Json = dict[str, Any]


def openai_call(call: Json, id_: str) -> Json:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


OPENAI_MESSAGES = [
    {"role": "system", "content": POLICY},
    {"role": "user", "content": ASK},
    openai_call(LOOK, "call_1"),
    {"role": "tool", "tool_call_id": "call_1", "content": FOUND},
    {"role": "assistant", "content": QUESTION},
    {"role": "user", "content": [{"type": "text", "text": CONFIRM}]},
    openai_call(CANCEL, "call_2"),
    {"role": "tool", "tool_call_id": "call_2", "content": DONE},
    {"role": "assistant", "content": GOODBYE},
    {"role": "user", "content": THANKS},
]
OPENAI_TOOLS = [{"type": "function", "function": TOOL}]
OPENAI = {"id": "conv-1", "model": "gpt-4o", "messages": OPENAI_MESSAGES, "tools": OPENAI_TOOLS, "success": True}


def response_call(call: Json, id_: str) -> Json:
    arguments = json.dumps(call["arguments"])
    return {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": call["name"], "arguments": arguments}


RESPONSES = {
    "id": "conv-1",
    "instructions": POLICY,
    "tools": [{"type": "function", **TOOL}],
    "success": True,
    "items": [
        {"role": "user", "content": ASK},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look first."}]},
        response_call(LOOK, "call_1"),
        {"type": "function_call_output", "call_id": "call_1", "output": FOUND},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": QUESTION}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CONFIRM}]},
        response_call(CANCEL, "call_2"),
        {"type": "function_call_output", "call_id": "call_2", "output": DONE},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": GOODBYE}]},
        {"role": "user", "content": THANKS},
    ],
}


def tool_use(call: Json, id_: str) -> Json:
    return {"type": "tool_use", "id": id_, "name": call["name"], "input": call["arguments"]}


ANTHROPIC = {
    "id": "conv-1",
    "model": "claude-sonnet",
    "system": [{"type": "text", "text": POLICY}],
    "tools": [{"name": "get_order", "description": "Look up an order", "input_schema": {"type": "object"}}],
    "success": True,
    "messages": [
        {"role": "user", "content": ASK},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, tool_use(LOOK, "tu_1")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu_1", "content": FOUND}]},
        {"role": "assistant", "content": QUESTION},
        {"role": "user", "content": CONFIRM},
        {"role": "assistant", "content": [tool_use(CANCEL, "tu_2")]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "tu_2", "content": [{"type": "text", "text": DONE}]},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": GOODBYE}]},
        {"role": "user", "content": THANKS},
    ],
}

SHAREGPT = {
    "id": "conv-1",
    "system": POLICY,
    "tools": json.dumps([TOOL]),
    "success": True,
    "conversations": [
        {"from": "human", "value": ASK},
        {"from": "function_call", "value": json.dumps(LOOK)},
        {"from": "observation", "value": FOUND},
        {"from": "gpt", "value": QUESTION},
        {"from": "human", "value": CONFIRM},
        {"from": "function_call", "value": json.dumps(CANCEL)},
        {"from": "observation", "value": DONE},
        {"from": "gpt", "value": GOODBYE},
        {"from": "human", "value": THANKS},
    ],
}

MESSAGES = {
    "messages": [
        {"role": "system", "content": FIRST},
        *(
            {"role": role, "content": text}
            for action, observation in STEPS
            for role, text in (("user", action), ("assistant", observation))
        ),
    ],
    "source": "shop",
}
MESSAGES["messages"][-1]["content"] += " [SUCCESS]"  # type: ignore[index]

TAU = {
    "task_id": 3,
    "trial": 1,
    "reward": 1.0,
    "info": {
        "task": {
            "user_id": "mia_1",
            "instruction": "You want order 17 cancelled.",
            "actions": [{"name": "cancel", "kwargs": {"id": 17}}],
            "outputs": ["GOLD-OUTPUT"],
        },
        "reward_info": {"info": {"gt_data_hash": "GOLD-HASH"}},
    },
    "traj": [*OPENAI_MESSAGES[:-1], {"role": "user", "content": f"{THANKS} ###STOP###"}],
}

SWE = {
    "environment": "swe_main",
    "trajectory": [
        {
            "action": "ls\n",
            "observation": "main.py\n",
            "response": "I look.\n```\nls\n```",
            "thought": "I look.\n",
            "state": "{}",
        },
        {
            "action": "submit\n",
            "observation": "diff --git a b\n",
            "response": "Done.\n```\nsubmit\n```",
            "thought": "Done.\n",
            "state": "{}",
        },
    ],
    "history": [
        {"role": "system", "content": "SETTING: a terminal.", "agent": "primary"},
        {"role": "user", "content": "an old issue", "agent": "primary", "is_demo": True},
        {"role": "user", "content": "ISSUE: it breaks.", "agent": "primary"},
        {"role": "assistant", "content": "I look.", "thought": "I look.\n", "action": "ls\n", "agent": "primary"},
        {"role": "user", "content": "main.py\n\n(Open file: n/a)\nbash-$", "agent": "primary"},
        {"role": "assistant", "content": "Done.", "thought": "Done.\n", "action": "submit\n", "agent": "primary"},
    ],
    "info": {"exit_status": "submitted", "submission": "diff --git a b\n", "model_stats": {}},
}


def otlp(value: Any) -> Json:
    """Plain JSON as an OTLP AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": otlp(each)} for key, each in value.items()]}}
    return {"stringValue": value}


def span(id_: str, start: int, attributes: Json, trace: str = "trace-1", **more: Any) -> Json:
    pairs = [{"key": key, "value": otlp(value)} for key, value in attributes.items()]
    return {
        "traceId": trace, "spanId": id_, "name": id_, "startTimeUnixNano": str(start), "attributes": pairs, **more
    }  # fmt: skip


def part(call: Json, id_: str) -> Json:
    return {"type": "tool_call", "id": id_, "name": call["name"], "arguments": call["arguments"]}


def told(role: str, *parts: Any) -> Json:
    return {"role": role, "parts": [{"type": "text", "content": p} if isinstance(p, str) else p for p in parts]}


def response(id_: str, text: str) -> Json:
    return {"type": "tool_call_response", "id": id_, "response": text}


OTEL_HISTORY = [
    told("user", ASK),
    told("assistant", {"type": "reasoning", "content": "Look first."}, part(LOOK, "c1")),
    told("tool", response("c1", FOUND)),
    told("assistant", QUESTION),
    told("user", CONFIRM),
    told("assistant", part(CANCEL, "c2")),
]


def chat_span(id_: str, start: int, history: list[Json], reply: Json, **more: Any) -> Json:
    """A span of a model's call: the first as the text of JSON, as instrumentations that know no structure write it."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.conversation.id": "conv-1",
        "gen_ai.system_instructions": [{"type": "text", "content": POLICY}],
        "gen_ai.tool.definitions": json.dumps([{"type": "function", **TOOL}]),
        "gen_ai.input.messages": json.dumps(history) if start == 1 else history,
        "gen_ai.output.messages": [{**reply, "finish_reason": "stop"}],
    }
    return span(id_, start, attributes, parentSpanId="root", **more)


OTEL_SPANS = [
    span("root", 0, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}),
    span("http", 7, {"http.request.method": "GET"}, parentSpanId="root"),
    chat_span("s1", 1, OTEL_HISTORY[:1], OTEL_HISTORY[1]),
    chat_span("s2", 3, OTEL_HISTORY[:3], OTEL_HISTORY[3]),
    chat_span("s3", 5, OTEL_HISTORY[:5], OTEL_HISTORY[5]),
    span(
        "t2", 6,
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "cancel", "gen_ai.tool.call.id": "c2",
         "gen_ai.tool.call.arguments": {"id": 17}, "gen_ai.tool.call.result": DONE},
        parentSpanId="root",
        events=[{"name": "gen_ai.evaluation.result", "attributes": [
            {"key": "gen_ai.evaluation.name", "value": {"stringValue": "TaskDone"}},
            {"key": "gen_ai.evaluation.score.label", "value": {"stringValue": "pass"}},
        ]}],
    ),
]  # fmt: skip


def otlp_export(spans: list[Json]) -> Json:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}


def lc(kind: str, content: str, **more: Any) -> Json:
    """A message as LangChain serializes it."""
    return {
        "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind],
        "kwargs": {"content": content, **more},
    }  # fmt: skip


LC_HISTORY = [
    lc("SystemMessage", POLICY),
    lc("HumanMessage", ASK),
    lc("AIMessage", "", tool_calls=[{"name": "get_order", "args": {"id": 17}, "id": "c1", "type": "tool_call"}]),
    lc("ToolMessage", FOUND, tool_call_id="c1"),
    lc("AIMessage", QUESTION),
]


def llm_run(id_: str, at: str, history: list[Json], reply: Json) -> Json:
    return {
        "id": id_, "trace_id": "run-0", "parent_run_id": "run-0", "run_type": "llm", "name": "ChatOpenAI",
        "start_time": at, "inputs": {"messages": [history]}, "outputs": {"generations": [[{"message": reply}]]},
        "extra": {"invocation_params": {"model": "gpt-4o", "tools": OPENAI_TOOLS}},
    }  # fmt: skip


LANGSMITH = {
    "id": "run-0", "trace_id": "run-0", "run_type": "chain", "name": "agent", "start_time": "2026-01-01T00:00:00",
    "inputs": {"input": ASK}, "outputs": {"output": QUESTION}, "error": None,
    "child_runs": [
        llm_run("run-3", "2026-01-01T00:00:03", LC_HISTORY[:4], LC_HISTORY[4]),
        llm_run("run-1", "2026-01-01T00:00:01", LC_HISTORY[:2], LC_HISTORY[2]),
        {"id": "run-2", "trace_id": "run-0", "parent_run_id": "run-0", "run_type": "tool", "name": "get_order",
         "start_time": "2026-01-01T00:00:02", "inputs": {"input": "{'id': 17}"}, "outputs": {"output": FOUND}},
    ],
}  # fmt: skip

TOOLBENCH = {
    "set": "g1",
    "id": "102",
    "query": ASK,
    "functions": [TOOL],
    "win": True,
    "final_answer": "x",
    "steps": [{"thought": "I look.", "action": "get_order", "input": '{"id": 17}', "observation": FOUND, "code": 0}],
}

TABLE = [
    {"episode": "a", "step": 0, "action": None, "observation": "A room."},
    {"episode": "b", "step": 1, "action": "look", "observation": "Dark.", "reward": 0.0, "terminal": "failure"},
    {"episode": "a", "step": 2, "action": "take key", "observation": "Taken.", "reward": 1.0, "terminal": "success"},
    {"episode": "a", "step": 1, "action": "look", "observation": "A key.", "reward": 0.0},
]
