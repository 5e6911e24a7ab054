"""Trajectory <-> chat messages: the one text protocol of training, evaluation and inference.

``system`` holds the initial context and the first observation (before them the environment's name, for a model of
several; see ``worldloom.naming``), then ``user`` is the action alone and
``assistant`` the observation, with the suffix " [SUCCESS]" or " [FAILURE]" when the step ends the task
(Word2World, arXiv 2512.18832, has the first suffix; its files load unchanged).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from worldloom.errors import DataError, ProtocolError
from worldloom.naming import NAME_LINE
from worldloom.trajectory import ESCAPED, BadLine, EnvRef, Step, TaskRef, Terminal, Trajectory, numbered_lines

MARKERS: Mapping[Terminal, str] = {"success": " [SUCCESS]", "failure": " [FAILURE]"}
CONTEXT_END = "\n\n"


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


def system_text(initial_context: str | None, initial_observation: str, env: str | None = None) -> str:
    """What the world model is told before the first action; ``env`` is named in the first line, if given."""
    named = NAME_LINE.format(env) if env is not None else ""
    return named + (initial_context + CONTEXT_END if initial_context is not None else "") + initial_observation


def said(observation: str, terminal: Terminal | None) -> str:
    """An observation as the world model says it, with its suffix.

    Raises:
        ProtocolError: the observation itself ends in a suffix, so that it could not be told apart.
    """
    if observation.endswith(tuple(MARKERS.values())):
        raise ProtocolError(f"an observation ends in a terminal suffix by itself: {observation[-10:].lstrip()!r}")
    return observation + (MARKERS.get(terminal, "") if terminal else "")


def heard(text: str) -> tuple[str, Terminal | None]:
    """The observation and the terminal in what a world model said."""
    for terminal, marker in MARKERS.items():
        if text.endswith(marker):
            return text.removesuffix(marker), terminal
    return text, None


def render(trajectory: Trajectory, env: str | None = None) -> list[Message]:
    """A trajectory as chat messages; a truncated end has no suffix, like an open one. ``env`` is named if given."""
    messages = []
    system = system_text(trajectory.initial_context, trajectory.initial_observation, env)
    if system or trajectory.initial_context is not None:
        messages.append(Message(role="system", content=system))
    for step in trajectory.steps:
        messages.append(Message(role="user", content=step.action))
        messages.append(Message(role="assistant", content=said(step.observation, step.terminal)))
    return messages


def parse(messages: Sequence[Mapping[str, Any]], env: str = "unknown", task_id: str = "unknown") -> Trajectory:
    """Chat messages as a trajectory. What the system message holds is one text, kept as first observation.

    Raises:
        ProtocolError: roles out of order, a message without text, or no step at all; names the message.
    """
    texts = [_checked(number, message) for number, message in enumerate(messages, 1)]
    system = texts.pop(0) if messages and messages[0]["role"] == "system" else None
    _check_roles(messages, 0 if system is None else 1)
    steps = []
    for action, answer in zip(texts[::2], texts[1::2], strict=True):
        observation, terminal = heard(answer)
        said(observation, terminal)  # raises where two suffixes leave open which one is the end's
        steps.append(Step(action=action, observation=observation, terminal=terminal))
    return Trajectory(
        env=EnvRef(name=env), task=TaskRef(id=task_id), initial_observation=system or "", steps=steps,
        initial_context=None,
    )  # fmt: skip


def _checked(number: int, message: Any) -> str:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ProtocolError(f"message {number} has no role")
    if not isinstance(message.get("content"), str):
        raise ProtocolError(f"message {number} ({message['role']}) has no text in 'content'")
    return str(message["content"])


def _check_roles(messages: Sequence[Mapping[str, Any]], start: int) -> None:
    for number, message in enumerate(messages[start:], start):
        expected = ("user", "assistant")[(number - start) % 2]
        if message["role"] != expected:
            raise ProtocolError(f"message {number + 1} is from {message['role']!r}; {expected!r} was to follow")
    if len(messages) == start or messages[-1]["role"] != "assistant":
        raise ProtocolError("a row must hold at least one action and end on an assistant message")


class Row(NamedTuple):
    """One line of a Word2World / LLaMA-Factory file: its trajectory, which also keeps the row's other keys."""

    line: int
    trajectory: Trajectory


def scan_messages(path: Path | str, env: str = "unknown") -> Iterator[Row | BadLine]:
    """Read a ``messages`` file (JSON Lines), line by line; a bad line does not take the rest with it.

    Keys of a row beside ``messages``, and of a message beside role and content, are kept and written back
    by ``messages_row``.

    Raises:
        DataError: the file cannot be read.
    """
    path = Path(path)
    for number, raw in numbered_lines(path):
        try:
            yield Row(number, trajectory_of_row(raw, env, f"{path.stem}/{number}"))
        except ProtocolError as error:
            yield BadLine(path, number, str(error))


def trajectory_of_row(raw: bytes, env: str = "unknown", task_id: str = "unknown") -> Trajectory:
    """One line of a Word2World / LLaMA-Factory file as a trajectory, the row's other keys kept.

    Raises:
        ProtocolError: it is no JSON, or no such row; no text of it is quoted.
    """
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"is not JSON: {error}") from error
    return from_row(row, env, task_id)


def from_row(row: Any, env: str = "unknown", task_id: str = "unknown") -> Trajectory:
    """A row of a ``messages`` file as a trajectory, which also keeps the row's other keys.

    Raises:
        ProtocolError: it has no ``messages``, or they are not in order.
    """
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        raise ProtocolError("has no list 'messages'")
    trajectory = parse(row["messages"], env, task_id)
    kept = {
        "row": {key: value for key, value in row.items() if key != "messages"},
        "messages": {n: rest for n, message in enumerate(row["messages"]) if (rest := _rest(message))},
        "empty_system": row["messages"][0]["role"] == "system" and row["messages"][0]["content"] == "",
    }
    return trajectory.model_copy(update={"llama_factory": {k: v for k, v in kept.items() if v}})


def _rest(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in ("role", "content")}


def messages_row(trajectory: Trajectory) -> dict[str, Any]:
    """A row of a Word2World / LLaMA-Factory file."""
    kept = getattr(trajectory, "llama_factory", {})
    messages: list[dict[str, Any]] = [dict(message) for message in render(trajectory)]
    if "empty_system" in kept:
        messages.insert(0, {"role": "system", "content": ""})
    for number, rest in kept.get("messages", {}).items():
        messages[int(number)].update(rest)
    return {**kept.get("row", {}), "messages": messages}


def read_messages(path: Path | str, env: str = "unknown", *, strict: bool = True) -> list[Trajectory]:
    """All trajectories of a ``messages`` file.

    Raises:
        DataError: the file cannot be read or, with ``strict``, a line is bad; names file and line.
    """
    found = []
    for item in scan_messages(path, env):
        if isinstance(item, Row):
            found.append(item.trajectory)
        elif strict:
            raise DataError(item.reason, item.path, item.line)
    return found


def write_messages(path: Path | str, trajectories: Iterable[Trajectory]) -> None:
    """Write a ``messages`` file that Word2World and LLaMA-Factory load."""
    lines = (json.dumps(messages_row(t), ensure_ascii=False) + "\n" for t in trajectories)
    Path(path).write_text("".join(lines), encoding="utf-8", errors=ESCAPED)
