"""A recorded exchange as a part of a conversation: what was given to the model, and what it replied.

Both APIs send a conversation as a list of items: messages, and in the Responses API calls and their outputs, too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from worldloom.recording.replies import chat_replies, response_of

Kind = Literal["chat", "responses"]
PATHS: Mapping[str, Kind] = {"/chat/completions": "chat", "/responses": "responses"}
MEANT = ("role", "type", "name", "call_id", "tool_call_id", "output", "arguments", "input")


@dataclass(frozen=True)
class Asked:
    """One call of a model.

    ``given`` are the items that were sent, ``replies`` the alternatives that came back, each a list of items (none,
    where no whole answer came); ``previous`` is the response that the items go on from, ``id`` the response's own;
    ``thread`` is the conversation that the server keeps.
    """

    kind: Kind
    given: Sequence[Any]
    replies: Sequence[Sequence[Any]]
    request: Mapping[str, Any]
    previous: str | None = None
    id: str | None = None
    thread: str | None = None


def asked_of(exchange: Mapping[str, Any]) -> Asked | None:
    """What an exchange asked a model; None if it is of another kind (a list of models, an embedding, ...).

    Raises:
        ValueError: its request is no JSON of the API's form.
    """
    request = exchange["request"]
    kind = next((kind for path, kind in PATHS.items() if request["path"].rstrip("/").endswith(path)), None)
    if kind is None or request["method"] != "POST" or not isinstance(exchange.get("request_body"), str):
        return None
    body = json.loads(exchange["request_body"])
    given = body.get("messages" if kind == "chat" else "input") if isinstance(body, dict) else None
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise ValueError("the request has no list of messages")
    replies, own = _replied(kind, exchange)
    return Asked(kind, given, replies, body, _id(body.get("previous_response_id")), own, _id(body.get("conversation")))


def _id(value: Any) -> str | None:
    found = value.get("id") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else None


def _replied(kind: Kind, exchange: Mapping[str, Any]) -> tuple[list[list[Any]], str | None]:
    """The alternatives and the response's id; none where the exchange failed or its answer cannot be read."""
    status, text = (exchange.get("response") or {}).get("status", 0), exchange.get("response_body")
    if "error" in exchange or not 200 <= status < 300 or not isinstance(text, str):
        return [], None
    try:
        if kind == "chat":
            return [[message] for message in chat_replies(text)], None
        response = response_of(text)
    except ValueError:
        return [], None
    return ([response["output"]], response.get("id")) if response else ([], None)


def digests(items: Sequence[Any], before: bytes = b"") -> list[bytes]:
    """For each length of a beginning of the items, 0 included, what tells it from others.

    Reasoning does not count, since clients may leave it out when they go on.
    """
    found = [before]
    for item in items:
        silent = isinstance(item, Mapping) and item.get("type") == "reasoning"
        found.append(found[-1] if silent else digest(found[-1] + meaning(item).encode()))
    return found


def digest(what: bytes) -> bytes:
    """16 bytes that tell it from others."""
    return hashlib.blake2b(what, digest_size=16).digest()


def meaning(item: Any) -> str:
    """An item without what clients change when they send it back: absent and empty keys, ids, how JSON is written."""
    if not isinstance(item, Mapping):
        return json.dumps(item, sort_keys=True)
    kept = {key: _plain(item[key]) for key in MEANT if item.get(key)}
    kept.setdefault("type", "message")
    calls = [_call(call) for call in item.get("tool_calls") or [] if isinstance(call, Mapping)]
    return json.dumps([kept, _words(item.get("content")), calls], sort_keys=True)


def _call(call: Mapping[str, Any]) -> list[Any]:
    inner: Mapping[str, Any] = next(
        (call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), Mapping)), {}
    )
    return [call.get("id"), inner.get("name"), _plain(inner.get("arguments", inner.get("input")))]


def _words(content: Any) -> Any:
    """A content: parts of text are one text, nothing is the empty text."""
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "".join(str(part["text"]) for part in content)
    return content or ""


def _plain(value: Any) -> Any:
    """JSON that is written as text, read: its blanks and the order of its keys mean nothing."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
