"""A call of a function, said as JSON: ``{"name": "get_city", "arguments": {"id": 7}}``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Call:
    """A function's name and its arguments; arguments that are no JSON object stay the text that was said."""

    name: str
    arguments: Mapping[str, Any] | str

    @cached_property
    def key(self) -> str:
        """The same for calls that differ in the order of keys, white space or the form of numbers only."""
        return json.dumps([self.name, self.arguments], sort_keys=True)

    @property
    def text(self) -> str:
        """The call as an action says it."""
        return json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)


def parse_call(action: str) -> Call | None:
    """The call that an action makes; None if it is not a JSON object with a ``name``.

    ``arguments`` may be an object, the JSON of one as text (as OpenAI's messages have it), or absent.
    """
    try:
        said = _loaded(action)
        if not isinstance(said, dict) or not isinstance(said.get("name"), str):
            return None
        call = Call(said["name"], arguments_of(said.get("arguments", {})))
        return call if call.key else None
    except (ValueError, RecursionError):
        return None


def arguments_of(said: Any) -> Mapping[str, Any] | str:
    """Arguments as an object, if they are one or the text of one; no text is no arguments; else the text."""
    if isinstance(said, Mapping):
        return said
    text = said if isinstance(said, str) else json.dumps(said)
    try:
        found = _loaded(text or "{}")
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text


def _loaded(text: str) -> Any:
    """JSON, line breaks within strings allowed (as in ToolBench), whole numbers as int however they are written."""
    return json.loads(text, strict=False, parse_float=_number)


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value
