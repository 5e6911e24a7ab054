"""What a row of a log says beside its messages: how it ended, its id, whose it is."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from worldloom.trajectory import AgentRef, Failure, Terminal

GOOD = {"success", "succeeded", "successful", "solved", "resolved", "passed", "pass", "won", "true", "yes", "1"}
BAD = {"failure", "failed", "fail", "unsolved", "unresolved", "lost", "false", "no", "0"}
CUT = {"truncated", "timeout", "timed_out", "max_steps"}
OUTCOME_KEYS = ("success", "resolved", "outcome", "terminal")
ID_KEYS = ("task_id", "instance_id", "conversation_id", "session_id", "thread_id", "id", "custom_id")


@dataclass(frozen=True)
class Outcome:
    """What the log says of the end; None where it says nothing."""

    terminal: Terminal | None = None
    reward: float | None = None


def terminal_of(value: Any) -> Terminal | None:
    """A word, truth value or 0/1 that says how an episode ended; None if it says neither."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = str(value).strip().lower()
    return "success" if word in GOOD else "failure" if word in BAD else "truncated" if word in CUT else None


def reward_of(value: Any) -> float | None:
    """A finite number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """What a record says of its end by the keys ``success``, ``resolved``, ``outcome``, ``terminal`` or ``reward``.

    A reward alone says success from 1 on and failure at 0 or below; between, it says neither.
    """
    reward = reward_of(record.get("reward"))
    told = (terminal_of(record[key]) for key in OUTCOME_KEYS if record.get(key) is not None)
    terminal = next((terminal for terminal in told if terminal), None)
    if terminal is None and reward is not None:
        terminal = "success" if reward >= 1 else "failure" if reward <= 0 else None
    return Outcome(terminal, reward)


def id_of(record: Mapping[str, Any]) -> str | None:
    """The id that a record gives itself or, in its ``metadata``, its task or conversation."""
    metadata = record.get("metadata")
    for place in (record, metadata if isinstance(metadata, Mapping) else {}):
        for key in ID_KEYS:
            if isinstance(place.get(key), str | int) and place[key] != "":
                return str(place[key])
    return None


def agent_of(record: Mapping[str, Any]) -> AgentRef | None:
    """Whose words they are, if the record names a model or an agent."""
    model, name = record.get("model"), record.get("agent")
    params = {"model": model} if isinstance(model, str) else {}
    if isinstance(name, str) or params:
        return AgentRef(name=name if isinstance(name, str) else "llm", params=params)
    return None


def error_of(record: Mapping[str, Any]) -> Failure | None:
    """What broke a conversation off, as a row of `worldloom conversations` tells it."""
    told = record.get("error")
    if "recorded" not in record or not isinstance(told, Mapping):
        return None
    return Failure(kind=str(told.get("kind") or "error"), message=str(told.get("message") or ""))


def kept_fields(record: Any, paths: Iterable[str]) -> dict[str, Any]:
    """What a record has at some paths such as ``metadata.customer``, nested as it was; what it lacks is absent."""
    found: dict[str, Any] = {}
    for path in paths:
        value, into = record, found
        *above, last = path.split(".")
        for key in (*above, last):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            for key in above:
                into = into.setdefault(key, {})
            into[last] = value
    return found
