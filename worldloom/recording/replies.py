"""What a recorded answer says: JSON or a stream of events, of the Chat Completions or the Responses API."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


def chat_replies(text: str) -> list[dict[str, Any]]:
    """The assistant's messages in a chat completion, one a choice; none, where the answer is no whole completion.

    Raises:
        ValueError: it is neither JSON nor a stream of events with JSON.
    """
    if _is_stream(text):
        return _assembled(text)
    choices = _object(json.loads(text)).get("choices")
    found = [_object(choice).get("message") for choice in choices] if isinstance(choices, list) else []
    return [message for message in found if isinstance(message, dict)]


def response_of(text: str) -> dict[str, Any] | None:
    """The ``response`` object that an answer of the Responses API ends with; None if it does not get there.

    Raises:
        ValueError: as ``chat_replies``.
    """
    if not _is_stream(text):
        found = json.loads(text)
        return found if isinstance(found, dict) and isinstance(found.get("output"), list) else None
    whole = [event["response"] for event in events(text) if isinstance(event.get("response"), dict)]
    return whole[-1] if whole and whole[-1].get("status") in ("completed", "incomplete") else None


def events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, in order.

    Raises:
        ValueError: the data of an event is no JSON.
    """
    for event in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        lines = [line.removeprefix("data:").removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
        data = "\n".join(lines)
        if data and data != "[DONE]" and isinstance(found := json.loads(data), dict):
            yield found


def _is_stream(text: str) -> bool:
    return text.lstrip("\ufeff \r\n").startswith(("data:", "event:", "id:", "retry:", ":"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _assembled(text: str) -> list[dict[str, Any]]:
    """The messages that a stream's deltas add up to; one whose stream says no end is left out."""
    messages: dict[int, dict[str, Any]] = {}
    ended = set()
    for event in events(text):
        choices = event.get("choices")
        for choice in map(_object, choices if isinstance(choices, list) else []):
            number = choice.get("index") or 0
            _add(messages.setdefault(number, {"role": "assistant", "content": None}), _object(choice.get("delta")))
            if choice.get("finish_reason"):
                ended.add(number)
    return [message for number, message in sorted(messages.items()) if number in ended]


def _add(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key in TEXTS:
        if isinstance(delta.get(key), str):
            message[key] = (message.get(key) or "") + delta[key]
    for part in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        number = part.get("index", len(calls))
        while len(calls) <= number:
            calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        _add_call(calls[number], part)


def _add_call(call: dict[str, Any], part: Mapping[str, Any]) -> None:
    call["id"] = part.get("id") or call["id"]
    call["type"] = part.get("type") or call["type"]
    for kind in ("function", "custom"):
        for key, value in _object(part.get(kind)).items():
            kept = call.setdefault(kind, {})
            kept[key] = (kept.get(key) or "") + value if isinstance(value, str) else value
