"""Chat messages of any vendor as turns: OpenAI's, Anthropic's content blocks, OpenTelemetry's parts, LangChain's.

They differ in names, not in kind: a role; a content that is a text or a list of parts; and calls, which stand beside
the content or among its parts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest.turns import Heard, Said, Told, ToolCall, Turn

ROLES = {
    "system": "told", "developer": "told",
    "user": "heard", "human": "heard",
    "assistant": "said", "ai": "said", "model": "said", "gpt": "said", "chatbot": "said",
    "tool": "result", "function": "result", "observation": "result", "ipython": "result", "environment": "result",
}  # fmt: skip
TEXT = ("text", "input_text", "output_text", "refusal", "summary_text")
THOUGHT = ("reasoning", "thinking", "redacted_thinking", "reasoning_text")
CALL = ("tool_use", "tool_call", "tool-call", "function_call", "server_tool_use", "server_tool_call", "mcp_tool_use")
RESULT = ("tool_result", "tool_call_response", "tool-result", "server_tool_call_response", "mcp_tool_result",
          "web_search_tool_result", "code_execution_tool_result")  # fmt: skip


def turns(messages: Any, left_out: list[str]) -> list[Turn]:
    """Messages as turns; the kinds of parts that are no text go to ``left_out``.

    Raises:
        ProtocolError: they are no list, or one has no role that is known; names the message.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise ProtocolError("the messages are no list")
    return [turn for number, message in enumerate(messages, 1) for turn in _message(number, message, left_out)]


def _message(number: int, message: Any, left_out: list[str]) -> Iterator[Turn]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ProtocolError(f"message {number} has no role")
    kind = ROLES.get(message["role"].lower())
    if kind is None:
        raise ProtocolError(f"message {number} has an unknown role")
    content = message.get("content", message.get("parts"))
    if kind == "result" and not _has_results(content):
        yield _result({**message, "content": content}, left_out)
        return
    found = list(_parts(kind, content, left_out))
    if kind == "said":
        found += _beside(message, {call.id for turn in found if isinstance(turn, Said) for call in turn.calls})
    yield from found or ([Said()] if kind == "said" else [])


def _has_results(content: Any) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") in RESULT for part in content)


def _parts(kind: str, content: Any, left_out: list[str]) -> Iterator[Turn]:
    """The turns of a content: neighbouring texts are one."""
    words: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        type_ = part.get("type") if isinstance(part, dict) else None
        if type_ not in CALL + RESULT + THOUGHT:
            words.append(text_of(part, left_out))
            continue
        yield from _spoken(kind, words)
        words = []
        if type_ in CALL:
            yield Said(calls=(call_of(part),))
        elif type_ in RESULT:
            yield _result(part, left_out)
        else:
            yield Said(thought=_first_text(part, ("thinking", "content", "text", "summary", "reasoning")))
    yield from _spoken(kind, words)


def _spoken(kind: str, words: list[str]) -> Iterator[Turn]:
    text = "\n\n".join(word for word in words if word)
    if words and (text or kind == "heard"):
        yield Told(text) if kind == "told" else Heard(text) if kind != "said" else Said(text)


def _beside(message: Mapping[str, Any], known: Set[str | None]) -> Iterator[Turn]:
    """What an agent's message has beside its content; calls that the content has too (``known``) are made once."""
    if thought := _first_text(message, ("reasoning_content", "reasoning", "thinking")):
        yield Said(thought=thought)
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        yield Said(refusal)
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise ProtocolError("tool_calls is no list")
    made = [call for call in map(call_of, calls or ()) if call.id is None or call.id not in known]
    if made:
        yield Said(calls=tuple(made))
    if isinstance(old := message.get("function_call"), dict):
        yield Said(calls=(call_of(old),))


def call_of(part: Any) -> ToolCall:
    """A call in any of the forms; the names of its arguments differ, and whether they are an object or its text.

    Raises:
        ProtocolError: it has no name.
    """
    if not isinstance(part, Mapping):
        raise ProtocolError("a call is no object")
    inner = next((part[key] for key in ("function", "custom") if isinstance(part.get(key), Mapping)), part)
    name = inner.get("name") or inner.get("toolName") or part.get("type")
    if not isinstance(name, str):
        raise ProtocolError("a call has no name")
    arguments = next((inner[key] for key in ("arguments", "args", "input") if inner.get(key) is not None), None)
    return ToolCall(name, arguments, _id(part, ("call_id", "id", "toolCallId")))


def _result(part: Mapping[str, Any], left_out: list[str]) -> Heard:
    content = next((part[key] for key in ("content", "response", "result", "output") if part.get(key) is not None), "")
    failed = part.get("is_error") is True or part.get("status") == "error" or part.get("error") is True
    id_ = _id(part, ("tool_call_id", "tool_use_id", "call_id", "id", "toolCallId"))
    return Heard(text_of(content, left_out), of_tool=True, call_id=id_, failed=failed)


def _id(part: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((part[key] for key in keys if isinstance(part.get(key), str)), None)


def _first_text(part: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((text for key in keys if (text := text_of(part.get(key), []))), "")


def text_of(content: Any, left_out: list[str]) -> str:
    """A content as text. A part that is no text is named in its place, ``[image_url]``, and in ``left_out``."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, str) or _typed(part) for part in content):
        return "\n\n".join(text for part in content if (text := text_of(part, left_out)))
    if not _typed(content):
        return json.dumps(content, ensure_ascii=False)
    if content["type"] in TEXT:
        return _first_text(content, ("text", "content", "refusal"))
    left_out.append(content["type"])
    return f"[{content['type']}]"


def _typed(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)
